"""Zig-zag varints."""

import pytest
from aiokafka.record.util import decode_varint_py, encode_varint_py
from hypothesis import given
from hypothesis import strategies as st

from klamm.records.varint import read_varint, read_varlong, write_varint

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def encoded(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@given(INT64)
def test_a_number_comes_back_and_is_written_as_another_implementation_writes_it(value: int) -> None:
    data = encoded(value)
    oracle = bytearray()
    encode_varint_py(value, oracle.append)
    assert data == oracle
    assert read_varlong(b"x" + data, 1) == (value, 1 + len(data))
    assert decode_varint_py(bytearray(data)) == (value, len(data))


@given(INT32)
def test_a_32_bit_number_takes_at_most_five_bytes(value: int) -> None:
    data = encoded(value)
    assert len(data) <= 5
    assert read_varint(data, 0) == (value, len(data))


@given(INT64)
def test_a_64_bit_number_is_refused_where_32_bits_are_meant(value: int) -> None:
    data = encoded(value)
    if -(1 << 31) <= value < 1 << 31:
        assert read_varint(data, 0) == (value, len(data))
    else:
        with pytest.raises(ValueError):
            read_varint(data, 0)


@pytest.mark.parametrize("read", [read_varint, read_varlong])
def test_an_endless_varint_is_refused(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        read(b"\xff" * 1000, 0)
    with pytest.raises(ValueError):
        read(b"\x80" * 1000, 0)
    with pytest.raises(IndexError):
        read(b"\x80\x80", 0)


def test_bits_beyond_the_width_are_refused() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (-(1 << 31), 5)
    with pytest.raises(ValueError):
        read_varint(b"\xff\xff\xff\xff\x1f", 0)
    assert read_varlong(b"\xff" * 9 + b"\x01", 0) == (-(1 << 63), 10)
    with pytest.raises(ValueError):
        read_varlong(b"\xff" * 9 + b"\x02", 0)
