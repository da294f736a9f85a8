"""Input that nobody should send: ProtocolError and nothing else, little memory, no hang."""

from __future__ import annotations

import gc
import importlib.util
import tracemalloc
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from wire_messages import all_messages, all_versions, random_message

from klamm.wire import ProtocolError, Struct, decode, encode, versions_of
from klamm.wire.messages.k00_produce import ProduceRequest
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from klamm.wire.messages.k19_create_topics import CreateTopicsRequest
from klamm.wire.runtime import MAX_ELEMENTS
from klamm.wire.schema import array, int8, int32

FUZZ_CASES = 20_000


def fuzz_target() -> ModuleType:
    path = Path(__file__).parents[2] / "fuzz" / "wire_target.py"
    spec = importlib.util.spec_from_file_location("wire_target", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_and_damaged_messages_end_in_a_message_or_a_protocol_error() -> None:
    target = fuzz_target()
    rng = Random(20_000)
    for _ in range(FUZZ_CASES):
        target.check(target.make_case(rng))


@pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)
def test_a_message_that_was_cut_short_anywhere_is_refused(message: type[Struct]) -> None:
    for version in versions_of(message):
        data = encode(random_message(Random(version), message, version), version)
        for size in range(min(len(data), 400)):
            with pytest.raises(ProtocolError):
                decode(message, data[:size], version)
            with pytest.raises(ProtocolError):
                decode(message, data, version, 0, size)


def test_lengths_that_the_message_cannot_hold_allocate_nothing() -> None:
    """Every place of a message gets every kind of absurd length; what is in the frame bounds the memory."""
    absurd = [b"\x7f\xff\xff\xff", b"\x00\x0f\x42\x40", b"\xff\xff\xff\xff\x07", b"\x80\x80\x40", b"\x7f\xff"]
    cases = []
    for message, version in all_versions():
        data = encode(random_message(Random(7), message, version), version)[:300]
        for at in range(0, len(data), 9):
            cases += [(message, version, data[:at] + length + data[at:]) for length in absurd]
        decoding(message, version, data)  # compile it before memory is measured
    gc.collect()
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        for message, version, data in cases:
            decoding(message, version, data)
        peak = tracemalloc.get_traced_memory()[1] - base
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def decoding(message: type[Struct], version: int, data: bytes) -> None:
    try:
        decode(message, data, version)
    except ProtocolError:
        pass


class Numbers(Struct, versions="0-1", flexible="1+"):
    tiny: list[int] = array(int8)
    large: list[int] = array(int32)


class Row(Struct):
    values: list[int] = array(int8)


class Rows(Struct, versions="0", flexible="0+"):
    rows: list[Row] = array(Row)


def test_an_array_may_have_as_many_elements_as_the_limit_and_no_more() -> None:
    for version, length in ((0, lambda count: count.to_bytes(4, "big")), (1, varint_plus_one)):
        end = b"\0\0\0\0" if version == 0 else b"\x01\0"
        assert len(decode(Numbers, length(MAX_ELEMENTS) + bytes(MAX_ELEMENTS) + end, version).tiny) == MAX_ELEMENTS
        with pytest.raises(ProtocolError, match="tiny"):
            decode(Numbers, length(MAX_ELEMENTS + 1) + bytes(MAX_ELEMENTS + 1) + end, version)


def varint_plus_one(count: int) -> bytes:
    count += 1
    out = bytearray()
    while count > 127:
        out.append(count & 127 | 128)
        count >>= 7
    return bytes([*out, count])


def test_the_limit_counts_the_elements_of_all_arrays_together() -> None:
    half = 500_000
    row = varint_plus_one(half) + bytes(half) + b"\0"
    assert len(decode(Rows, b"\x02" + row + b"\0", 0).rows[0].values) == half
    with pytest.raises(ProtocolError, match="values"):
        decode(Rows, b"\x03" + row + row + b"\0", 0)


@pytest.mark.parametrize("length", [-1, -2, -(1 << 31)])
def test_negative_lengths_are_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="tiny"):
        decode(Numbers, length.to_bytes(4, "big", signed=True) + bytes(8), 0)
    if length < -1:
        with pytest.raises(ProtocolError, match="negative"):
            decode(MetadataRequest, length.to_bytes(4, "big", signed=True), 1)


def test_null_where_it_is_not_allowed_is_refused() -> None:
    with pytest.raises(ProtocolError, match="tiny must not be null"):
        decode(Numbers, b"\0\x01\0", 1)
    with pytest.raises(ProtocolError, match="name must not be null"):
        decode(MetadataRequest, b"\0\0\0\x01\xff\xff", 0)
    with pytest.raises(ProtocolError, match="topics must not be null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)
    assert decode(MetadataRequest, b"\xff\xff\xff\xff", 1).topics is None


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_text_that_is_not_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="MetadataRequest v0"):
        decode(MetadataRequest, b"\0\0\0\x01" + len(text).to_bytes(2, "big") + text, 0)
    produce = b"\0" + len(text).to_bytes(1, "big") + text
    with pytest.raises(ProtocolError, match="ProduceRequest v3"):
        decode(ProduceRequest, produce + bytes(10), 3)


def test_a_string_longer_than_kafka_allows_is_refused_in_the_compact_encoding_too() -> None:
    data = b"\x02" + varint_plus_one(0x8000) + b"x" * 0x8000 + bytes(20)
    with pytest.raises(ProtocolError, match="too long"):
        decode(CreateTopicsRequest, data, 5)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="no version"):
        decode(MetadataResponse, b"", version)
