"""Encoding and decoding of whole messages.

    encode(message, version) -> bytes
    encode_parts(message, version) -> [bytes, records, bytes, ...]
    decode(MessageClass, data, version) -> message

Whatever a peer sends, decoding ends in a message or in ProtocolError, and takes memory in proportion to the bytes
that are really there.
"""

from __future__ import annotations

from struct import error as struct_error
from typing import TYPE_CHECKING, Any, TypeVar

from klamm.wire.compiler import Decoder, Encoder, compile_decoder, compile_encoder
from klamm.wire.errors import ProtocolError
from klamm.wire.layout import has_records, layout_of
from klamm.wire.schema import Struct

if TYPE_CHECKING:
    from klamm.core.env import Buffer, Part

S = TypeVar("S", bound=Struct)

_MALFORMED = (ProtocolError, struct_error, IndexError, UnicodeDecodeError)
_UNENCODABLE = (struct_error, AttributeError, TypeError, UnicodeEncodeError)


def new_encoder(message: type[Struct], version: int) -> Encoder:
    """Compile the encoder; ProtocolError if the message has no such version."""
    encoder = message.__encoders__[version] = compile_encoder(message, version)
    return encoder


def new_decoder(message: type[Struct], version: int) -> tuple[Decoder, bool]:
    """Compile the decoder; with it, whether it wants a memoryview instead of bytes."""
    decoder = compile_decoder(message, version), has_records(layout_of(message, version))
    message.__decoders__[version] = decoder
    return decoder


def encode_into(message: Struct, version: int, out: list[Any]) -> list[int]:
    """Append the message's chunks to `out`; the result says which of them are records."""
    encoder = message.__encoders__.get(version) or new_encoder(type(message), version)
    cuts: list[int] = []
    try:
        encoder(message, out, cuts)
    except ProtocolError as error:
        raise ProtocolError(f"{type(message).__name__} v{version}: {error}") from None
    except _UNENCODABLE as error:
        raise ProtocolError(f"{type(message).__name__} v{version} cannot be encoded: {error}") from error
    return cuts


def encode(message: Struct, version: int) -> bytes:
    """The message as one piece; its records must be buffers."""
    out: list[Any] = []
    encode_into(message, version, out)
    return b"".join(out)


def encode_parts(message: Struct, version: int) -> list[Part]:
    """The message in pieces: records are passed on as they are, what is between them is joined."""
    out: list[Any] = []
    return join_between(out, encode_into(message, version, out))


def join_between(out: list[Any], cuts: list[int]) -> list[Part]:
    parts: list[Part] = []
    start = 0
    for cut in cuts:
        if cut > start:
            parts.append(b"".join(out[start:cut]))
        parts.append(out[cut])
        start = cut + 1
    if start < len(out):
        parts.append(b"".join(out[start:]))
    return parts


def decode(
    message: type[S],
    data: Buffer,
    version: int,
    offset: int = 0,
    end: int | None = None,
    *,
    allow_trailing: bool = False,
) -> S:
    """The message in `data[offset:end]`; ProtocolError if it is not exactly that (or less, with `allow_trailing`)."""
    # Flat, and alike `decode_prefix`: every request comes through here, and a call is a tenth of its cost.
    decoder, wants_view = message.__decoders__.get(version) or new_decoder(message, version)
    data = memoryview(data)[offset:end] if wants_view else _as_bytes(data, offset, end)
    size = len(data)
    try:
        found, stop = decoder(data, 0, size)
    except _MALFORMED as error:
        raise _explained(message, version, error) from error
    if stop != size and not allow_trailing:
        raise ProtocolError(f"{message.__name__} v{version}: {size - stop} bytes are left over behind it")
    return found  # type: ignore[no-any-return]


def decode_prefix(
    message: type[S], data: Buffer, version: int, offset: int = 0, end: int | None = None
) -> tuple[S, int]:
    """The message at `offset`, and the position behind it."""
    decoder, wants_view = message.__decoders__.get(version) or new_decoder(message, version)
    data = memoryview(data)[offset:end] if wants_view else _as_bytes(data, offset, end)
    try:
        found, stop = decoder(data, 0, len(data))
    except _MALFORMED as error:
        raise _explained(message, version, error) from error
    return found, offset + stop


def _as_bytes(data: Buffer, offset: int, end: int | None) -> bytes:
    """A copy, because bytes are faster to take apart than a memoryview, and messages without records are small."""
    if type(data) is bytes and not offset and end is None:
        return data
    return bytes(memoryview(data)[offset:end])


def _explained(message: type[Struct], version: int, error: Exception) -> ProtocolError:
    if isinstance(error, ProtocolError):
        return ProtocolError(f"{message.__name__} v{version}: {error}")
    return ProtocolError(f"{message.__name__} v{version} is malformed: {error}")
