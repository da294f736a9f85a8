"""Records in and out of batches, held against two other implementations."""

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
)
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from klamm.core.errors import ErrorCode
from klamm.records import batch, decoding, encoding
from klamm.records.batch import BatchError, CorruptBatch
from klamm.records.compression import Codec
from klamm.records.record import (
    ControlType,
    EndMarker,
    Record,
    decode_control,
    decode_records,
    encode_batch,
    encode_end_marker,
)
from support.tools import unavailable

SAMPLES = [
    Record(0, 5_000, b"key", b"value", (("h", b"1"), ("ü", None), ("", b""))),
    Record(1, 4_000, None, None),  # older than the first: a negative delta
    Record(2, 5_000, b"", b""),
    Record(3, 1_700_000_000_000, b"k" * 200, b"v" * 20_000, (("h", b"1"), ("h", b"2"))),
    *(Record(i, 5_000 + i, b"k%d" % i, b"some text, some text " * 20) for i in range(4, 200)),
]

blobs = st.none() | st.binary(max_size=40)
drafts = st.tuples(
    st.integers(-1, 1 << 42), blobs, blobs, st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3).map(tuple)
)


@pytest.fixture(params=["native", "pure"], scope="module", autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of this holds for the native kernel and for its twin."""
    functions: Any = SimpleNamespace(decode_payload=decoding.decode_payload, encode_payload=encoding.encode_payload)
    if request.param == "native":
        try:
            from klamm.records._native import kernel as functions
        except ImportError:
            unavailable("the native kernel is not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klamm.records.record.decode_payload", functions.decode_payload)
        patch.setattr("klamm.records.record.encode_payload", functions.encode_payload)
        yield


def numbered(rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]) -> list[Record]:
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def as_records(oracle) -> list[Record]:  # type: ignore[no-untyped-def]
    return [
        Record(
            r.offset,
            r.timestamp,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            tuple(r.headers),
        )
        for r in oracle
    ]


def built_by(builder, records: list[Record], codec: int = 0) -> bytes:  # type: ignore[no-untyped-def]
    out = builder(2, codec, False, -1, -1, -1, 1 << 24)
    for record in records:
        added = out.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        assert added is not None
    return bytes(out.build())


@pytest.mark.parametrize("builder", [AiokafkaBuilder, KafkaPythonBuilder])
@settings(deadline=None, max_examples=100)
@given(rows=st.lists(drafts, min_size=1, max_size=8))
def test_a_plain_batch_is_byte_for_byte_what_others_write(builder, rows) -> None:  # type: ignore[no-untyped-def]
    if builder is AiokafkaBuilder:
        rows = [(max(timestamp, 0), *rest) for timestamp, *rest in rows]  # -1 is "not set yet" in there
    records = numbered(rows)
    theirs = built_by(builder, records)
    ours = encode_batch(records, leader_epoch=batch.read_header(theirs).leader_epoch)
    assert ours == theirs
    assert decode_records(theirs) == records


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_exchanged_with_aiokafka(codec: Codec) -> None:
    theirs = built_by(AiokafkaBuilder, SAMPLES, codec)
    assert batch.read_header(theirs).codec == codec
    batch.validate(theirs, 0, batch.read_header(theirs))
    assert decode_records(theirs) == SAMPLES
    for xerial in (True, False):
        oracle = AiokafkaBatch(encode_batch(SAMPLES, codec=codec, xerial=xerial))
        assert oracle.validate_crc()
        assert as_records(oracle) == SAMPLES


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])  # what it has without further packages
def test_codecs_are_exchanged_with_kafka_python(codec: Codec) -> None:
    assert decode_records(built_by(KafkaPythonBuilder, SAMPLES, codec)) == SAMPLES
    oracle = KafkaPythonBatch(encode_batch(SAMPLES, codec=codec))
    assert oracle.validate_crc()
    assert as_records(oracle) == SAMPLES


@settings(deadline=None, max_examples=200)
@given(
    st.lists(drafts, min_size=1, max_size=20), st.sampled_from(Codec), st.integers(0, 1 << 50), st.booleans(), st.data()
)
def test_records_come_back_as_they_went_in(rows, codec, base_offset, xerial, data) -> None:  # type: ignore[no-untyped-def]
    records = [record._replace(offset=base_offset + record.offset) for record in numbered(rows)]
    producer = data.draw(st.none() | st.tuples(st.integers(0, 1 << 40), st.integers(0, 9), st.integers(0, 1 << 30)))
    fields = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True)) if producer else {}
    encoded = encode_batch(records, base_offset=base_offset, codec=codec, xerial=xerial, leader_epoch=4, **fields)
    header = batch.read_header(encoded)
    batch.validate(encoded, 0, header)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert decode_records(b"x" + encoded + b"y", 1) == records


def test_a_batch_that_others_mark_is_read_by_them_as_marked() -> None:
    encoded = encode_batch(
        SAMPLES, base_offset=9, producer_id=3, producer_epoch=1, base_sequence=5, transactional=True, codec=Codec.LZ4
    )
    oracle = KafkaPythonBatch(encoded)
    assert (oracle.is_transactional, oracle.is_control_batch) == (True, False)
    assert (oracle.base_offset, oracle.producer_id, oracle.producer_epoch, oracle.base_sequence) == (9, 3, 1, 5)
    assert (oracle.last_offset, oracle.last_sequence) == (9 + len(SAMPLES) - 1, 5 + len(SAMPLES) - 1)


def test_the_cap_on_uncompressed_bytes_is_the_callers() -> None:
    for codec in Codec:
        with pytest.raises(BatchError) as caught:
            decode_records(encode_batch(SAMPLES, codec=codec), max_bytes=1_000)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_offsets_may_have_gaps_after_compaction_but_must_grow() -> None:
    encoded = encode_batch(numbered([(0, b"a", b"", ()), (0, b"b", b"", ())]))
    body = bytearray(encoded[batch.header_bytes :])
    record_bytes = len(body) // 2
    for delta, sound in ((0, False), (1, True), (7, True), (8, False)):
        body[record_bytes + 3] = delta << 1  # behind length, attributes and timestamp delta
        data = batch.seal(batch.read_header(encoded)._replace(last_offset_delta=7), body)
        if sound:
            assert [record.offset for record in decode_records(data)] == [0, delta]
        else:
            with pytest.raises(CorruptBatch):
                decode_records(data)


def sealed(body: bytes, count: int = 1, attributes: int = 0) -> bytes:
    header = batch.read_header(encode_batch([Record(0, 0, None, None)]))
    return batch.seal(header._replace(record_count=count, last_offset_delta=count - 1, attributes=attributes), body)


@pytest.mark.parametrize(
    "body, count",
    [
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1),  # a byte too many behind the last record
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1),  # a byte too many inside of it
        (b"\x0a\x00\x00\x00\x01\x01\x00", 1),  # shorter than its fields
        (b"\x10\x00\x00\x00\x01\x01\x00", 1),  # longer than the batch
        (b"\x01\x00\x00\x00\x01\x01\x00", 1),  # a negative length
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key of -2 bytes
        (b"\x0c\x00\x00\x00\x40\x01\x00", 1),  # a key longer than the record
        (b"\x0c\x00\x00\x00\x01\x40\x00", 1),  # a value longer than the record
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # -1 headers
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1),  # a header without bytes
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),  # a header key that is null
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1),  # a header key that is no UTF-8
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1),  # an offset delta of -1
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2),  # fewer records than counted
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1),  # more records than counted
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", 1),  # an endless varint
        (b"\x80\x80\x80\x80\x80\x80\x80", 1),
        (b"\x24\x00" + b"\xff" * 9 + b"\x01" + b"\x00\x01\x01\x00" + bytes(4), 1),
    ],
)
def test_records_that_do_not_add_up_are_corrupt(body: bytes, count: int) -> None:
    assert decode_records(sealed(b"\x0c\x00\x00\x00\x01\x01\x00")) == [Record(0, 0, None, None)]
    with pytest.raises(CorruptBatch):
        decode_records(sealed(body, count))


def test_timestamps_beyond_64_bits_are_corrupt() -> None:
    encoded = encode_batch([Record(0, 10, None, None), Record(1, 20, None, None)])
    data = batch.seal(batch.read_header(encoded)._replace(base_timestamp=(1 << 63) - 5), encoded[batch.header_bytes :])
    with pytest.raises(CorruptBatch):
        decode_records(data)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(Codec), st.booleans(), st.booleans(), st.data())
def test_damaged_batches_raise_nothing_but_our_errors(codec: Codec, xerial: bool, reseal: bool, data) -> None:  # type: ignore[no-untyped-def]
    damaged = bytearray(encode_batch(SAMPLES[:6], codec=codec, xerial=xerial))
    for _ in range(data.draw(st.integers(1, 5))):
        pos = data.draw(st.integers(0, min(140, len(damaged) - 1)) | st.integers(0, len(damaged) - 1))
        damaged[pos] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        header = batch.read_header(damaged)
        if reseal:  # so that what lies behind the checksum is reached
            damaged = bytearray(batch.seal(header._replace(magic=2), damaged[batch.header_bytes :]))
            header = batch.read_header(damaged)
        for check in (batch.check, batch.validate):
            try:
                check(damaged, 0, header)
            except BatchError:
                pass
        assert len(decode_records(damaged, max_bytes=1 << 20)) == header.record_count
    except BatchError:
        pass


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_an_end_marker_is_understood_by_others_and_by_us(kind: ControlType) -> None:
    encoded = encode_end_marker(
        EndMarker(kind, 12), producer_id=7, producer_epoch=3, timestamp=99, base_offset=5, leader_epoch=2
    )
    header = batch.read_header(encoded)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.base_offset, header.leader_epoch) == (7, 3, 5, 2)
    (record,) = decode_records(encoded)
    assert (record.offset, record.timestamp) == (5, 99)
    assert decode_control(record) == EndMarker(kind, 12)
    (theirs,) = KafkaPythonBatch(encoded)
    assert (theirs.abort, theirs.commit) == (kind == ControlType.ABORT, kind == ControlType.COMMIT)


def test_other_control_records_are_left_alone_and_damaged_ones_refused() -> None:
    def control(key: bytes | None, value: bytes | None) -> EndMarker | None:
        return decode_control(Record(0, 0, key, value))

    assert control(struct.pack(">hh", 0, ControlType.LEADER_CHANGE), b"") is None
    assert control(struct.pack(">hh", 0, 99), None) is None
    assert control(struct.pack(">hh", 1, 1), struct.pack(">hi", 1, 4) + b"new") == EndMarker(ControlType.COMMIT, 4)
    for key, value in (
        (None, b""),
        (b"\0\0\0", b""),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 4)),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 0), b"\0\0\0\0\0"),
    ):
        with pytest.raises(CorruptBatch):
            control(key, value)
