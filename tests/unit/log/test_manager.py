from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from klamm.cli import log as log_command
from klamm.core.env import Env
from klamm.core.env.real import RealClock, RealFiles, real_env
from klamm.core.errors import ErrorCode
from klamm.log.config import LogConfig
from klamm.log.folder import DataFolder, read_state, read_topic_id, topic_id_name
from klamm.log.housekeeping import Intervals
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.results import Appended, Rejected
from klamm.records.batch import header_bytes, iter_batches
from klamm.records.record import Record, decode_records, encode_batch

pytestmark = pytest.mark.usefixtures("quick_disk")

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
CONFIG = LogConfig(file_delete_delay_ms=0)
HOUR_MS = 3_600_000


class Clock(RealClock):
    """A wall clock that a test can put forward."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.ahead_ms


class Broker:
    """A data folder and its manager, started and stopped in all the ways a broker is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.config = CONFIG
        self.ids: Callable[[str, int], bytes | None] = lambda topic, partition: ID
        self.intervals = Intervals()
        self.env: Env
        self.folder: DataFolder
        self.manager: LogManager

    async def start(self) -> LogManager:
        self.env = real_env(seed=1)
        self.env.clock = self.clock
        self.folder = DataFolder.open(self.env, str(self.path))
        self.manager = await LogManager.open(
            self.env,
            self.folder,
            config_for=lambda topic: self.config,
            topic_id_for=self.ids,
            intervals=self.intervals,
        )
        return self.manager

    async def stop(self, clean: bool = True) -> None:
        await self.manager.close(clean)
        self.env.executor.close()
        self.folder.close()

    async def restart(self, clean: bool = True) -> LogManager:
        await self.stop(clean)
        return await self.start()

    def log(self, topic: str = "t", partition: int = 0, topic_id: bytes = ID) -> Log:
        return self.manager.get_or_create(topic, partition, topic_id, self.config)

    def topics(self) -> list[str]:
        return sorted(p.name for p in (self.path / "topics").iterdir())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(tmp_path / "data")
    await made.start()
    yield made
    made.folder.close()
    made.env.executor.close()


def append(log: Log, count: int = 1, value: bytes = b"value") -> Appended:
    now_ms = log.env.clock.time_ms()
    result = log.append(bytearray(encode_batch([Record(0, now_ms, None, value)] * count)), leader_epoch=0)
    assert isinstance(result, Appended), result
    return result


async def removed(broker: Broker) -> None:
    """Everything that is to be removed is."""
    while broker.manager._aside_task is not None:
        await broker.manager._aside_task
    remover = broker.manager.remover
    while len(remover):
        await asyncio.sleep(0)  # due at once: the timer fires in the next turn
        if remover._busy is not None:
            await asyncio.wait([remover._busy])
    if remover._busy is not None:
        await asyncio.wait([remover._busy])


async def test_files_appear_with_the_first_append(broker: Broker) -> None:
    log = broker.log()
    assert broker.topics() == []
    append(log)
    assert broker.topics() == ["t-0"]
    assert read_topic_id(RealFiles(), str(broker.path / "topics/t-0")) == ID
    assert broker.manager.get("t", 0) is log and broker.log() is log
    assert broker.manager.get("t", 1) is None


async def test_a_clean_restart_trusts_the_state_and_touches_no_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(5):
        append(broker.log("t", partition), partition + 1)
    broker.log("never-written")
    await broker.stop()
    assert read_state(RealFiles(), str(broker.path)).clean

    touched: list[str] = []
    for name in ("open", "read", "list", "size", "exists", "map"):
        real = getattr(RealFiles, name)

        def spy(self: RealFiles, path: str, *args: object, real: Callable[..., object] = real, **kw: object) -> object:
            touched.append(path)
            return real(self, path, *args, **kw)

        monkeypatch.setattr(RealFiles, name, spy)
    await broker.start()
    logs = [broker.log("t", partition) for partition in range(5)]
    assert not [path for path in touched if "/topics/" in path]
    assert [log.end_offset for log in logs] == [1, 2, 3, 4, 5]
    assert not any(log.touched for log in logs)
    assert append(logs[2]).base_offset == 3


async def test_after_a_kill_every_log_is_recovered(broker: Broker) -> None:
    for partition in range(10):
        append(broker.log("t", partition), partition + 1)
    await broker.restart(clean=False)
    logs = [broker.manager.get("t", partition) for partition in range(10)]
    assert [log and log.end_offset for log in logs] == list(range(1, 11))
    assert append(broker.log("t", 4)).base_offset == 5


async def test_the_start_is_unclean_from_the_moment_the_folder_is_in_use(broker: Broker) -> None:
    append(broker.log())
    await broker.restart()
    assert not read_state(RealFiles(), str(broker.path)).clean
    await broker.restart(clean=False)
    assert broker.manager.get("t", 0) is not None  # recovered, not trusted
    await broker.restart()
    assert broker.manager.get("t", 0) is None


async def test_a_torn_tail_is_cut_after_a_kill(broker: Broker) -> None:
    append(broker.log(), 3)
    segment = broker.path / "topics/t-0/00000000000000000000.log"
    with segment.open("ab") as file:
        file.write(bytes(header_bytes + 5))
    await broker.restart(clean=False)
    assert broker.log().end_offset == 3


async def test_a_log_that_is_damaged_below_its_recovery_point_is_offline_and_stays_so(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker.log("bad"), 3)
    append(broker.log("good"), 3)
    assert await broker.log("bad").flush() is None
    await broker.manager.save_state()
    segment = broker.path / "topics/bad-0/00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        await broker.restart(clean=False)
    assert "The log bad-0 is offline" in caplog.text
    for clean in (True, False, True):
        bad = broker.log("bad")
        assert bad.failure is not None
        refused = bad.append(bytearray(encode_batch([Record(0, 0, None, b"")])), leader_epoch=0)
        assert isinstance(refused, Rejected) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        append(broker.log("good"))
        await broker.manager.save_state()
        await broker.restart(clean)
    assert segment.read_bytes() == content


async def test_the_manager_knows_which_logs_are_offline(broker: Broker) -> None:
    manager = broker.manager
    for topic, partition in (("a", 0), ("a", 1), ("b", 0), ("fine", 0)):
        append(broker.log(topic, partition))
    assert (manager.offline, manager.offline_version) == ({}, 0)
    for version, (topic, partition) in enumerate((("a", 1), ("b", 0), ("a", 0)), 1):
        broker.log(topic, partition)._fail("broken")
        assert partition in manager.offline[topic] and manager.offline_version == version
    broker.log("a", 0)._fail("broken once more")
    assert (manager.offline, manager.offline_version) == ({"a": {0, 1}, "b": {0}}, 3)
    gone = broker.log("b")
    manager.delete("b", 0)
    assert (manager.offline, manager.offline_version) == ({"a": {0, 1}}, 4)
    broker.log("b", topic_id=OTHER_ID)
    gone._fail("nobody cares")
    assert (manager.offline, manager.offline_version) == ({"a": {0, 1}}, 4)
    await broker.restart()
    assert broker.manager.offline == {}, "nothing of it was damaged"


async def test_a_log_that_is_found_damaged_is_among_those_that_are_offline(broker: Broker) -> None:
    for topic in ("start", "use", "retention"):
        append(broker.log(topic), 3)
        await broker.log(topic).flush()

    def cut(topic: str) -> None:
        segment = broker.path / f"topics/{topic}-0/00000000000000000000.log"
        segment.write_bytes(segment.read_bytes()[:10])

    await broker.manager.save_state()
    cut("start")
    manager = await broker.restart(clean=False)
    assert manager.offline == {"start": {0}}
    manager = await broker.restart()
    assert manager.offline == {"start": {0}}
    cut("use")
    refused = broker.log("use").offset_for_timestamp(0, 3)  # the first to look into its files
    assert isinstance(refused, Rejected) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.offline == {"start": {0}, "use": {0}}
    cut("retention")
    await manager.retain_unopened(broker.clock.time_ms())
    assert manager.offline == {"start": {0}, "use": {0}, "retention": {0}}


async def test_a_truncation_that_fails_in_the_executor_is_noticed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker.log(), 3)
    append(broker.log(), 3)

    real = RealFiles.sync_dir

    def refuse(self: RealFiles, path: str) -> None:
        if path.endswith("/t-0"):
            raise OSError(5, "broken")
        real(self, path)

    monkeypatch.setattr(RealFiles, "sync_dir", refuse)
    with pytest.raises(OSError, match="broken"):
        await broker.manager.truncate("t", 0, 3)
    assert broker.manager.offline == {"t": {0}}


async def test_a_folder_that_vanished_is_no_empty_log(broker: Broker) -> None:
    append(broker.log(), 3)
    await broker.log().flush()
    await broker.stop()
    (broker.path / "topics/t-0").rename(broker.path / "elsewhere")
    await broker.start()
    assert broker.log().failure is not None


async def test_a_deleted_partition_gives_its_space_back(broker: Broker) -> None:
    append(broker.log("t", 0))
    append(broker.log("t", 1))
    broker.manager.delete("t", 0)
    broker.manager.delete("t", 7)
    assert broker.manager.get("t", 0) is None
    await removed(broker)
    assert broker.topics() == ["t-1"]


async def test_files_of_a_deleted_partition_stay_for_the_delay(broker: Broker) -> None:
    broker.config = LogConfig(file_delete_delay_ms=HOUR_MS)
    append(broker.log())
    broker.manager.delete("t", 0)
    await broker.manager._aside_task  # type: ignore[misc]
    (left,) = broker.topics()
    assert left.endswith(".deleted")
    await broker.restart()  # what is left is removed by the next start
    await removed(broker)
    assert broker.topics() == []


async def test_a_partition_can_be_deleted_and_made_again_at_once(broker: Broker) -> None:
    append(broker.log(), 5)
    broker.manager.delete("t", 0)
    log = broker.log(topic_id=OTHER_ID)
    assert append(log).base_offset == 0
    await removed(broker)
    assert broker.topics() == ["t-0"]
    assert read_topic_id(RealFiles(), str(broker.path / "topics/t-0")) == OTHER_ID


async def test_a_log_of_another_topic_id_is_set_aside(broker: Broker) -> None:
    append(broker.log(), 5)
    assert broker.log(topic_id=OTHER_ID).end_offset == 0
    await removed(broker)
    assert broker.topics() == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("expected", [OTHER_ID, None])
async def test_stale_folders_are_removed_at_the_start(broker: Broker, clean: bool, expected: bytes | None) -> None:
    append(broker.log("stale"), 5)
    append(broker.log("fresh"), 5)
    broker.ids = lambda topic, partition: expected if topic == "stale" else ID
    await broker.restart(clean)
    await removed(broker)
    assert broker.topics() == ["fresh-0"]
    assert broker.log("stale", topic_id=OTHER_ID).end_offset == 0
    assert broker.log("fresh").end_offset == 5


async def test_a_stale_log_may_be_asked_for_before_it_is_removed(broker: Broker) -> None:
    append(broker.log(), 5)
    broker.ids = lambda topic, partition: OTHER_ID
    await broker.restart()
    assert append(broker.log(topic_id=OTHER_ID)).base_offset == 0
    await removed(broker)
    assert broker.topics() == ["t-0"]


async def test_a_folder_without_a_legible_topic_id_is_kept_but_not_served(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker.log(), 5)
    (broker.path / "topics/t-0" / topic_id_name(ID)).unlink()
    await broker.restart(clean=False)
    assert broker.log().end_offset == 0
    (stray,) = broker.topics()
    assert stray.endswith(".stray") and stray in caplog.text
    append(broker.log(), 1)
    await broker.restart(clean=False)
    assert stray in broker.topics() and broker.log().end_offset == 1


async def test_a_folder_without_a_legible_topic_id_is_served_if_the_state_file_knows_of_durable_records(
    broker: Broker,
) -> None:
    append(broker.log(), 5)
    await broker.log().flush()
    await broker.manager.save_state()
    (broker.path / "topics/t-0" / topic_id_name(ID)).unlink()
    await broker.restart(clean=False)
    assert broker.log().end_offset == 5


async def test_a_stop_with_a_full_disk_ends_and_the_next_start_recovers(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker.log(), 5)

    def full(self: RealFiles, path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(RealFiles, "write_atomically", full)
        await broker.stop()
    assert "No space left" in caplog.text
    await broker.start()
    assert not broker.manager.was_clean and broker.log().end_offset == 5


async def test_what_is_no_partition_is_left_alone(broker: Broker) -> None:
    (broker.path / "topics" / "notes").mkdir()
    await broker.restart(clean=False)
    assert broker.topics() == ["notes"]


async def test_the_longest_topic_name_fits(broker: Broker) -> None:
    topic = "x" * 249
    append(broker.log(topic, 99_999), 2)
    await broker.restart()
    assert broker.log(topic, 99_999).end_offset == 2
    await broker.restart(clean=False)
    assert broker.log(topic, 99_999).end_offset == 2
    broker.manager.delete(topic, 99_999)
    await removed(broker)
    assert broker.topics() == []


async def test_the_state_file_holds_recovery_points_while_the_broker_runs(broker: Broker) -> None:
    log = broker.log()
    append(log, 5)
    await log.flush()
    append(log, 2)
    await broker.manager.save_state()
    saved = read_state(RealFiles(), str(broker.path))
    assert not saved.clean
    assert saved.logs["t-0"].state.recovery_point == 5 and saved.logs["t-0"].topic_id == ID


async def test_an_unchanged_state_is_not_written_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    append(broker.log())
    await broker.manager.save_state()
    written: list[str] = []
    monkeypatch.setattr(RealFiles, "write_atomically", lambda self, path, data: written.append(path))
    await broker.manager.save_state()
    assert written == []
    append(broker.log())
    await broker.log().flush()
    written.clear()
    await broker.manager.save_state()
    assert len(written) == 1


async def test_a_truncation_lowers_the_recovery_point_on_disk_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.log()
    for _ in range(10):
        append(log)
    await log.flush()
    await broker.manager.save_state()
    seen: list[int] = []
    real = Log.truncate_to

    def spy(self: Log, offset: int) -> None:
        seen.append(read_state(RealFiles(), str(broker.path)).logs["t-0"].state.recovery_point)
        real(self, offset)

    monkeypatch.setattr(Log, "truncate_to", spy)
    await broker.manager.truncate("t", 0, 4)
    assert seen == [4] and log.end_offset == 4
    await broker.restart(clean=False)
    assert broker.log().failure is None and broker.log().end_offset == 4
    await broker.manager.restart_at("t", 0, 100)
    await broker.restart(clean=False)
    assert broker.log().failure is None
    assert append(broker.log()).base_offset == 100


async def test_a_new_topic_of_the_same_name_does_not_start_where_the_old_one_was_to(broker: Broker) -> None:
    """The old one was deleted, and made again, while records of it were."""
    old = broker.log()
    append(old, 100)
    await old.flush()
    moving = asyncio.create_task(broker.manager.move_starts([(old, 100)]))
    broker.manager.delete("t", 0)
    broker.ids = lambda topic, partition: OTHER_ID
    append(broker.log(topic_id=OTHER_ID), 3)
    await moving
    await broker.restart(clean=False)
    log = broker.log(topic_id=OTHER_ID)
    assert (log.start_offset, log.end_offset) == (0, 3)


async def test_retention_deletes_old_segments_also_of_logs_that_nobody_used_since_the_start(broker: Broker) -> None:
    broker.config = LogConfig(file_delete_delay_ms=0, retention_ms=HOUR_MS, segment_bytes=200)
    for topic in ("used", "unused"):
        for _ in range(6):
            append(broker.log(topic), value=bytes(100))
        await broker.log(topic).flush()
    await broker.restart()
    broker.log("used")
    housekeeping = broker.manager._housekeeping
    await housekeeping.retain()
    assert broker.log("used").start_offset == 0
    assert broker.manager.get("unused", 0) is None  # looked at, and forgotten again
    broker.clock.ahead_ms = 2 * HOUR_MS
    for _ in range(2):  # the active segment is finished by the first round and goes with the second
        await housekeeping.retain()
        for topic in ("used", "unused"):
            await broker.log(topic).flush()
    for topic in ("used", "unused"):
        assert broker.log(topic).start_offset == 6
    await removed(broker)
    left = list((broker.path / "topics").glob("*/*.deleted"))
    assert left == []
    assert append(broker.log("unused")).base_offset == 6


async def test_flush_ms_makes_old_writes_durable(broker: Broker) -> None:
    broker.config = LogConfig(flush_ms=500)
    log = broker.log()
    append(log, 3)
    housekeeping = broker.manager._housekeeping
    assert 10 <= await housekeeping.flush() <= 500
    assert log.recovery_point == 0
    broker.clock.ahead_ms = 500
    assert await housekeeping.flush() == 1000
    assert log.recovery_point == 3


async def test_the_jobs_run_by_the_clock_and_survive_a_failure(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.intervals = Intervals(*[1] * 4)
    await broker.restart()
    calls = 0
    enough = asyncio.Event()

    async def failing(self: LogManager) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            enough.set()
        raise RuntimeError("no luck")

    monkeypatch.setattr(LogManager, "save_state", failing)
    broker.manager.start()
    await asyncio.wait_for(enough.wait(), 10)
    monkeypatch.undo()
    assert "'state file' failed" in caplog.text
    await broker.stop()
    assert read_state(RealFiles(), str(broker.path)).clean


async def test_one_log_that_breaks_retention_does_not_keep_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def deleting(self: Log, now_ms: int, limit: int) -> list[str]:
        if self.name == "a-0":
            raise RuntimeError("broken")
        seen.append(self.name)
        return []

    monkeypatch.setattr(Log, "delete_old_segments", deleting)
    for topic in "abc":
        broker.log(topic)
    await broker.manager._housekeeping.retain()
    assert seen == ["b-0", "c-0"] and "failed for one log" in caplog.text


async def test_an_offline_log_at_a_clean_stop_is_recovered_and_the_others_are_trusted(broker: Broker) -> None:
    append(broker.log("bad"), 3)
    append(broker.log("good"), 3)
    broker.log("bad").failure = "a test says so"
    await broker.restart()
    assert broker.manager.get("good", 0) is None  # trusted, not opened
    bad = broker.manager.get("bad", 0)
    assert bad is not None and bad.failure is None and bad.end_offset == 3


async def test_files_that_cannot_be_removed_are_reported(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(broker.log())

    def refuse(self: RealFiles, path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(RealFiles, "remove_tree", refuse)
    broker.manager.delete("t", 0)
    await removed(broker)
    assert "Permission denied" in caplog.text


async def test_many_partitions_start_and_stop_without_looking_at_each(broker: Broker) -> None:
    for partition in range(2000):
        broker.log("many", partition)
    append(broker.log("many", 7))
    await broker.restart()
    assert broker.log("many", 7).end_offset == 1
    assert broker.topics() == ["many-7"]
    for partition in range(2000):
        broker.manager.delete("many", partition)
    await removed(broker)
    assert broker.topics() == []


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_repaired_log_is_online_again_with_all_that_was_not_damaged(
    broker: Broker, cut: bool, clean: bool
) -> None:
    broker.config = LogConfig(segment_bytes=500)
    log = broker.log()
    for number in range(20):
        append(log, 2, value=b"%03d" % number + bytes(100))
    await log.flush()
    await broker.manager.save_state()
    await broker.stop(clean)
    path = broker.path / "topics/t-0"
    segments = sorted(path.glob("*.log"))
    hit = segments[len(segments) // 2]
    content = bytearray(hit.read_bytes())
    content[-3] ^= 1  # in the last batch of a segment in the middle, far below the recovery point
    hit.write_bytes(content)
    first = [header.base_offset for _, header in iter_batches(content)][-1]

    assert log_command.repair(str(path), cut=cut, yes=True) == 0
    await broker.start()
    log = broker.log()
    assert log.failure is None
    assert log.end_offset == (first if cut else 40)
    values = [record.value[:3] for record in read_all(log) if record.value]
    expected = [b"%03d" % (n // 2) for n in range(40) if n < first or (n >= first + 2 and not cut)]
    assert values == expected
    assert append(log).base_offset == log.end_offset - 1
    await broker.restart()
    assert broker.log().failure is None


def read_all(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.start_offset
    while (found := log.read(offset, 1 << 20, limit=log.end_offset)) is not None:
        assert not isinstance(found, Rejected), found
        data = found.file.pread(found.size, found.offset)
        for position, header in iter_batches(data):
            records += decode_records(data, position)
            offset = header.next_offset
    return records
