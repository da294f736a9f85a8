from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from klamm.core.env.real import RealFiles
from klamm.log.dump import DumpError, as_json, as_text, entries
from klamm.log.epochs import LeaderEpochs
from klamm.log.producer_state import ProducerStates
from klamm.log.txn_index import AbortedTxn, encode_entry
from klamm.records.batch import read_header
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker

FILES = RealFiles()


def write(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def batch(base: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(base + i, 1000 + i, b"k%d" % i, value, (("h", b"x"),)) for i, value in enumerate(values)]
    return encode_batch(
        records, base_offset=base, codec=codec, producer_id=7, producer_epoch=1, base_sequence=base, leader_epoch=3
    )


def test_batches_are_shown_with_kafkas_names(tmp_path: Path) -> None:
    first, second = batch(0, b"a", b"b"), batch(2, b"c", codec=Codec.GZIP)
    path = write(tmp_path, "00000000000000000000.log", first + second)
    one, two = entries(FILES, path)
    assert one == {
        "baseOffset": 0, "lastOffset": 1, "count": 2, "baseSequence": 0, "lastSequence": 1, "producerId": 7,
        "producerEpoch": 1, "partitionLeaderEpoch": 3, "isTransactional": False, "isControl": False, "position": 0,
        "CreateTime": 1001, "size": len(first), "magic": 2, "compresscodec": "none", "crc": read_header(first).crc,
        "isvalid": True,
    }  # fmt: skip
    assert (two["position"], two["compresscodec"]) == (len(first), "gzip")
    assert as_text(one).startswith("baseOffset: 0 lastOffset: 1 count: 2 ")
    assert "isTransactional: false" in as_text(one)


def test_records_are_shown_when_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000000.log", batch(5, b"hello", codec=Codec.ZSTD))
    _, record = entries(FILES, path, records=True)
    assert as_text(record) == (
        "| offset: 5 CreateTime: 1000 keySize: 2 valueSize: 5 sequence: 5 headers: [h=x] key: k0 payload: hello"
    )
    assert json.loads(as_json(record))["headers"] == [["h", "x"]]


def test_control_records_are_shown_as_what_they_are(tmp_path: Path) -> None:
    marker = encode_end_marker(EndMarker(ControlType.ABORT, 9), producer_id=7, producer_epoch=1, timestamp=5)
    path = write(tmp_path, "00000000000000000000.log", marker)
    header, record = entries(FILES, path, records=True)
    assert header["isControl"] and header["isTransactional"]
    assert (record["endTxnMarker"], record["coordinatorEpoch"]) == ("ABORT", 9)


def test_bytes_that_are_no_text_are_legible_and_base64_in_json(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000000.log", batch(0, b"\xff\x00"))
    _, record = entries(FILES, path, records=True)
    assert as_text(record).endswith("payload: \\xff\\x00")
    assert json.loads(as_json(record))["payload"] == {"base64": "/wA="}


def test_a_wrong_checksum_is_shown_and_reading_goes_on(tmp_path: Path) -> None:
    bad = bytearray(batch(0, b"a"))
    bad[-1] ^= 1
    one, two = entries(FILES, write(tmp_path, "00000000000000000000.log", bytes(bad) + batch(1, b"b")), records=False)
    assert one["isvalid"] is False and "checksum" in one["error"]
    assert two["isvalid"] is True and two["baseOffset"] == 1


@pytest.mark.parametrize("rest", [b"torn", bytes(100), batch(1, b"x")[:-3]])
def test_a_tail_that_is_no_batch_is_shown(tmp_path: Path, rest: bytes) -> None:
    one, tail = entries(FILES, write(tmp_path, "00000000000000000000.log", batch(0, b"a") + rest))
    assert one["isvalid"]
    assert tail["position"] == one["size"] and tail["error"]


def test_indexes_show_absolute_offsets(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000100.index", struct.pack(">iiii", 3, 4096, 9, 8192))
    assert [as_text(e) for e in entries(FILES, path)] == ["offset: 103 position: 4096", "offset: 109 position: 8192"]
    path = write(tmp_path, "00000000000000000100.timeindex", struct.pack(">qiqi", 1000, 3, 2000, 9) + bytes(12))
    assert [as_text(e) for e in entries(FILES, path)] == [
        "timestamp: 1000 offset: 103", "timestamp: 2000 offset: 109",
    ]  # fmt: skip


def test_the_other_files_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000000.txnindex", encode_entry(AbortedTxn(1, 2, 3, 4)) + b"torn")
    entry, torn = entries(FILES, path)
    assert as_text(entry) == "version: 0 producerId: 1 firstOffset: 2 lastOffset: 3 lastStableOffset: 4"
    assert torn == {"position": 34, "error": "4 bytes at the end are no whole entry"}

    epochs = LeaderEpochs()
    epochs.assign(4, 10)
    assert list(entries(FILES, write(tmp_path, "leader-epoch-checkpoint", epochs.dump()))) == [
        {"epoch": 4, "startOffset": 10}
    ]

    states = ProducerStates()
    states.update(read_header(batch(0, b"a", b"b")), 0, 1, 77)
    summary, producer = entries(FILES, write(tmp_path, "00000000000000000002.snapshot", states.snapshot(2)))
    assert summary == {"snapshotOffset": 2, "producers": 1}
    assert producer["producerId"] == 7 and producer["lastSeenMs"] == 77
    assert json.loads(as_json(producer))["batches"][0]["last_offset"] == 1


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "00000000000000000002.snapshot", "00000000000000000002.txnindex"]
)
def test_damage_in_a_small_file_is_an_entry(tmp_path: Path, name: str) -> None:
    assert "error" in list(entries(FILES, write(tmp_path, name, b"\x01" * 40)))[-1]


@pytest.mark.parametrize("name", ["notes.txt", "x.log", "state.json", "00000000000000000000", "1.log2"])
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(DumpError, match=r"is none of the files a log consists of"):
        entries(FILES, write(tmp_path, name, b""))


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"cannot be read: No such file or directory\.$"):
        entries(FILES, str(tmp_path / "00000000000000000000.log"))


def test_empty_files_have_no_entries(tmp_path: Path) -> None:
    for suffix in ("log", "index", "timeindex", "txnindex"):
        assert list(entries(FILES, write(tmp_path, f"00000000000000000000.{suffix}", b""))) == []
