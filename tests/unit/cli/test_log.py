from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.cli import main
from klamm.core.env.real import RealFiles, real_env
from klamm.log.folder import DataFolder, SavedLog, read_state, state_line
from klamm.log.results import LogState
from klamm.records.record import Record, encode_batch

SEGMENT = "00000000000000000000.log"


def batch(base: int) -> bytes:
    return encode_batch([Record(0, 1000, b"k", b"v%d" % base)] * 2, base_offset=base, leader_epoch=0)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of a stopped broker: three batches, the second one damaged, closed cleanly."""
    folder = DataFolder.open(real_env(), str(tmp_path / "data"))
    log = SavedLog(bytes(16), LogState(0, 6, 6, 6), True)
    folder.write_state([state_line("t-0", log)], clean=True)
    folder.close()
    path = tmp_path / "data/topics/t-0"
    path.mkdir()
    content = bytearray(batch(0) + batch(2) + batch(4))
    content[len(batch(0)) + 70] ^= 1
    (path / SEGMENT).write_bytes(content)
    return path


def test_dump_shows_batches_and_records_and_tells_damage_by_its_exit_code(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "dump", str(partition / SEGMENT), "--records"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["baseOffset:", "|", "|", "baseOffset:", "baseOffset:", "|", "|"]
    assert "isvalid: false" in lines[3]


def test_dump_as_json_is_one_object_a_line(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["log", "dump", str(partition / SEGMENT), "--json"])
    assert [json.loads(line)["baseOffset"] for line in capsys.readouterr().out.splitlines()] == [0, 2, 4]


@pytest.mark.parametrize("args", [["dump", "/no/such/00000000000000000000.log"], ["dump", "notes.txt"]])
def test_a_mistake_is_one_sentence_and_exit_code_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", *args]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("klamm: ") and shown.err.count("\n") == 1


def test_repair_only_shows_until_it_is_told_to(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (partition / SEGMENT).read_bytes()
    assert main(["log", "repair", str(partition)]) == 1
    out = capsys.readouterr().out
    assert "the checksum of the batch at offset 2 is wrong" in out
    assert f"Would be lost: offsets 2 to 3, {len(batch(2))} bytes." in out
    assert "Nothing was changed" in out
    assert (partition / SEGMENT).read_bytes() == before
    assert read_state(RealFiles(), str(partition.parents[1])).logs["t-0"].clean


def test_repair_takes_the_damage_out_and_has_the_log_recovered(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "repair", str(partition), "--yes"]) == 0
    assert "Kept: " in capsys.readouterr().out
    assert main(["log", "repair", str(partition)]) == 0
    assert "is sound: 1 segments up to offset 6" in capsys.readouterr().out
    saved = read_state(RealFiles(), str(partition.parents[1])).logs["t-0"]
    assert not saved.clean and saved.state.recovery_point == 0


def test_repair_can_cut_the_log_instead(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "repair", str(partition), "--cut", "--yes"]) == 0
    assert f"Would be lost: all offsets from 2 on, {2 * len(batch(2))} bytes." in capsys.readouterr().out
    assert (partition / SEGMENT).read_bytes() == batch(0)


def test_repair_of_a_log_that_lost_its_tail_lets_it_go_on_without(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition / SEGMENT).write_bytes(batch(0))
    assert main(["log", "repair", str(partition)]) == 1
    assert "Is lost already: offsets 2 to 5" in capsys.readouterr().out
    assert main(["log", "repair", str(partition), "--yes"]) == 0
    assert main(["log", "repair", str(partition)]) == 0


def test_repair_is_refused_while_a_broker_has_the_folder(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = DataFolder.open(real_env(), str(partition.parents[1]))
    try:
        assert main(["log", "repair", str(partition), "--yes"]) == 2
        assert "is in use by another broker" in capsys.readouterr().err
    finally:
        folder.close()


def test_repair_wants_a_partitions_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "repair", str(tmp_path)]) == 2
    assert "holds no segments" in capsys.readouterr().err
    assert main(["log", "repair", str(tmp_path / "nothing")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_partitions_folder_on_its_own_can_be_repaired(partition: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    partition.rename(alone)
    assert main(["log", "repair", str(alone), "--yes"]) == 0


@pytest.mark.parametrize("name", ["metadata", "topics"])
def test_repair_leaves_alone_what_is_no_partition(
    partition: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = partition.parents[1] / name
    folder.mkdir(exist_ok=True)
    assert main(["log", "repair", str(folder), "--yes"]) == 2
    assert "is not a partition's folder" in capsys.readouterr().err


def test_check_reads_all_partitions_and_names_the_damaged_ones(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(partition.parents[1])
    assert main(["log", "check", data]) == 1
    out = capsys.readouterr().out
    assert "t-0: " in out and "checksum" in out and "1 partition" in out and "1 damaged" in out
    assert main(["log", "check", data, "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["partition"] == "t-0" and json.loads(line)["end_offset"] == 6
    assert main(["log", "repair", str(partition), "--yes"]) == 0
    capsys.readouterr()
    assert main(["log", "check", data]) == 0
    assert "all sound" in capsys.readouterr().out


def test_check_wants_the_data_folder_of_a_stopped_broker(
    partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "check", str(tmp_path)]) == 2
    assert "klamm.json" in capsys.readouterr().err
    folder = DataFolder.open(real_env(), str(partition.parents[1]))
    try:
        assert main(["log", "check", str(partition.parents[1])]) == 2
        assert "is in use by another broker" in capsys.readouterr().err
    finally:
        folder.close()


def test_dump_of_a_partitions_folder_shows_all_its_segments(
    partition: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition / "00000000000000000006.log").write_bytes(batch(6))
    assert main(["log", "dump", str(partition), "--json"]) == 1
    assert [json.loads(line)["baseOffset"] for line in capsys.readouterr().out.splitlines()] == [0, 2, 4, 6]
    assert main(["log", "dump", str(tmp_path)]) == 2
    assert "holds no segments" in capsys.readouterr().err
