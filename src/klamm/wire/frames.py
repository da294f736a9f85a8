"""Frames: the size, the header and the body of a request or a response.

A frame on the wire is an int32 size and that many bytes. Decoding here starts behind the size, which whoever reads
the socket has already taken. Requests have header v1, or v2 from the first flexible version of their API on;
responses v0 or v1, except that ApiVersions always answers with v0, because a client that asks does not know yet
what the broker understands (KIP-511).
"""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from klamm.wire.codec import decode, encode_into, join_between
from klamm.wire.errors import ProtocolError
from klamm.wire.messages import APIS, first_flexible
from klamm.wire.runtime import skip_tags
from klamm.wire.schema import Request, Response, Struct

if TYPE_CHECKING:
    from klamm.core.env import Buffer, Part

API_VERSIONS = 18

R = TypeVar("R", bound=Response)

_new = tuple.__new__  # half the time of calling a NamedTuple

_REQUEST_HEAD = Packer(">hhih")  # key, version, correlation id, length of the client id
_SIZED_REQUEST_HEAD = Packer(">ihhih")
_SIZED_RESPONSE_HEAD = Packer(">ii")
_SIZED_FLEXIBLE_RESPONSE_HEAD = Packer(">iix")


class RequestHead(NamedTuple):
    """A request's header, and where its body starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def decode_request_header(frame: Buffer) -> RequestHead:
    """The header of a request frame (without its size). The key and version may be ones that we do not serve."""
    try:
        key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
        pos = 10
        client_id = None
        if size >= 0:
            pos += size
            if pos > len(frame):
                raise ProtocolError("the client id is longer than the request")
            client_id = str(frame[10:pos], "utf-8")
        elif size != -1:
            raise ProtocolError("the client id has a negative length")
        entry = APIS.get(key)
        if entry is not None and version >= entry[2]:
            count = frame[pos]
            pos += 1
            if count:
                pos = skip_tags(frame, pos, len(frame), count)
        return _new(RequestHead, (key, version, correlation_id, client_id, pos))
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the request header is malformed: {error}") from error


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None = None) -> list[Part]:
    """A whole request frame. Its records, if any, are passed on without copying them."""
    key = message.__api_key__
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= first_flexible(key) else b""
    parts, size = _body(message, version)
    size += 10 + len(name) + len(tags)
    try:
        head = _SIZED_REQUEST_HEAD.pack(size, key, version, correlation_id, -1 if client_id is None else len(name))
    except struct_error as error:
        raise ProtocolError(f"the header of {type(message).__name__} cannot be encoded: {error}") from error
    parts[0] = head + name + tags + parts[0]
    return parts


def encode_response(message: Response, api_key: int, version: int, correlation_id: int) -> list[Part]:
    """A whole response frame. Its records, if any, are passed on without copying them."""
    flexible = version >= APIS[api_key][2] and api_key != API_VERSIONS
    head, size = (_SIZED_FLEXIBLE_RESPONSE_HEAD, 5) if flexible else (_SIZED_RESPONSE_HEAD, 4)
    out: list[Any] = []
    cuts = encode_into(message, version, out)
    if not cuts:  # the usual response: joined once, without the detour over `_body`
        body = b"".join(out)
        return [head.pack(size + len(body), correlation_id) + body]
    parts = join_between(out, cuts)
    parts[0] = head.pack(size + size_of(parts), correlation_id) + parts[0]  # type: ignore[operator]
    return parts


def decode_response(message: type[R], frame: Buffer, version: int) -> tuple[int, R]:
    """The correlation id and the body of a response frame (without its size)."""
    key = message.__api_key__
    try:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        pos = 4
        if len(frame) < pos:
            raise ProtocolError("the response is shorter than its header")
        if version >= first_flexible(key) and key != API_VERSIONS:
            pos = skip_tags(frame, 5, len(frame), frame[4])
    except IndexError as error:
        raise ProtocolError(f"the response header is malformed: {error}") from error
    return correlation_id, decode(message, frame, version, pos)


def _body(message: Struct, version: int) -> tuple[list[Any], int]:
    """The message in parts, the first of which is bytes, and their size."""
    out: list[Any] = []
    cuts = encode_into(message, version, out)
    if not cuts:
        body = b"".join(out)
        return [body], len(body)
    parts = join_between(out, cuts)
    return parts, size_of(parts)


def size_of(parts: list[Part]) -> int:
    """Bytes on the wire."""
    return sum(part.size if isinstance(part, tuple) else len(part) for part in parts)
