"""The Kafka protocol without I/O: message tables, compiled per version, and frames.

    from klamm import wire
    from klamm.wire.messages.k18_api_versions import ApiVersionsRequest

    data = wire.encode(ApiVersionsRequest(client_software_name="me"), version=3)
    request = wire.decode(ApiVersionsRequest, data, version=3)

Tables are written in the language of `schema`; `layout`, `encoder`, `decoder` and `compiler` make code from them when
a version is first used; `codec` runs it; `frames` adds sizes and headers. Nothing here reads, writes or waits.
"""

from __future__ import annotations

from klamm.wire import frames
from klamm.wire.codec import decode, decode_prefix, encode, encode_parts
from klamm.wire.errors import ProtocolError
from klamm.wire.messages import request_type, response_type
from klamm.wire.schema import Records, Request, Response, Struct, is_flexible, versions_of

__all__ = [
    "ProtocolError",
    "Records",
    "Request",
    "Response",
    "Struct",
    "decode",
    "decode_prefix",
    "encode",
    "encode_parts",
    "frames",
    "is_flexible",
    "request_type",
    "response_type",
    "versions_of",
]
