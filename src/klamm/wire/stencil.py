"""A request that is sent again and again with other records in it: everything around them is encoded once."""

from __future__ import annotations

from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from klamm.wire.frames import encode_request
from klamm.wire.messages import first_flexible
from klamm.wire.runtime import varint
from klamm.wire.schema import Request

if TYPE_CHECKING:
    from klamm.core.env import Buffer

_HEAD: Final = Packer(">ihhih")  # size, key, version, correlation id, length of the client id
_SIZE_BYTES: Final = 4
_INT32: Final = Packer(">i")


class Stencil:
    __slots__ = ("_around_bytes", "_behind", "_client_id_bytes", "_is_compact", "_middle", "key", "version")

    def __init__(self, message: Request, version: int, client_id: str | None = None) -> None:
        """The message has records in one place, and some are there."""
        head, records, *behind = encode_request(message, version, 0, client_id)
        assert isinstance(head, bytes) and not isinstance(records, tuple)
        self.key = message.__api_key__
        self.version = version
        self._is_compact = version >= first_flexible(self.key)
        self._client_id_bytes = -1 if client_id is None else len(client_id.encode())
        self._middle = head[_HEAD.size : len(head) - len(self._length(len(records)))]
        self._behind = b"".join(behind)  # type: ignore[arg-type]
        self._around_bytes = _HEAD.size - _SIZE_BYTES + len(self._middle) + len(self._behind)

    def _length(self, size: int) -> bytes:
        return varint(size + 1) if self._is_compact else _INT32.pack(size)

    def frame(self, correlation_id: int, records: Buffer) -> bytes:
        """The whole request."""
        size = len(records)
        length = self._length(size)
        head = _HEAD.pack(
            self._around_bytes + len(length) + size, self.key, self.version, correlation_id, self._client_id_bytes
        )
        return b"".join((head, self._middle, length, records, self._behind))
