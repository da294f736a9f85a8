"""What generated code calls: the rare and the long cases, which are not worth inlining.

Every function that reads checks against `end` before it takes anything. Nothing here allocates by a length it
has not checked.
"""

from __future__ import annotations

from struct import pack as pack_values
from struct import unpack_from as unpack_values
from typing import TYPE_CHECKING, NoReturn

from klamm.wire.errors import ProtocolError

if TYPE_CHECKING:
    from klamm.core.env import Buffer

MAX_ELEMENTS = 1_000_000
"""Array elements in one message, all its arrays together: bounds the memory a small frame can ask for."""

MAX_TAGS = 10_000
"""Tagged fields in one struct."""

MAX_STRING_BYTES = 0x7FFF
"""Kafka's limit for a string in every version, although compact lengths could say more."""


BYTES = tuple(bytes((value,)) for value in range(128))
"""Varints of one byte."""

__all__ = ("pack_values", "unpack_values")  # for generated code; their names say what they are for there


def more_varint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte had its high bit set: (value, position after it)."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise ProtocolError("a length does not fit into 31 bits")
            return value, pos
    raise ProtocolError("a varint is longer than five bytes")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else more_varint(buf, pos + 1, first)


def more_string(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """`more_varint` for the length + 1 of a string."""
    value, pos = more_varint(buf, pos, first)
    if value > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"a string of {value - 1} bytes is too long")
    return value, pos


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Pass over tagged fields that the table does not know; the position after them."""
    if count > 0x7F:
        count, pos = more_varint(buf, pos, count)
        check_tags(count)
    previous = -1
    for _ in range(count):
        previous, pos, stop = tag_head(buf, pos, end, previous)
        pos = stop
    return pos


def check_tags(count: int) -> None:
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields are too many")


def tag_head(buf: Buffer, pos: int, end: int, previous: int) -> tuple[int, int, int]:
    """(tag, where its value starts, where it ends). Tags come in ascending order, each once."""
    tag, pos = read_varint(buf, pos)
    if tag <= previous:
        raise ProtocolError(f"tagged field {tag} comes after {previous}")
    size, pos = read_varint(buf, pos)
    if size > end - pos:
        raise ProtocolError("a tagged field is longer than the message")
    return tag, pos, pos + size


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(value: int) -> bytes:
    """The length + 1 of a string that takes more than one byte."""
    if value > MAX_STRING_BYTES + 1:
        raise ProtocolError(f"a string of {value - 1} bytes is too long")
    return varint(value)


def null(name: str) -> NoReturn:
    raise ProtocolError(f"{name} must not be null")


def negative(name: str) -> NoReturn:
    raise ProtocolError(f"{name} has a negative length")


def bad_marker(name: str) -> NoReturn:
    raise ProtocolError(f"{name} has a presence marker that is neither -1 nor 1")


def short(name: str) -> NoReturn:
    raise ProtocolError(f"{name} is longer than the message")


def too_many(name: str) -> NoReturn:
    raise ProtocolError(f"{name} has more elements than the message can hold or than are allowed")


def tag_size(name: str) -> NoReturn:
    raise ProtocolError(f"tagged field {name} does not have the size it says")


def bad_uuid(name: str) -> NoReturn:
    raise ProtocolError(f"{name} is not 16 bytes")


def absent(name: str) -> NoReturn:
    raise ProtocolError(f"{name} is set, but this version does not have it")
