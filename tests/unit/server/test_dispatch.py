from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.apis.api import Api, Context, Pending
from klamm.core.env.real import RealClock
from klamm.core.errors import BrokerError, ErrorCode
from klamm.server.connection import Connection, Shared
from klamm.server.dispatch import Dispatcher
from klamm.server.limits import Limits
from klamm.server.logging import LimitedLog
from klamm.wire import Struct, encode
from klamm.wire.frames import decode_response, encode_request
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

BROKER: Any = object()


class Bench:
    """A dispatcher whose heartbeat and produce handlers a test may choose."""

    def __init__(self) -> None:
        self.broken: list[BaseException] = []
        self.contexts: list[Context] = []
        self.on_heartbeat: Callable[[HeartbeatRequest], Any] = lambda request: HeartbeatResponse(error_code=7)
        self.shortcut: Callable[[bytes], Any] = lambda body: None
        self.on_produce: Callable[[ProduceRequest], Any] = lambda request: ProduceResponse()
        self.dispatcher = Dispatcher(
            BROKER,
            [
                Api(
                    HeartbeatRequest,
                    self._heartbeat,
                    key=12,
                    versions=(0, 4),
                    on_error=self._heartbeat_error,
                    shortcut=lambda ctx, frame, body: self.shortcut(bytes(frame[body:])),
                ),
                Api(ProduceRequest, lambda ctx, r: self.on_produce(r), key=0, versions=(3, 13), advertised=(0, 13)),
                Api(ApiVersionsRequest, lambda ctx, r: ApiVersionsResponse(), key=18, versions=(0, 4)),
            ],
            RealClock(),
            self.broken.append,
        )

    def _heartbeat(self, ctx: Context, request: HeartbeatRequest) -> Any:
        self.contexts.append(ctx)
        return self.on_heartbeat(request)

    def _heartbeat_error(self, request: HeartbeatRequest, version: int, code: ErrorCode) -> HeartbeatResponse | None:
        if request.group_id == "no answer":
            return None
        if request.group_id == "bad answer":
            raise RuntimeError("the error answer fails too")
        return HeartbeatResponse(error_code=code)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def request(message: Any, version: int, correlation_id: int = 1, client_id: str | None = "me") -> bytes:
    return b"".join(bytes(part) for part in encode_request(message, version, correlation_id, client_id))[4:]  # type: ignore[arg-type]


def heartbeat(version: int = 4, correlation_id: int = 1, group: str = "g") -> bytes:
    return request(HeartbeatRequest(group_id=group), version, correlation_id)


@pytest.mark.parametrize("version", range(5))
async def test_a_request_reaches_its_handler_and_the_answer_comes_back(serve: Any, bench: Bench, version: int) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    client.send(heartbeat(version, 77))
    assert decode_response(HeartbeatResponse, await client.receive(), version) == (77, HeartbeatResponse(error_code=7))
    (ctx,) = bench.contexts
    assert (ctx.api_version, ctx.client_id, ctx.listener, ctx.peer.host) == (version, "me", "PLAINTEXT", "127.0.0.1")
    assert ctx.broker is BROKER


async def test_bytes_behind_the_last_field_are_let_pass(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    client.send(heartbeat() + b"junk")
    await client.receive()


@pytest.mark.parametrize(
    "frame", [b"\0\x12\0\x63\0\0\0\x09\xff\xff\0", b"\0\x12\x7f\xff\0\0\0\x09junk\xff\xff\xff\xff"]
)
async def test_api_versions_of_the_future_are_answered_in_version_0(serve: Any, bench: Bench, frame: bytes) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    client.send(frame)
    answer = await client.receive()
    assert answer == bytes.fromhex("00000009 0023 00000001 0012 0000 0004")
    client.send(request(ApiVersionsRequest(), 4))
    assert decode_response(ApiVersionsResponse, await client.receive(), 4)[1] == ApiVersionsResponse()


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (b"\0\x0c\0\x05\0\0\0\x01\xff\xff\0", "Heartbeat version 5 is not served, 0 to 4 are"),
        (b"\0\0\0\x02\0\0\0\x01\xff\xff", "Produce version 2 is not served, 3 to 13 are"),
        (b"\0\x63\0\0\0\0\0\x01\xff\xff", "API key 99"),
        (b"\xff\xff\0\0\0\0\0\x01\xff\xff", "API key -1"),
        (b"\0\x0c\0\0\0\0\0\x01\xff\xff\0\x50g", "malformed request"),
        (b"\0\x0c", "malformed request"),
        (b"", "malformed request"),
    ],
)
async def test_what_is_not_served_or_makes_no_sense_costs_that_connection(
    serve: Any, bench: Bench, caplog: pytest.LogCaptureFixture, frame: bytes, line: str
) -> None:
    place = await serve(bench.dispatcher)
    bad, good = await place.connect(), await place.connect()
    bad.send(frame)
    assert await bad.is_cut_off()
    assert [line in record.getMessage() for record in caplog.records] == [True]
    good.send(heartbeat())
    await good.receive()


async def test_what_a_shortcut_encodes_gets_the_header_of_its_version(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    for version in (1, 4):
        response = HeartbeatResponse(throttle_time_ms=3, error_code=5)
        body = encode(HeartbeatRequest(group_id="g"), version)
        bench.shortcut = lambda found, r=response, v=version, b=body: encode(r, v) if found == b else None  # type: ignore[misc]
        client.send(heartbeat(version, 9))
        assert decode_response(HeartbeatResponse, await client.receive(), version) == (9, response)
    assert not bench.contexts
    assert bench.dispatcher.routes[12].requests == 2


async def test_a_shortcut_may_answer_as_a_handler_does(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    pending = Pending()
    answers = [pending, HeartbeatResponse(error_code=2)]
    bench.shortcut = lambda body: answers.pop(0)
    client.send(heartbeat(4, 1), heartbeat(4, 2))
    await place.until(lambda: not answers)
    pending.set(HeartbeatResponse(error_code=1))
    for expected in (1, 2):
        answer = decode_response(HeartbeatResponse, await client.receive(), 4)
        assert answer == (expected, HeartbeatResponse(error_code=expected))
    assert not bench.contexts


async def test_a_shortcut_that_fails_is_answered_like_a_handler_that_fails(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()

    def fail(body: bytes) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")

    bench.shortcut = fail
    client.send(heartbeat(4, 3))
    answer = decode_response(HeartbeatResponse, await client.receive(), 4)
    assert answer == (3, HeartbeatResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert not bench.contexts


async def test_a_pending_answer_keeps_its_place(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    pending = Pending()
    bench.on_heartbeat = lambda request: pending if request.group_id == "slow" else HeartbeatResponse()
    client.send(heartbeat(4, 1, "slow"), heartbeat(4, 2))
    await place.until(lambda: len(bench.contexts) == 2)
    pending.set(HeartbeatResponse(error_code=9))
    assert decode_response(HeartbeatResponse, await client.receive(), 4) == (1, HeartbeatResponse(error_code=9))
    assert decode_response(HeartbeatResponse, await client.receive(), 4) == (2, HeartbeatResponse())


async def test_nothing_is_handled_behind_a_pending_answer_that_wants_to_be_alone(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client, other = await place.connect(), await place.connect()
    pending = Pending()
    pending.alone = True
    bench.on_heartbeat = lambda request: pending if request.group_id == "join" else HeartbeatResponse()
    client.send(heartbeat(4, 1, "join"), heartbeat(4, 2))
    await place.until(lambda: len(bench.contexts) == 1)
    client.send(heartbeat(4, 3))
    other.send(heartbeat(4, 1))
    await other.receive()  # by now the broker has had its chance
    assert len(bench.contexts) == 2
    pending.set(HeartbeatResponse(error_code=9))
    assert decode_response(HeartbeatResponse, await client.receive(), 4) == (1, HeartbeatResponse(error_code=9))
    for expected in (2, 3):
        assert decode_response(HeartbeatResponse, await client.receive(), 4) == (expected, HeartbeatResponse())


async def test_a_pending_answer_that_is_set_already_leaves_at_once(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    pending = Pending()
    pending.set(HeartbeatResponse())
    bench.on_heartbeat = lambda request: pending
    client.send(heartbeat())
    await client.receive()


async def test_a_pending_answer_is_cancelled_when_its_connection_goes(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    cancelled: list[bool] = []
    pending = Pending(lambda: cancelled.append(True))
    bench.on_heartbeat = lambda request: pending
    client.send(heartbeat())
    await place.until(lambda: len(bench.contexts) == 1)
    await client.close()
    await place.until(lambda: bool(cancelled))
    pending.set(HeartbeatResponse())


async def test_a_coroutine_may_look_at_its_request_after_the_next_one_was_read(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    seen: list[bytes] = []
    go = asyncio.Event()

    async def late(request: ProduceRequest) -> ProduceResponse:
        await go.wait()
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        seen.append(bytes(records))
        return ProduceResponse()

    bench.on_produce = late
    for i in range(3):
        data = PartitionProduceData(records=b"%d" % i * 3000)
        client.send(request(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9, i))
    await place.until(lambda: bench.dispatcher.routes[0].requests == 3)
    go.set()
    for i in range(3):
        assert decode_response(ProduceResponse, await client.receive(), 9)[0] == i
    assert sorted(seen) == [b"%d" % i * 3000 for i in range(3)]
    assert not bench.dispatcher.tasks


async def test_a_coroutine_runs_to_its_end_although_its_connection_is_gone(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    go = asyncio.Event()
    ended = asyncio.Event()

    async def slow(request: HeartbeatRequest) -> HeartbeatResponse:
        await go.wait()
        ended.set()
        return HeartbeatResponse()

    bench.on_heartbeat = slow
    client.send(heartbeat())
    await place.until(lambda: len(bench.contexts) == 1)
    await client.close()
    await place.until(lambda: place.server.connections == 0)
    go.set()
    await ended.wait()


async def test_no_answer_is_sent_for_none(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    bench.on_produce = lambda request: None
    client.send(request(ProduceRequest(acks=0), 9), heartbeat(4, 5))
    assert decode_response(HeartbeatResponse, await client.receive(), 4)[0] == 5


async def fails_later(request: Struct) -> Any:
    raise ValueError("kaput")


def fails_now(request: Struct) -> Any:
    raise ValueError("kaput")


@pytest.mark.parametrize("handler", [fails_now, fails_later])
async def test_a_handler_that_fails_is_logged_once_and_answered_with_its_error_answer(
    serve: Any, bench: Bench, caplog: pytest.LogCaptureFixture, handler: Any
) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    bench.on_heartbeat = handler
    client.send(heartbeat())
    assert decode_response(HeartbeatResponse, await client.receive(), 4)[1].error_code == -1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info and "kaput" in str(record.exc_info[1])
    assert bench.dispatcher.routes[12].failures == 1
    assert bench.broken == []


@pytest.mark.parametrize("group", ["no answer", "bad answer"])
@pytest.mark.parametrize("handler", [fails_now, fails_later])
async def test_a_failure_without_an_error_answer_costs_that_connection(
    serve: Any, bench: Bench, handler: Any, group: str
) -> None:
    place = await serve(bench.dispatcher)
    client, other = await place.connect(), await place.connect()
    bench.on_heartbeat = handler
    client.send(heartbeat(group=group))
    assert await client.is_cut_off()
    bench.on_heartbeat = lambda request: HeartbeatResponse()
    other.send(heartbeat())
    await other.receive()


async def test_an_expected_failure_of_a_whole_request_is_answered_with_its_code(
    serve: Any, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()

    def refuse(request: Struct) -> Any:
        raise BrokerError(ErrorCode.NOT_COORDINATOR)

    bench.on_heartbeat = refuse
    client.send(heartbeat())
    assert decode_response(HeartbeatResponse, await client.receive(), 4)[1].error_code == 16
    assert caplog.records == []


async def test_an_error_of_a_produce_without_acks_closes_the_connection(serve: Any, bench: Bench) -> None:
    """There is no answer that could carry it; the producer learns of it as with Kafka."""
    place = await serve(bench.dispatcher)
    client = await place.connect()

    def refuse(request: Struct) -> Any:
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    bench.on_produce = refuse
    client.send(request(ProduceRequest(acks=0), 9))
    assert await client.is_cut_off()


async def test_a_response_that_cannot_be_encoded_is_a_failure_of_its_request_only(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    pending = Pending()
    bench.on_heartbeat = lambda request: pending
    client.send(heartbeat())
    await place.until(lambda: len(bench.contexts) == 1)
    pending.set(HeartbeatResponse(error_code=1 << 40))  # must not raise here: somebody else completed it
    assert decode_response(HeartbeatResponse, await client.receive(), 4)[1].error_code == -1


@pytest.mark.parametrize("later", [False, True])
async def test_a_broken_invariant_stops_the_broker(serve: Any, bench: Bench, later: bool) -> None:
    def breaks(request: Struct) -> Any:
        raise AssertionError("offsets went backwards")

    async def breaks_later(request: Struct) -> Any:
        raise AssertionError("offsets went backwards")

    place = await serve(bench.dispatcher)
    client = await place.connect()
    bench.on_heartbeat = breaks_later if later else breaks
    client.send(heartbeat())
    assert await client.is_cut_off()
    assert [str(error) for error in bench.broken] == ["offsets went backwards"]


async def test_requests_and_bytes_are_counted_for_each_api(serve: Any, bench: Bench) -> None:
    place = await serve(bench.dispatcher)
    client = await place.connect()
    frame = heartbeat()
    client.send(frame, frame)
    answer = await client.receive()
    await client.receive()
    route = bench.dispatcher.routes[12]
    assert (route.requests, route.request_bytes) == (2, 2 * len(frame))
    assert route.response_bytes == 2 * (4 + len(answer))
    assert sum(route.durations.counts) == 2
    assert route.durations.total_s > 0


class Sink:
    """A network that takes everything."""

    queued_bytes = 0

    def sender(self, *args: Any) -> Sink:
        return self

    def send(self, parts: Any) -> None: ...

    def close(self) -> None: ...


class NoTransport(asyncio.Transport):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([0, 12, 18, 99]), st.integers(-1, 15), st.binary(max_size=120), st.booleans())
def test_whatever_a_peer_sends_the_connection_stays_or_goes_and_nothing_is_raised(
    key: int, version: int, rest: bytes, with_head: bool
) -> None:
    async def run() -> None:
        network: Any = Sink()
        bench = Bench()
        clock = RealClock()
        shared = Shared(network, Limits(), bench.dispatcher, LimitedLog(logging.getLogger("fuzz"), clock))
        shared.is_open = True
        connection = Connection(shared, 1, "FUZZ", 0.0)
        connection.connection_made(NoTransport())
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) if with_head else b""
        frame = head + rest
        data = len(frame).to_bytes(4, "big") + frame
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        assert bench.broken == []
        assert all(route.failures == 0 for route in bench.dispatcher.routes.values())

    asyncio.run(run())
