"""The rules of the encoding, on small tables made for it."""

from __future__ import annotations

from typing import cast

import pytest

from klamm.core.env import File, FileRange
from klamm.wire import ProtocolError, Records, Struct, decode, decode_prefix, encode, encode_parts
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.schema import (
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Inner(Struct):
    x: int = int16(default=7)


class Everything(Struct, versions="0-1", flexible="1+"):
    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    unsigned: int = uint16()
    long: int = int64()
    unsigned_long: int = uint32()
    real: float = float64()
    id: bytes = uuid()
    name: str = string()
    title: str | None = string(nullable="0+", default=None)
    blob: bytes = binary()
    data: bytes | None = binary(nullable="0+", default=None)
    numbers: list[int] = array(int32)
    ids: list[bytes] | None = array(uuid, nullable="0+", default=None)
    texts: list[str] = array(string)
    inner: Inner = struct(Inner)
    records: Records | None = record_data(nullable="0+")


FULL = Everything(
    flag=True,
    tiny=-1,
    small=2,
    unsigned=65535,
    long=-2,
    unsigned_long=0xFFFFFFFF,
    real=1.5,
    id=bytes(range(16)),
    name="é",
    title="",
    blob=b"\0",
    data=b"",
    numbers=[1, -1],
    ids=[bytes(16)],
    texts=["a", ""],
    inner=Inner(x=3),
    records=b"rec",
)


class Tagged(Struct, versions="0-1", flexible="1+"):
    a: int = int32()
    word: str = string("1+", tag=0)
    inner: Inner = struct(Inner, "1+", tag=1, ignorable=True)
    maybe: Inner | None = struct(Inner, "1+", nullable="1+", default=None, tag=2)
    list_: list[int] | None = array(int32, "1+", nullable="1+", tag=5)
    number: int = int64("0+", default=-1, tag=7, tagged="1+")


class Optional(Struct, versions="0", flexible="0+"):
    inner: Inner | None = struct(Inner, nullable="0+", default=None)


class Plain(Struct, versions="0-2"):
    old: int = int32("0", default=5)
    new: int = int32("1+", ignorable=True)
    text: str | None = string(nullable="1+")


def test_every_type_in_the_old_encoding() -> None:
    expected = (
        b"\x01\xff\x00\x02\xff\xff" + b"\xff" * 7 + b"\xfe" + b"\xff" * 4 + b"\x3f\xf8" + bytes(6) + bytes(range(16))
        + b"\x00\x02\xc3\xa9" + b"\x00\x00" + b"\x00\x00\x00\x01\x00" + bytes(4)
        + b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff\xff\xff" + b"\x00\x00\x00\x01" + bytes(16)
        + b"\x00\x00\x00\x02\x00\x01a\x00\x00" + b"\x00\x03" + b"\x00\x00\x00\x03rec"
    )  # fmt: skip
    assert encode(FULL, 0) == expected
    assert decode(Everything, expected, 0) == FULL


def test_every_type_in_the_compact_encoding() -> None:
    expected = (
        b"\x01\xff\x00\x02\xff\xff" + b"\xff" * 7 + b"\xfe" + b"\xff" * 4 + b"\x3f\xf8" + bytes(6) + bytes(range(16))
        + b"\x03\xc3\xa9" + b"\x01" + b"\x02\x00" + b"\x01"
        + b"\x03\x00\x00\x00\x01\xff\xff\xff\xff" + b"\x02" + bytes(16)
        + b"\x03\x02a\x01" + b"\x00\x03\x00" + b"\x04rec" + b"\x00"
    )  # fmt: skip
    assert encode(FULL, 1) == expected
    assert decode(Everything, expected, 1) == FULL


@pytest.mark.parametrize("version", [0, 1])
def test_null_and_empty_are_kept_apart(version: int) -> None:
    null = Everything(title=None, data=None, ids=None, records=None)
    empty = Everything(title="", data=b"", ids=[], records=b"")
    assert decode(Everything, encode(null, version), version) == null
    assert decode(Everything, encode(empty, version), version) == empty
    assert null != empty


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("field", ["name", "blob", "numbers", "texts", "inner", "id", "long"])
def test_null_where_it_is_not_allowed_cannot_be_encoded(version: int, field: str) -> None:
    with pytest.raises(ProtocolError, match="Everything"):
        encode(Everything(**{field: None}), version)  # type: ignore[arg-type]


def test_null_where_this_version_does_not_allow_it_cannot_be_encoded() -> None:
    assert encode(Plain(text=None), 1) == b"\0\0\0\0\xff\xff"
    with pytest.raises(ProtocolError):
        encode(Plain(text=None), 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tiny": 128},
        {"small": 1 << 15},
        {"unsigned": -1},
        {"long": "1"},
        {"id": bytes(15)},
        {"id": bytes(17)},
        {"name": b"x"},
        {"name": "\ud800"},
        {"name": "x" * 0x8000},
        {"numbers": [1 << 31]},
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_value_that_does_not_fit_cannot_be_encoded(wrong: dict[str, object], version: int) -> None:
    with pytest.raises(ProtocolError):
        encode(Everything(**wrong), version)  # type: ignore[arg-type]


def test_the_longest_string_fits_in_both_encodings() -> None:
    long = Everything(name="x" * 0x7FFF)
    for version in (0, 1):
        assert decode(Everything, encode(long, version), version) == long


@pytest.mark.parametrize("count", [0, 8, 9, 126, 127, 128, 5000])
def test_arrays_of_any_length_come_back(count: int) -> None:
    sent = Everything(numbers=list(range(count)), texts=["t"] * count, ids=[bytes(16)] * count)
    for version in (0, 1):
        assert decode(Everything, encode(sent, version), version) == sent


def test_tuples_are_as_good_as_lists() -> None:
    for version in (0, 1):
        sent = Everything(numbers=(1, 2), texts=("a",))  # type: ignore[arg-type]
        assert encode(sent, version) == encode(Everything(numbers=[1, 2], texts=["a"]), version)
    assert encode(Tagged(list_=()), 1) == encode(Tagged(), 1)  # type: ignore[arg-type]


# Fields that a version does not have


def test_a_field_that_the_version_lacks_may_hold_its_default() -> None:
    assert encode(Plain(old=5, text="a"), 1) == b"\0\0\0\0\0\x01a"


def test_a_field_that_the_version_lacks_is_left_out_if_it_is_ignorable() -> None:
    assert encode(Plain(old=5, new=9, text=""), 0) == b"\0\0\0\x05\0\0"


def test_a_field_that_the_version_lacks_must_not_be_lost_otherwise() -> None:
    with pytest.raises(ProtocolError, match="old is set"):
        encode(Plain(old=6), 1)
    with pytest.raises(ProtocolError, match="word is set"):
        encode(Tagged(word="x"), 0)
    with pytest.raises(ProtocolError, match="maybe is set"):
        encode(Tagged(maybe=Inner()), 0)


def test_a_field_that_the_version_lacks_is_decoded_as_its_default() -> None:
    assert decode(Plain, b"\0\0\0\x09\0\0", 2) == Plain(old=5, new=9, text="")
    assert decode(Tagged, encode(Tagged(a=1), 0), 0) == Tagged(a=1)


# Tagged fields


def test_tagged_fields_with_defaults_take_one_byte() -> None:
    assert encode(Tagged(a=1), 1) == b"\0\0\0\x01\0"
    assert encode(Tagged(a=1, inner=Inner()), 1) == b"\0\0\0\x01\0"


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    full = Tagged(a=1, word="hi", inner=Inner(x=9), maybe=Inner(x=8), list_=None, number=2)
    data = (
        b"\0\0\0\x01\x05" + b"\x00\x03\x03hi" + b"\x01\x03\x00\x09\x00" + b"\x02\x04\x01\x00\x08\x00"
        + b"\x05\x01\x00" + b"\x07\x08" + bytes(7) + b"\x02"
    )  # fmt: skip
    assert encode(full, 1) == data
    assert decode(Tagged, data, 1) == full


def test_a_field_that_is_tagged_only_in_later_versions_is_plain_before() -> None:
    assert encode(Tagged(a=1, number=2), 0) == b"\0\0\0\x01" + bytes(7) + b"\x02"


def test_unknown_tagged_fields_are_skipped() -> None:
    assert decode(Tagged, b"\0\0\0\x01\x03" + b"\x00\x03\x03hi" + b"\x03\x02zz" + b"\x63\x00", 1) == Tagged(
        a=1, word="hi"
    )
    assert decode(Optional, b"\xff\x01\x0b\x03abc", 0) == Optional()


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02\x03\x00\x03\x00",  # twice
        b"\x02\x04\x00\x03\x00",  # not in order
        b"\x01\x03\x05zz",  # longer than the message
        b"\x01\x00\x04\x03hi",  # longer than its content
        b"\x01\x00\x02\x03hi",  # shorter than its content
        b"\x02\x03\x00",  # fewer than it says
        b"\x91\x4e",  # 10,001 of them
        b"\xff\xff\xff\xff\x0f",
        b"\x01\x80\x80\x80\x80\x80\x00",  # a varint without end
        b"\x01\x80\x80\x80\x80\x10\x00",  # 2**32
        b"",
    ],
)
def test_malformed_tagged_fields_are_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(Tagged, b"\0\0\0\x01" + tags, 1)
    with pytest.raises(ProtocolError):
        decode(Optional, b"\xff" + tags, 0)


def test_varints_may_have_more_bytes_than_they_need() -> None:
    assert decode(Tagged, b"\0\0\0\x01\x81\x00" + b"\x80\x00" + b"\x84\x80\x00" + b"\x83\x00hi", 1) == Tagged(
        a=1, word="hi"
    )


def test_a_nullable_struct_has_a_marker() -> None:
    assert encode(Optional(), 0) == b"\xff\0"
    assert encode(Optional(inner=Inner()), 0) == b"\x01\x00\x07\x00\x00"
    assert decode(Optional, b"\x01\x00\x07\x00\x00", 0) == Optional(inner=Inner())
    for marker in (b"\x00", b"\x02", b"\xfe", b"\x7f"):
        with pytest.raises(ProtocolError, match="marker"):
            decode(Optional, marker + b"\x00\x07\x00\x00", 0)


# The edges of the data


def test_bytes_behind_the_message_are_refused_unless_allowed() -> None:
    data = encode(Plain(text="a"), 1)
    with pytest.raises(ProtocolError, match="left over"):
        decode(Plain, data + b"\0", 1)
    assert decode(Plain, data + b"\0", 1, allow_trailing=True) == Plain(text="a")
    assert decode_prefix(Plain, b"...." + data + b"\0", 1, 4) == (Plain(text="a"), 4 + len(data))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_a_message_inside_a_larger_buffer(make: type) -> None:
    for message, version in ((Plain(text="a"), 1), (FULL, 0), (FULL, 1)):
        data = encode(message, version)
        buffer = make(b"12" + data + b"345")
        assert decode(type(message), buffer, version, 2, 2 + len(data)) == message
        assert decode(type(message), make(b"12" + data), version, 2) == message
        with pytest.raises(ProtocolError):
            decode(type(message), buffer, version, 2, 1 + len(data))


# Records


def request_with(records: Records | None) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def test_records_are_a_view_into_the_frame() -> None:
    frame = bytearray(encode(request_with(b"batch"), 9))
    records = decode(ProduceRequest, memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("B")
    assert b"Batch" in frame


def test_records_are_passed_on_without_a_copy() -> None:
    records = memoryview(bytearray(b"batch"))
    head, middle, tail = encode_parts(request_with(records), 9)
    assert middle is records
    assert isinstance(head, bytes)
    assert isinstance(tail, bytes)
    assert head + middle + tail == encode(request_with(records), 9)


def test_records_may_be_a_range_of_a_file() -> None:
    part = FileRange(cast(File, None), 100, 5)
    assert encode_parts(request_with(part), 8) == [encode(request_with(b"batch"), 8)[:-5], part]
    assert encode_parts(request_with(part), 9)[1] is part


def test_null_and_empty_records_are_not_parts_of_their_own() -> None:
    for records in (None, b""):
        for version in (3, 9):
            assert encode_parts(request_with(records), version) == [encode(request_with(records), version)]


def test_a_message_without_records_is_one_part() -> None:
    assert encode_parts(Plain(text="a"), 1) == [encode(Plain(text="a"), 1)]
