"""Many logs closed at once: what a clean stop makes durable, and how."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.log.config import LogConfig
from klamm.log.folder import DataFolder, read_state
from klamm.log.manager import LogManager
from klamm.log.results import Appended
from klamm.log.segment import write_over
from klamm.records.record import Record, encode_batch
from klamm.testing.sim.disk import SimDisk, SimVolume
from klamm.testing.sim.faults import SYNC
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.world import World

ID = bytes(range(16))
LOGS = 5
CONFIG = LogConfig(segment_bytes=400)


class Lab:
    """A broker's logs on a simulated machine. `many` logs are closed together."""

    def __init__(self, seed: int = 1, many: int = 1) -> None:
        self.world = World(seed)
        self.many = many
        self.process: Any = None
        self.manager: LogManager
        self.operations: list[tuple[str, str]] = []

    @property
    def disk(self) -> SimDisk:
        return self.world.machine("m").disk

    async def start(self) -> LogManager:
        self.process = self.world.node("m")
        self.disk._observe = lambda operation, path, data: self.operations.append((operation, path))
        return await self.process.run(self._open())

    async def _open(self) -> LogManager:
        env = self.process.env
        self.folder = DataFolder.open(env, "/data")
        self.manager = await LogManager.open(
            env,
            self.folder,
            config_for=lambda topic: CONFIG,
            topic_id_for=lambda topic, partition: ID,
            many_logs=self.many,
        )
        return self.manager

    def log(self, partition: int) -> Any:
        return self.manager.get_or_create("t", partition, ID, CONFIG)

    async def append(self, count: int = 1) -> None:
        async def run() -> None:
            for partition in range(LOGS):
                for i in range(count):
                    batch = encode_batch([Record(i, 1000 + i, None, b"x" * 50)], producer_id=7, base_sequence=i)
                    assert isinstance(self.log(partition).append(bytearray(batch), leader_epoch=3), Appended)

        await self.process.run(run())

    async def stop(self) -> None:
        async def run() -> None:
            await self.manager.close()
            self.folder.close()

        self.operations.clear()
        await self.process.run(run())

    def power_loss(self) -> None:
        self.world.power_loss(self.process)

    def saved_ends(self) -> dict[str, int]:
        """Of the logs that the state file calls clean."""
        saved = read_state(self.disk.mount(), "/data")
        return {name: log.state.end_offset for name, log in saved.logs.items() if log.clean}

    def run(self, scenario: Any) -> None:
        with self.world as world:
            world.run(scenario())


def test_logs_closed_together_are_durable_without_a_sync_of_their_own() -> None:
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append(2)
        await lab.stop()
        synced_alone = [path for operation, path in lab.operations if operation == "sync_dir"]
        assert synced_alone == ["/data"]  # the state file's folder
        lab.power_loss()
        assert lab.saved_ends() == {f"t-{i}": 2 for i in range(LOGS)}
        await lab.start()
        assert lab.manager.was_clean
        for i in range(LOGS):
            log = lab.log(i)
            log.load()
            assert log.failure is None and log.end_offset == log.recovery_point == 2
            assert log.epochs.latest == 3 and log.producers.get(7) is not None
        assert not [path for operation, path in lab.operations if path.endswith(".tmp") and operation == "remove"]

    lab.run(scenario)


def test_a_few_logs_are_closed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimVolume, "sync", lambda self: pytest.fail("not for a few"))
    lab = Lab(many=LOGS + 1)

    async def scenario() -> None:
        await lab.start()
        await lab.append()
        await lab.stop()
        lab.power_loss()
        assert len(lab.saved_ends()) == LOGS

    lab.run(scenario)


def test_logs_are_closed_one_by_one_where_a_volume_cannot_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimVolume, "can_sync", lambda self: False)
    monkeypatch.setattr(SimVolume, "sync", lambda self: pytest.fail("not to be trusted"))
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append()
        await lab.stop()
        lab.power_loss()
        assert len(lab.saved_ends()) == LOGS

    lab.run(scenario)


def test_a_log_on_another_volume_syncs_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimVolume, "holds", lambda self, path: not path.endswith("t-2"))
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append()
        await lab.stop()
        assert ("sync_dir", "/data/topics/t-2") in lab.operations
        assert ("sync_dir", "/data/topics/t-1") not in lab.operations
        assert len(lab.saved_ends()) == LOGS

    lab.run(scenario)


def test_a_write_that_fails_is_put_down_to_its_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append(2)
        lab.disk.faults.fail(SYNC, path="t-3/00000000000000000000.log")
        await lab.stop()
        lab.power_loss()
        assert lab.saved_ends() == {f"t-{i}": 2 for i in range(LOGS) if i != 3}
        await lab.start()
        assert all(lab.log(i).end_offset == 2 for i in range(LOGS) if i != 3)

    lab.run(scenario)
    assert "each log is synced by itself" in caplog.text and "The log t-3 was offline" in caplog.text


@pytest.mark.parametrize("kind", ["index", "timeindex", "snapshot"])
def test_a_small_file_that_could_not_be_written_is_written_again(kind: str) -> None:
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append(2)
        lab.disk.faults.fail(SYNC, path=kind)
        await lab.stop()
        lab.power_loss()
        assert lab.saved_ends() == {f"t-{i}": 2 for i in range(LOGS)}
        await lab.start()
        for i in range(LOGS):
            lab.log(i).load()
            assert lab.log(i).failure is None and lab.log(i).epochs.latest == 3

    lab.run(scenario)


def test_the_second_sync_may_fail_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is for the names alone: then every log syncs its folder."""
    sync, calls = SimVolume.sync, 0

    def second_fails(self: SimVolume) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("no")
        sync(self)

    monkeypatch.setattr(SimVolume, "sync", second_fails)
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append(2)
        await lab.stop()
        assert calls == 2
        lab.power_loss()
        assert lab.saved_ends() == {f"t-{i}": 2 for i in range(LOGS)}
        await lab.start()
        assert all(lab.log(i).epochs.latest == 3 for i in range(LOGS))

    lab.run(scenario)


def test_a_log_that_cannot_write_its_small_files_is_the_only_one_that_is_not_clean() -> None:
    lab = Lab()

    async def scenario() -> None:
        await lab.start()
        await lab.append(2)
        lab.disk.fill(0)
        await lab.stop()
        lab.disk.capacity_bytes = None
        assert lab.saved_ends() == {}
        lab.world.kill(lab.process)
        await lab.start()
        assert all(lab.log(i).end_offset == 2 for i in range(LOGS))

    lab.run(scenario)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_power_loss_at_any_moment_of_the_stop_leaves_what_recovery_can_work_with(flushed: bool) -> None:
    clean = crashed = 0
    for in_ops in range(1, 300, 3):
        lab = Lab(seed=in_ops)

        async def scenario(lab: Lab = lab, in_ops: int = in_ops) -> None:
            nonlocal clean, crashed
            await lab.start()
            await lab.append(7)
            if flushed:
                await lab.process.run(asyncio.wait_for(_flush(lab), 60))
            lab.disk.faults.crash(in_ops, lab.power_loss)
            try:
                await lab.stop()
                lab.power_loss()
            except Killed:
                crashed += 1
            lab.disk.faults.crash(1 << 30, lambda: None)
            await lab.start()
            for i in range(LOGS):
                log = lab.log(i)
                log.load()
                assert log.failure is None
                if lab.manager.was_clean or flushed:
                    assert log.end_offset == 7 and log.producers.get(7) is not None and log.epochs.latest == 3
            clean += lab.manager.was_clean

        lab.run(scenario)
    assert crashed > 10 and clean > 10


async def _flush(lab: Lab) -> None:
    await asyncio.gather(*(lab.log(i).flush() for i in range(LOGS)))
    await lab.manager.save_state()


@pytest.mark.parametrize("old", [None, b"", b"same size", b"new", b"new and longer", b"n"])
def test_writing_over_a_file_leaves_the_new_content_alone(old: bytes | None) -> None:
    files = SimDisk().mount()
    if old is not None:
        files.write_atomically("a", old)
    write_over(files, "a", b"new")
    assert files.read("a") == b"new"
    write_over(files, "a", b"")
    assert files.read("a") == b""
