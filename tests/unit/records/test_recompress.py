from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.core.errors import ErrorCode
from klamm.records.batch import BatchError, read_header, seal
from klamm.records.compression import Codec, Compression
from klamm.records.recompress import MAX_RECORDS, recompress
from klamm.records.record import Record, decode_records, encode_batch

codecs = st.sampled_from(list(Codec))
maybe_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 2**41),
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=20), codecs, codecs)
def test_nothing_changes_but_the_codec(given_records: list[Record], before: Codec, after: Codec) -> None:
    original = encode_batch(
        given_records, base_offset=7, codec=before, producer_id=5, producer_epoch=2, base_sequence=40, leader_epoch=3
    )
    kept = bytes(original)
    result = recompress(original, Compression(after))
    assert original == kept
    assert decode_records(result) == decode_records(original)
    old, new = read_header(original), read_header(result)
    assert new.codec == after
    assert old.attributes & ~7 == new.attributes & ~7
    assert new._replace(batch_length=0, crc=0, attributes=0) == old._replace(batch_length=0, crc=0, attributes=0)


@pytest.mark.parametrize(
    ("wanted", "worse"),
    [
        (Compression(Codec.GZIP, 9), Compression(Codec.GZIP, 1)),
        (Compression(Codec.LZ4, 12), Compression(Codec.LZ4)),
        (Compression(Codec.ZSTD, 19), Compression(Codec.ZSTD, -50)),
    ],
)
def test_a_level_is_honoured(wanted: Compression, worse: Compression) -> None:
    text = " ".join(str(i * i % 977) for i in range(5000)).encode()
    original = encode_batch([Record(0, 1, None, text)])
    assert len(recompress(original, wanted)) < len(recompress(original, worse)) < len(original)


def code_of(data: bytes, max_bytes: int = 1 << 20) -> ErrorCode:
    with pytest.raises(BatchError) as raised:
        recompress(data, Compression(Codec.LZ4), max_bytes)
    return raised.value.code


def test_a_damaged_batch_is_not_given_a_new_checksum() -> None:
    batch = bytearray(encode_batch([Record(0, 1, None, b"x" * 100)]))
    batch[-1] ^= 1
    assert code_of(bytes(batch)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("payload", [b"no records at all", b"\x10" + b"x" * 9, b"\x01" + b"x" * 20, b"\xff" * 20])
def test_a_payload_that_is_not_the_records_it_counts_is_refused(payload: bytes) -> None:
    header = read_header(encode_batch([Record(0, 1, None, None)]))
    assert code_of(seal(header, payload)) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_holds_too_much_is_refused() -> None:
    bomb = encode_batch([Record(0, 1, None, bytes(1 << 20))], codec=Codec.ZSTD)
    assert len(bomb) < 1000
    assert code_of(bomb, 1 << 19) == ErrorCode.MESSAGE_TOO_LARGE


def test_two_batches_are_not_one() -> None:
    batch = encode_batch([Record(0, 1, None, b"x")])
    assert code_of(batch + batch) == ErrorCode.INVALID_RECORD


def test_more_records_than_anybody_walks_over_are_refused_unseen() -> None:
    small = encode_batch([Record(0, 0, None, b"")], codec=Codec.ZSTD)
    count = MAX_RECORDS + 1
    many = seal(read_header(small)._replace(record_count=count, last_offset_delta=count - 1), small[61:])
    with pytest.raises(BatchError, match="at most") as refused:
        recompress(many, Compression(Codec.LZ4))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
