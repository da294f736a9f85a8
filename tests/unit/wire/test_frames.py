"""Frames: sizes and headers around messages."""

from __future__ import annotations

from typing import cast

import pytest

from klamm.core.env import File, FileRange, Part
from klamm.wire import ProtocolError, decode, encode
from klamm.wire.frames import decode_request_header, decode_response, encode_request, encode_response
from klamm.wire.messages import APIS
from klamm.wire.messages.headers import RequestHeader, ResponseHeader
from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from klamm.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def joined(parts: list[Part]) -> bytes:
    return b"".join(cast(list[bytes], parts))


@pytest.mark.parametrize("client_id", [None, "", "me", "é" * 100])
@pytest.mark.parametrize(("version", "header"), [(8, 1), (9, 2)])
def test_a_request_frame_is_size_header_and_body(client_id: str | None, version: int, header: int) -> None:
    request = MetadataRequest(topics=None)
    frame = joined(encode_request(request, version, -7, client_id))
    head = RequestHeader(request_api_key=3, request_api_version=version, correlation_id=-7, client_id=client_id)
    body = encode(head, header) + encode(request, version)
    assert frame == len(body).to_bytes(4, "big") + body

    found = decode_request_header(memoryview(frame)[4:])
    assert found == (3, version, -7, client_id, len(encode(head, header)))
    assert decode(MetadataRequest, memoryview(frame)[4:], version, found.body) == request


@pytest.mark.parametrize(("version", "header"), [(8, 0), (9, 1)])
def test_a_response_frame_is_size_header_and_body(version: int, header: int) -> None:
    response = MetadataResponse(controller_id=4)
    frame = joined(encode_response(response, 3, version, 99))
    body = encode(ResponseHeader(correlation_id=99), header) + encode(response, version)
    assert frame == len(body).to_bytes(4, "big") + body
    assert decode_response(MetadataResponse, frame[4:], version) == (99, response)


def test_api_versions_always_answers_with_the_oldest_header() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    for version in range(5):
        frame = joined(encode_response(response, 18, version, 5))
        assert frame[8:] == encode(response, version)
        assert decode_response(ApiVersionsResponse, memoryview(frame)[4:], version) == (5, response)
    assert decode_request_header(joined(encode_request(ApiVersionsRequest(), 3, 1, "x"))[4:]).body == 12


def test_an_api_without_flexible_versions_has_the_old_headers() -> None:
    frame = joined(encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, None))
    assert decode_request_header(frame[4:]).body == 10
    frame = joined(encode_response(SaslHandshakeResponse(mechanisms=["PLAIN"]), 17, 1, 1))
    assert frame[8:] == encode(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1)


def test_the_size_counts_records_that_are_passed_on() -> None:
    records = [b"x" * 10, FileRange(cast(File, None), 7, 1000), memoryview(bytearray(20)), None, b""]
    partitions = [PartitionData(partition_index=index, records=value) for index, value in enumerate(records)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=partitions)])
    parts = encode_response(response, 1, 13, 1)
    assert [part for part in parts if not isinstance(part, bytes)] == [records[1], records[2]]
    first = parts[0]
    assert isinstance(first, bytes)
    total = sum(part.size if isinstance(part, FileRange) else len(part) for part in parts)
    assert int.from_bytes(first[:4], "big") == total - 4


@pytest.mark.parametrize("version", [0, 3, 4, 99, 32767])
def test_the_header_can_be_read_for_versions_that_nobody_knows(version: int) -> None:
    header = 2 if version >= 3 else 1
    head = RequestHeader(request_api_key=18, request_api_version=version, correlation_id=1, client_id="c")
    data = encode(head, header)
    assert decode_request_header(data) == (18, version, 1, "c", len(data))


@pytest.mark.parametrize("key", [4, 7, 76, 999, -1])
def test_the_header_can_be_read_for_keys_that_nobody_knows(key: int) -> None:
    assert key not in APIS
    head = RequestHeader(request_api_key=key, request_api_version=1, correlation_id=1, client_id="c")
    assert decode_request_header(encode(head, 1)).api_key == key


def test_tagged_fields_in_a_header_are_skipped() -> None:
    head = b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff"
    assert decode_request_header(head + b"\x01\x07\x02zz").body == 15
    body = encode(MetadataResponse(), 9)
    assert decode_response(MetadataResponse, b"\0\0\0\x01\x01\x07\x02zz" + body, 9) == (1, MetadataResponse())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x03\x00\x09\x00\x00\x00\x01\xff",
        b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff",  # no tags
        b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x01\x01",
        b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x02\x01\x00\x01\x00",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x05abcd",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x02\xff\xff",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xfe",
    ],
)
def test_a_malformed_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(data)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01"])
def test_a_malformed_response_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_response(MetadataResponse, data, 9)


def test_a_header_that_does_not_fit_cannot_be_encoded() -> None:
    with pytest.raises(ProtocolError):
        encode_request(MetadataRequest(), 9, 1, "x" * 40000)
    with pytest.raises(ProtocolError):
        encode_request(MetadataRequest(), 9, 1 << 31, "x")
