from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.env import Buffer, Env
from klamm.core.env.real import RealFiles, real_env
from klamm.core.ids import ZERO_UUID
from klamm.log.folder import (
    FORMAT,
    NOTHING_SAVED,
    DataFolder,
    FolderError,
    SavedLog,
    SavedState,
    decode_state,
    encode_state,
    partition_name,
    read_state,
    read_topic_id,
    split_name,
    state_line,
    topic_id_name,
)
from klamm.log.results import LogState

TOPIC_ID = bytes(range(16))
SAVED = {
    "orders-0": SavedLog(TOPIC_ID, LogState(5, 100, 90, 99), True),
    "orders-1": SavedLog(TOPIC_ID, LogState(0, 0, 0, 0), True),
}


@pytest.fixture
def env() -> Iterator[Env]:
    made = real_env(seed=1)
    yield made
    made.executor.close()


def lines(logs: dict[str, SavedLog]) -> list[str]:
    return [state_line(name, log) for name, log in logs.items()]


def test_a_new_folder_gets_a_marker_and_keeps_its_ids(env: Env, tmp_path: Path) -> None:
    path = str(tmp_path / "some" / "data")
    folder = DataFolder.open(env, path, node_id=3)
    assert json.loads((tmp_path / "some/data/klamm.json").read_text()) == {
        "format": FORMAT, "cluster_id": folder.cluster_id, "node_id": 3,
    }  # fmt: skip
    folder.close()
    again = DataFolder.open(env, path, node_id=3)
    assert again.cluster_id == folder.cluster_id
    assert again.topics_path == f"{path}/topics"
    again.close()


def test_the_names_of_new_folders_are_made_durable(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(RealFiles, "sync_dir", lambda self, path: synced.append(path))
    DataFolder.open(env, f"{tmp_path}/a/b").close()
    assert synced[:2] == [str(tmp_path), f"{tmp_path}/a"]
    monkeypatch.chdir(tmp_path)
    synced.clear()
    DataFolder.open(env, "c").close()
    assert synced[0] == "."
    synced.clear()
    DataFolder.open(env, "c").close()
    assert "." not in synced


def test_a_locked_folder_is_refused_until_it_is_free(env: Env, tmp_path: Path) -> None:
    first = DataFolder.open(env, str(tmp_path))
    with pytest.raises(FolderError, match="in use by another broker"):
        DataFolder.open(env, str(tmp_path))
    first.close()
    DataFolder.open(env, str(tmp_path)).close()


def test_a_newer_format_is_refused_and_leaves_the_folder_as_it_was(env: Env, tmp_path: Path) -> None:
    marker = {"format": FORMAT + 1, "cluster_id": "x", "node_id": 0, "more": True}
    (tmp_path / "klamm.json").write_text(json.dumps(marker))
    with pytest.raises(FolderError, match=r"format 2, written by a newer Klamm; this one reads format 1\.$"):
        DataFolder.open(env, str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["klamm.json", "lock"]
    lock = env.files.lock(str(tmp_path / "lock"))
    assert lock is not None
    lock.release()


def test_the_folder_of_a_kafka_broker_is_never_touched(env: Env, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(FolderError, match="Kafka broker"):
        DataFolder.open(env, str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "1"}', '{"format": 1, "node_id": 0}'])
def test_a_damaged_marker_is_refused(env: Env, tmp_path: Path, text: str) -> None:
    (tmp_path / "klamm.json").write_text(text)
    with pytest.raises(FolderError, match="damaged"):
        DataFolder.open(env, str(tmp_path))


def test_data_without_a_marker_is_not_taken_for_a_new_folder(env: Env, tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    with pytest.raises(FolderError, match="put it back first"):
        DataFolder.open(env, str(tmp_path))


def test_a_path_that_cannot_be_a_folder_is_one_sentence(env: Env, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="cannot be used: Not a directory"):
        DataFolder.open(env, str(tmp_path / "file" / "data"))


def test_an_unwritable_folder_is_one_sentence(env: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(RealFiles, "lock", denied)
    with pytest.raises(FolderError, match=r"cannot be used: Permission denied\.$"):
        DataFolder.open(env, str(tmp_path))


def test_the_folder_of_another_node_or_cluster_is_refused(env: Env, tmp_path: Path) -> None:
    DataFolder.open(env, str(tmp_path), node_id=1, cluster_id="abc").close()
    with pytest.raises(FolderError, match="belongs to node 1"):
        DataFolder.open(env, str(tmp_path), node_id=2)
    with pytest.raises(FolderError, match="belongs to cluster abc"):
        DataFolder.open(env, str(tmp_path), node_id=1, cluster_id="xyz")


def test_a_clean_state_is_given_out_once(env: Env, tmp_path: Path) -> None:
    folder = DataFolder.open(env, str(tmp_path))
    assert folder.take_state() == NOTHING_SAVED
    folder.write_state(lines(SAVED), clean=True)
    assert folder.take_state() == SavedState(True, SAVED)
    second = folder.take_state()
    assert not second.clean
    assert second.logs == {name: log._replace(clean=False) for name, log in SAVED.items()}
    folder.close()


def test_a_log_that_was_offline_at_a_clean_stop_is_not_trusted(env: Env, tmp_path: Path) -> None:
    folder = DataFolder.open(env, str(tmp_path))
    logs = dict(SAVED, **{"bad-0": SavedLog(TOPIC_ID, LogState(1, 50, 40, 45), False)})
    folder.write_state(lines(logs), clean=True)
    saved = folder.take_state()
    assert saved.clean and saved.logs["orders-0"].clean
    assert saved.logs["bad-0"] == SavedLog(TOPIC_ID, LogState(1, -1, 40, 45), False)
    folder.close()


def test_any_damage_to_the_state_file_means_that_nothing_is_known(env: Env, tmp_path: Path) -> None:
    data = encode_state(lines(SAVED), clean=True)
    state = tmp_path / "state.json"
    for at in range(len(data)):
        for flip in (0x01, 0x10, 0x80):
            state.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            assert read_state(env.files, str(tmp_path)) in (NOTHING_SAVED, decode_state(data))
    for size in range(len(data) - 1):
        state.write_bytes(data[:size])
        assert read_state(env.files, str(tmp_path)) == NOTHING_SAVED


class Killed(BaseException):
    pass


class DyingFiles(RealFiles):
    """Real files of a process that is killed just before its n-th change."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def write_atomically(self, path: str, data: Buffer) -> None:
        self._step()
        Path(path + ".tmp").write_bytes(data[: len(data) // 2])
        self._step()
        Path(path + ".tmp").write_bytes(data)
        self._step()
        self.rename(path + ".tmp", path)
        self._step()

    def make_dirs(self, path: str) -> None:
        self._step()
        super().make_dirs(path)


def killed_at_every_step(tmp_path: Path, job: Callable[[Env, str], None]) -> Iterator[str]:
    """Folders in which the job was killed before its first, second, … change; the last one finished."""
    for step in range(100):
        path = tmp_path / str(step)
        env = real_env(seed=step)
        env.files = DyingFiles(step)
        try:
            job(env, str(path))
        except Killed:
            yield str(path)
        else:
            yield str(path)
            return
    raise AssertionError("the job has more steps than expected")


def test_a_kill_while_a_folder_is_made_leaves_one_that_opens(env: Env, tmp_path: Path) -> None:
    def make(dying: Env, path: str) -> None:
        DataFolder.open(dying, path).close()

    for path in killed_at_every_step(tmp_path, make):
        DataFolder.open(env, path).close()


def test_a_kill_between_any_two_steps_never_leaves_a_clean_state_next_to_a_log_that_was_written(
    env: Env, tmp_path: Path
) -> None:
    def work(dying: Env, path: str) -> None:
        real = DataFolder.open(env, path)
        real.write_state(lines(SAVED), clean=True)
        real.close()
        folder = DataFolder.open(dying, path)
        try:
            saved = folder.take_state()
            assert saved.clean
            written.add(path)
            folder.write_state(lines(saved.logs), clean=False)
            stopped.add(path)
            folder.write_state(lines(SAVED), clean=True)
        finally:
            folder.close()

    written: set[str] = set()
    stopped: set[str] = set()
    outcomes = set()
    for path in killed_at_every_step(tmp_path, work):
        saved = read_state(env.files, path)
        if path in written and path not in stopped:
            assert not saved.clean
        assert set(saved.logs) == set(SAVED)  # the old or the new file, never a part of one
        outcomes.add((path in written, path in stopped, saved.clean))
    assert outcomes >= {(False, False, True), (True, False, False), (True, True, False), (True, True, True)}


NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249)
OFFSETS = st.integers(0, 2**63 - 1)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(st.binary(min_size=16, max_size=16), OFFSETS, OFFSETS, st.booleans())))
def test_any_state_comes_back_as_it_was(logs: dict[str, tuple[bytes, int, int, bool]]) -> None:
    saved = {
        partition_name(topic, number): SavedLog(topic_id, LogState(a, b if clean else -1, a, b), clean)
        for number, (topic, (topic_id, a, b, clean)) in enumerate(logs.items())
    }
    assert decode_state(encode_state(lines(saved), clean=True)) == SavedState(True, saved)


@settings(max_examples=50, deadline=None)
@given(NAMES, st.integers(0, 99_999))
def test_a_partition_folders_name_fits_and_splits(topic: str, partition: int) -> None:
    name = partition_name(topic, partition)
    assert len(name) <= 255
    assert split_name(name) == (topic, partition)


@pytest.mark.parametrize("name", ["topic", "-1", "a-", "a-x", "a--", "0123.deleted", "a-1.deleted", "a-²"])
def test_other_names_are_no_partition(name: str) -> None:
    assert split_name(name) is None


def test_the_topic_id_of_a_partition_folder_is_found(env: Env, tmp_path: Path) -> None:
    assert read_topic_id(env.files, str(tmp_path / "nothing")) == ZERO_UUID
    assert read_topic_id(env.files, str(tmp_path)) == ZERO_UUID
    (tmp_path / topic_id_name(TOPIC_ID)).touch()
    assert read_topic_id(env.files, str(tmp_path)) == TOPIC_ID
    (tmp_path / topic_id_name(TOPIC_ID)).rename(tmp_path / "topic-id.xyz")
    assert read_topic_id(env.files, str(tmp_path)) == ZERO_UUID
