"""Zig-zag varints, as records use them for lengths and deltas.

Reading is strict: at most 5 bytes for 32 bits and 10 for 64, and no bits beyond those. A read past the end of the
buffer raises IndexError, anything else that is wrong ValueError; callers turn both into the error of their format.
"""

from __future__ import annotations

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

_MIN64 = -(1 << 63)
_MAX64 = (1 << 63) - 1


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A signed 32-bit number and the position behind it."""
    byte = data[pos]
    if byte < 0x80:  # most lengths and deltas are small
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return _read_long_form(data, pos, 32)


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """A signed 64-bit number and the position behind it."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    return _read_long_form(data, pos, 64)


def _read_long_form(data: bytes, pos: int, bits: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, bits, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), pos
    raise ValueError(f"a varint of more than {bits} bits")


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed number of up to 64 bits (the encodings of both widths are the same)."""
    assert _MIN64 <= value <= _MAX64, value
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
