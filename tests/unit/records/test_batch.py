"""Batch headers: what is read, refused and changed in place."""

import struct
import subprocess
import sys

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch

from klamm.core.errors import ErrorCode
from klamm.records import batch
from klamm.records.batch import BatchError, BatchHeader, CorruptBatch
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, decode_records, encode_batch, encode_end_marker

RECORDS = [Record(i, 1_000 + i, b"k%d" % i, b"v" * i) for i in range(3)]


def resealed(data: bytes, **changes: int) -> bytearray:
    """The batch with other header fields and a checksum that fits them; the length stays unless it is named."""
    header = batch.read_header(data)._replace(**changes)
    out = bytearray(batch.seal(header, data[batch.header_bytes :]))
    if "batch_length" in changes:
        struct.pack_into(">i", out, 8, changes["batch_length"])
    return out


def refusal(data: bytes | bytearray, **kwargs: bool) -> ErrorCode:
    with pytest.raises(BatchError) as caught:
        batch.validate(data, 0, batch.read_header(data), **kwargs)
    return caught.value.code


def test_a_header_is_read_where_it_stands() -> None:
    data = encode_batch(RECORDS, base_offset=7, producer_id=5, producer_epoch=2, base_sequence=9, leader_epoch=3)
    header = batch.read_header(b"pad" + data, 3)
    assert header == BatchHeader(7, len(data) - 12, 3, 2, header.crc, 0, 2, 1_000, 1_002, 5, 2, 9, 3)
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(data), 9, 10, 11)
    assert (header.codec, header.is_transactional, header.is_control, header.is_log_append_time) == (0, 0, 0, 0)
    assert AiokafkaBatch(data).crc == header.crc


def test_the_attribute_bits_are_told_apart() -> None:
    data = encode_batch(RECORDS, codec=Codec.ZSTD, transactional=True, log_append_time=True)
    header = batch.read_header(data)
    assert (header.codec, header.is_transactional, header.is_control, header.is_log_append_time) == (4, 1, 0, 1)
    assert batch.read_header(encode_batch(RECORDS, control=True)).is_control


def test_sequences_wrap_to_zero_after_the_largest_and_stay_away_without_one() -> None:
    header = batch.read_header(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE))
    assert header.last_sequence == 0
    assert batch.read_header(encode_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize("size", [0, 1, 60])
def test_too_few_bytes_for_a_header_are_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        batch.read_header(encode_batch(RECORDS)[:size])


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48])
def test_a_length_below_a_headers_is_corrupt(length: int) -> None:
    data = resealed(encode_batch(RECORDS), batch_length=length)
    with pytest.raises(CorruptBatch):
        batch.read_header(data)
    with pytest.raises(CorruptBatch):
        list(batch.iter_batches(data))


def test_batches_are_walked_up_to_a_partial_one() -> None:
    first, second = encode_batch(RECORDS), encode_batch(RECORDS[:1], base_offset=3)
    data = first + second + first
    starts = [0, len(first), len(first) + len(second)]
    assert [pos for pos, _ in batch.iter_batches(data)] == starts
    assert [header.base_offset for _, header in batch.iter_batches(memoryview(data))] == [0, 3, 0]
    assert [pos for pos, _ in batch.iter_batches(data, starts[1])] == starts[1:]
    for cut in (1, len(first) - 61, len(first) - 60, len(first) - 1):
        assert [pos for pos, _ in batch.iter_batches(data[:-cut])] == starts[:2]
        assert [pos for pos, _ in batch.iter_batches(data, 0, len(data) - cut)] == starts[:2]
    assert list(batch.iter_batches(b"")) == []


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_is_accepted_from_any_buffer(make, codec: Codec) -> None:  # type: ignore[no-untyped-def]
    data = make(b"x" + encode_batch(RECORDS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0) + b"y")
    batch.validate(data, 1, batch.read_header(data, 1))


def test_one_changed_byte_anywhere_under_the_checksum_is_noticed() -> None:
    data = bytearray(encode_batch(RECORDS))
    header = batch.read_header(data)
    for pos in range(batch.crc_start, len(data)):
        data[pos] ^= 0x10
        with pytest.raises(CorruptBatch):
            batch.validate(data, 0, header)
        data[pos] ^= 0x10


def test_a_batch_that_is_longer_than_its_buffer_is_corrupt() -> None:
    data = encode_batch(RECORDS)
    assert refusal(data[:-1]) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(resealed(data, batch_length=len(data))) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_only_format_v2_is_accepted(magic: int) -> None:
    assert refusal(resealed(encode_batch(RECORDS), magic=magic)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "count, last_delta", [(0, -1), (0, 2), (2, 2), (3, 3), (4, 2), (-1, -2), (-1, 2), (1 << 30, (1 << 30) - 1)]
)
def test_the_record_count_must_fit_offsets_and_bytes(count: int, last_delta: int) -> None:
    data = resealed(encode_batch(RECORDS), record_count=count, last_offset_delta=last_delta)
    assert refusal(data) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert refusal(data, from_client=False) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_has_an_error_of_its_own(codec: int) -> None:
    assert refusal(resealed(encode_batch(RECORDS), attributes=codec)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_clients_write_neither_control_batches_nor_append_times() -> None:
    marker = encode_end_marker(EndMarker(ControlType.COMMIT, 1), producer_id=1, producer_epoch=0, timestamp=5)
    assert refusal(marker) == ErrorCode.INVALID_RECORD
    batch.validate(marker, 0, batch.read_header(marker), from_client=False)
    stamped = encode_batch(RECORDS, log_append_time=True)
    assert refusal(stamped) == ErrorCode.INVALID_TIMESTAMP
    batch.validate(stamped, 0, batch.read_header(stamped), from_client=False)


def test_a_producer_id_needs_a_sequence() -> None:
    assert refusal(encode_batch(RECORDS, producer_id=1, producer_epoch=0)) == ErrorCode.INVALID_RECORD


def test_a_compacted_batch_passes_the_check_for_stored_batches_only() -> None:
    data = resealed(encode_batch(RECORDS), last_offset_delta=9)
    batch.check(data, 0, batch.read_header(data))
    assert refusal(data) == ErrorCode.INVALID_RECORD
    empty = resealed(encode_batch(RECORDS)[: batch.header_bytes], record_count=0)
    batch.check(empty, 0, batch.read_header(empty))
    assert decode_records(empty) == []


def test_offset_and_epoch_are_assigned_without_breaking_the_checksum() -> None:
    data = bytearray(b"pad" + encode_batch(RECORDS))
    batch.assign(memoryview(data), 3, 1 << 40, 77)
    header = batch.read_header(data, 3)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 77)
    batch.validate(data, 3, header)
    assert bytes(data[23:]) == encode_batch(RECORDS)[20:]
    assert [record.offset for record in decode_records(data, 3)] == [(1 << 40) + i for i in range(3)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_append_time_counts_for_all_records(codec: Codec) -> None:
    data = bytearray(b"pad" + encode_batch(RECORDS, codec=codec))
    batch.stamp_append_time(data, 3, 123_456)
    header = batch.read_header(data, 3)
    assert (header.is_log_append_time, header.max_timestamp, header.codec) == (True, 123_456, codec)
    batch.validate(data, 3, header, from_client=False)
    assert {record.timestamp for record in decode_records(data, 3)} == {123_456}
    oracle = AiokafkaBatch(bytes(data[3:]))
    assert oracle.validate_crc()
    assert {record.timestamp for record in oracle} == {123_456}


def test_the_checksum_is_loaded_without_what_its_package_drags_in() -> None:
    script = (
        "import sys, klamm.records.batch as b; assert b.crc32c(b'123456789') == 0xE3069283;"
        "assert 'importlib.metadata' not in sys.modules; import crc32c; assert crc32c.crc32c is b.crc32c"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
