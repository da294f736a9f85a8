"""What comes before every request and response. The hot path has its own code for it in `frames`."""

from __future__ import annotations

from klamm.wire.schema import Struct, int16, int32, string


class RequestHeader(Struct, versions="1-2", flexible="2+"):
    """The client id is never compact, so that a header can be read before its version is known."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable="0+", flexible="none")


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    correlation_id: int = int32()
