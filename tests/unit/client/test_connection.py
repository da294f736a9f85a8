from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import FakeBroker, HangUp

from klamm import wire
from klamm.client import BadAnswer, ClientError, ConnectionLost, TimedOut, UnsupportedVersion
from klamm.client.connection import MAX_IN_FLIGHT, Connection
from klamm.client.reply import Reply
from klamm.core.env.real import real_env
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from klamm.wire.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k60_describe_cluster import DescribeClusterRequest

Fake = Callable[[], Awaitable[FakeBroker]]


async def open_to(broker: FakeBroker) -> Connection:
    return await Connection.open(real_env(), "127.0.0.1", broker.port, client_id="me", timeout_ms=10_000)


async def test_requests_are_pipelined_and_answers_find_their_questions(fake: Fake) -> None:
    broker = await fake()
    gate = asyncio.Event()

    async def echo(request: MetadataRequest, version: int) -> MetadataResponse:
        await gate.wait()
        return MetadataResponse(cluster_id=request.topics[0].name)

    broker.on(MetadataRequest, echo)
    connection = await open_to(broker)
    names = [f"t{number}" for number in range(2 * MAX_IN_FLIGHT)]
    asked = [
        asyncio.ensure_future(connection.request(MetadataRequest(topics=[topic(name)]), timeout_s=30)) for name in names
    ]
    while not broker.requests(MetadataRequest):
        await asyncio.sleep(0)
    assert connection.in_flight == MAX_IN_FLIGHT
    gate.set()
    assert [answer.cluster_id for answer in await asyncio.gather(*asked)] == names
    connection.close()


def topic(name: str) -> Any:
    from klamm.wire.messages.k03_metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


async def test_the_highest_version_of_both_sides_is_spoken(fake: Fake) -> None:
    broker = await fake()
    spoken = []
    broker.on(MetadataRequest, lambda request, version: spoken.append(version) or MetadataResponse(), (2, 7))
    broker.versions[InitProducerIdRequest] = (90, 99)
    connection = await open_to(broker)
    await connection.request(MetadataRequest(topics=[]), timeout_s=10)
    assert spoken == [7]
    with pytest.raises(UnsupportedVersion, match="DescribeCluster"):
        await connection.request(DescribeClusterRequest(), timeout_s=10)
    with pytest.raises(UnsupportedVersion, match="90 to 99"):
        await connection.request(InitProducerIdRequest(), timeout_s=10)
    with pytest.raises(UnsupportedVersion, match="too old"):
        await connection.request(MetadataRequest(topics=[], allow_auto_topic_creation=False), timeout_s=10, version=3)
    with pytest.raises(ClientError, match=r"cannot be encoded.*another type") as caught:
        await connection.request(MetadataRequest(topics=[topic(["a list"])]), timeout_s=10)  # type: ignore[arg-type]
    assert not isinstance(caught.value, UnsupportedVersion)
    assert connection.lost is None
    connection.close()


@pytest.mark.parametrize("listed", [True, False])
async def test_a_broker_with_older_api_versions_is_asked_again_as_it_likes(fake: Fake, listed: bool) -> None:
    broker = await fake()
    asked = []

    def answer(request: ApiVersionsRequest, version: int) -> bytes | ApiVersionsResponse:
        asked.append(version)
        keys = [ApiVersion(api_key=18, min_version=0, max_version=2 if listed else 0)]
        if version > keys[0].max_version:
            refusal = ApiVersionsResponse(error_code=35, api_keys=keys if listed else [])
            body = len(asked).to_bytes(4, "big") + wire.encode(refusal, 0)
            return len(body).to_bytes(4, "big") + body
        return ApiVersionsResponse(api_keys=keys)

    broker.answers[ApiVersionsRequest] = answer
    connection = await open_to(broker)
    assert asked == [4, 2 if listed else 0]
    assert connection.versions.best(ApiVersionsRequest) == (2 if listed else 0)
    connection.close()


async def test_an_answer_that_does_not_come_in_time_ends_the_connection_for_all(fake: Fake) -> None:
    broker = await fake()
    broker.on(MetadataRequest, lambda request, version: None)
    connection = await open_to(broker)
    slow = asyncio.ensure_future(connection.request(MetadataRequest(topics=[]), timeout_s=0.01))
    other = asyncio.ensure_future(connection.request(MetadataRequest(topics=[]), timeout_s=30))
    with pytest.raises(TimedOut, match="did not answer Metadata"):
        await slow
    with pytest.raises(ConnectionLost):
        await other
    with pytest.raises(ConnectionLost):
        await connection.request(MetadataRequest(topics=[]), timeout_s=30)


async def test_a_caller_that_gives_up_does_not_disturb_the_others(fake: Fake) -> None:
    broker = await fake()
    gate = asyncio.Event()

    async def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        await gate.wait()
        return MetadataResponse(cluster_id=request.topics[0].name)

    broker.on(MetadataRequest, answer)
    connection = await open_to(broker)
    first = asyncio.ensure_future(connection.request(MetadataRequest(topics=[topic("a")]), timeout_s=30))
    second = asyncio.ensure_future(connection.request(MetadataRequest(topics=[topic("b")]), timeout_s=30))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert (await second).cluster_id == "b"
    connection.close()


async def test_a_broker_that_hangs_up_fails_what_was_asked(fake: Fake) -> None:
    broker = await fake()

    def hang_up(request: MetadataRequest, version: int) -> None:
        raise HangUp

    broker.on(MetadataRequest, hang_up)
    connection = await open_to(broker)
    with pytest.raises(ConnectionLost, match="gone"):
        await connection.request(MetadataRequest(topics=[]), timeout_s=30)


@pytest.mark.parametrize(
    ("sent", "hint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "web server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"\x00\x00\x00\x08" + bytes(8), "cannot be read"),
    ],
)
async def test_what_is_not_kafka_is_told_as_what_it_looks_like(fake: Fake, sent: bytes, hint: str) -> None:
    broker = await fake()
    broker.answers[ApiVersionsRequest] = lambda request, version: sent
    with pytest.raises(BadAnswer, match=hint):
        await open_to(broker)


async def test_what_is_gathered_goes_out_together_and_is_answered_one_by_one(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await fake()
    broker.on(MetadataRequest, lambda request, version: MetadataResponse(cluster_id=request.topics[0].name))
    connection = await open_to(broker)
    transport: Any = connection._transport
    written: list[bytes] = []
    write = transport.write
    monkeypatch.setattr(connection, "_transport", Writer(transport, lambda data: (written.append(data), write(data))))
    found: list[object] = []
    with connection.gathering():
        for name in ("a", "b", "c"):
            reply = Reply(lambda answer, error: found.append(answer.cluster_id))
            connection.send_for(reply, MetadataRequest(topics=[topic(name)]), 9, 10.0)
        assert not written
    assert len(written) == 1
    while len(found) < 3:
        await asyncio.sleep(0)
    assert found == ["a", "b", "c"]
    connection.close()


class Writer:
    """A transport of which somebody sees the writes."""

    def __init__(self, transport: Any, write: Callable[[bytes], object]) -> None:
        self._transport = transport
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_a_reply_hears_of_a_lost_connection_in_a_turn_of_its_own(fake: Fake) -> None:
    broker = await fake()
    broker.on(MetadataRequest, lambda request, version: None)
    connection = await open_to(broker)
    found: list[object] = []
    reply = Reply(lambda answer, error: found.append(error))
    connection.send_for(reply, MetadataRequest(topics=[]), 9, 10.0)
    connection.close()
    assert reply.done() and not found
    await asyncio.sleep(0)
    assert isinstance(found[0], ConnectionLost)
