from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.apis.api import Answer, Api, Context, Pending
from klamm.core.env.real import RealClock
from klamm.core.errors import ErrorCode
from klamm.server.dispatch import Dispatcher
from klamm.server.faults import MAX_FAULTS, FaultError, Faults
from klamm.wire.frames import decode_response, encode_request
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

VERSION = 4
BROKER: Any = object()
OK = ErrorCode.NONE


class Bench:
    """A server whose heartbeats answer at once, later or by a coroutine; a heartbeat's answer has its number."""

    def __init__(self) -> None:
        self.how = "now"
        self.seen: list[int] = []
        self.pending: list[Pending] = []
        self.dispatcher = Dispatcher(
            BROKER,
            [
                Api(
                    HeartbeatRequest,
                    self._handle,
                    key=12,
                    versions=(0, 4),
                    on_error=lambda request, version, code: HeartbeatResponse(
                        error_code=code, throttle_time_ms=request.generation_id
                    ),
                    shortcut=self._shortcut,
                ),
                Api(ApiVersionsRequest, lambda ctx, r: ApiVersionsResponse(), key=18, versions=(0, 4)),
            ],
            RealClock(),
            lambda error: None,
        )
        self.shortcuts = 0

    def _shortcut(self, ctx: Context, frame: memoryview, body: int) -> None:
        self.shortcuts += 1

    def _handle(self, ctx: Context, request: HeartbeatRequest) -> Answer:
        self.seen.append(request.generation_id)
        if self.how == "nothing":
            return None
        if self.how == "pending":
            self.pending.append(Pending())
            return self.pending[-1]
        if self.how == "set":
            done = Pending()
            done.set(_answer(request.generation_id))
            return done
        if self.how == "coroutine":
            return self._later(request.generation_id)
        return _answer(request.generation_id)

    async def _later(self, number: int) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return _answer(number)


def _answer(number: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=OK, throttle_time_ms=number)


class Stage:
    def __init__(self, bench: Bench, place: Any, client: Any) -> None:
        self.bench = bench
        self.place = place
        self.client = client
        self.faults = Faults(place.server, bench.dispatcher.routes)

    def ask(self, *numbers: int, client: Any = None) -> None:
        frames = []
        for number in numbers:
            request = HeartbeatRequest(group_id="g", generation_id=number)
            frames.append(b"".join(encode_request(request, VERSION, number, "me"))[4:])  # type: ignore[arg-type]
        (client or self.client).send(*frames)

    async def told(self, client: Any = None) -> tuple[int, int]:
        """The number of the next answer, and its error."""
        _, answer = decode_response(HeartbeatResponse, await (client or self.client).receive(), VERSION)
        return answer.throttle_time_ms, answer.error_code

    async def until_seen(self, *numbers: int) -> None:
        await self.place.until(lambda: self.bench.seen == list(numbers))


@pytest.fixture
async def stage(serve: Any) -> AsyncIterator[Stage]:
    bench = Bench()
    place = await serve(bench.dispatcher)
    made = Stage(bench, place, await place.connect())
    made.ask(0)
    assert await made.told() == (0, OK)
    bench.seen.clear()
    yield made
    await made.faults.clear()


async def test_an_api_fails_as_often_as_asked_and_is_not_handled_then(stage: Stage) -> None:
    stage.faults.fail("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS, times=2)
    assert stage.faults.left("Heartbeat") == 2
    stage.ask(1, 2, 3)
    assert [await stage.told() for _ in range(3)] == [(1, 27), (2, 27), (3, OK)]
    assert stage.bench.seen == [3]
    assert stage.faults.left(12) == 0


async def test_faults_come_in_the_order_they_were_asked_for(stage: Stage) -> None:
    stage.faults.fail(12, ErrorCode.NOT_COORDINATOR)
    stage.faults.fail(12, ErrorCode.UNKNOWN_MEMBER_ID)
    stage.ask(1, 2, 3)
    assert [await stage.told() for _ in range(3)] == [(1, 16), (2, 25), (3, OK)]


async def test_a_fault_without_a_number_lasts_until_it_is_cleared(stage: Stage) -> None:
    stage.faults.fail("Heartbeat", ErrorCode.NOT_COORDINATOR, times=None)
    assert stage.faults.left("Heartbeat") == 1
    stage.ask(*range(1, 21))
    assert {(await stage.told())[1] for _ in range(20)} == {16}
    await stage.faults.clear()
    stage.ask(21)
    assert await stage.told() == (21, OK)


async def test_the_shortcut_is_back_when_the_fault_is_gone(stage: Stage) -> None:
    before = stage.bench.shortcuts
    stage.faults.fail("Heartbeat", ErrorCode.NOT_COORDINATOR)
    stage.ask(1)
    await stage.told()
    assert stage.bench.shortcuts == before
    stage.ask(2)
    await stage.told()
    assert stage.bench.shortcuts == before + 1


@pytest.mark.parametrize("how", ["now", "coroutine", "nothing", "set"])
async def test_a_request_is_handled_and_then_the_connection_is_closed(stage: Stage, how: str) -> None:
    stage.bench.how = how
    stage.faults.hang_up_after("Heartbeat")
    stage.ask(1)
    assert await stage.client.is_cut_off()
    assert stage.bench.seen == [1]
    stage.bench.how = "now"
    other = await stage.place.connect()
    stage.ask(2, client=other)
    assert await stage.told(other) == (2, OK)


async def test_a_connection_is_closed_only_when_the_answer_would_have_come(stage: Stage) -> None:
    stage.bench.how = "pending"
    stage.faults.hang_up_after("Heartbeat")
    stage.ask(1)
    await stage.until_seen(1)
    assert stage.place.server.connections == 1
    stage.bench.pending[0].set(_answer(1))
    assert await stage.client.is_cut_off()


async def test_an_answer_that_nobody_waits_for_any_more_is_cancelled(stage: Stage) -> None:
    stage.bench.how = "pending"
    stage.faults.hang_up_after("Heartbeat")
    stage.ask(1)
    await stage.until_seen(1)
    await stage.client.close()
    await stage.place.until(lambda: stage.place.server.connections == 0)
    assert stage.bench.pending[0].done


async def test_a_paused_broker_reads_nothing_and_answers_nothing(stage: Stage) -> None:
    stage.bench.how = "pending"
    stage.ask(1)
    await stage.until_seen(1)
    stage.faults.pause()
    stage.faults.pause()
    stage.bench.pending[0].set(_answer(1))
    stage.ask(2)
    newcomer = await stage.place.connect()
    stage.ask(9, client=newcomer)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # nothing to wait for: that nothing comes is the point
            await stage.told()
    assert stage.bench.seen == [1]
    stage.bench.how = "now"
    stage.faults.resume()
    stage.faults.resume()
    assert [await stage.told(), await stage.told()] == [(1, OK), (2, OK)]
    assert await stage.told(newcomer) == (9, OK)


async def test_requests_that_were_read_before_the_pause_are_handled_after_it(stage: Stage) -> None:
    numbers = list(range(1, 1001))  # more than one turn's worth
    stage.ask(*numbers)
    await stage.place.until(lambda: bool(stage.bench.seen))
    stage.faults.pause()
    assert len(stage.bench.seen) < 1000
    stage.faults.resume()
    assert [(await stage.told())[0] for _ in numbers] == numbers


async def test_a_broker_that_refuses_connections_cuts_those_that_there_are(stage: Stage) -> None:
    stage.faults.refuse_connections()
    assert await stage.client.is_cut_off()
    with pytest.raises(ConnectionRefusedError):
        await stage.place.connect()
    await stage.faults.accept_connections()
    await stage.faults.accept_connections()
    again = await stage.place.connect()
    stage.ask(1, client=again)
    assert await stage.told(again) == (1, OK)


async def test_dropping_connections_leaves_the_door_open(stage: Stage) -> None:
    assert stage.faults.drop_connections() == 1
    assert await stage.client.is_cut_off()
    again = await stage.place.connect()
    stage.ask(1, client=again)
    assert await stage.told(again) == (1, OK)


async def test_a_delayed_answer_comes_late_and_in_order_though_the_request_is_handled_at_once(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    stage.faults.delay(0.05, "Heartbeat")
    stage.ask(1, 2)
    await stage.until_seen(1, 2)
    assert [await stage.told(), await stage.told()] == [(1, OK), (2, OK)]
    assert loop.time() - began >= 0.05
    stage.faults.delay(0, "Heartbeat")
    assert stage.bench.dispatcher.routes[12].handle == stage.bench._handle


async def test_a_delay_of_all_apis_goes_with_a_fault_of_one(stage: Stage) -> None:
    stage.faults.delay(0.01)
    stage.faults.fail("Heartbeat", ErrorCode.NOT_COORDINATOR)
    stage.ask(1, 2)
    assert [await stage.told(), await stage.told()] == [(1, 16), (2, OK)]


async def test_a_test_may_ask_how_many_requests_came(stage: Stage) -> None:
    before = stage.faults.requests("Heartbeat")
    stage.ask(1, 2)
    await stage.told(), await stage.told()
    assert stage.faults.requests("Heartbeat") == before + 2


async def test_a_fault_that_cannot_be_is_refused_with_the_reason(stage: Stage) -> None:
    with pytest.raises(FaultError, match="did you mean Heartbeat"):
        stage.faults.fail("Hartbeat", 16)
    with pytest.raises(FaultError, match="not an API"):
        stage.faults.requests(999)
    with pytest.raises(FaultError, match="4711 is no error code"):
        stage.faults.fail("Heartbeat", 4711)
    with pytest.raises(FaultError, match="0 is no error code"):
        stage.faults.fail("Heartbeat", 0)
    with pytest.raises(FaultError, match="ApiVersions has no answer"):
        stage.faults.fail("ApiVersions", 35)
    with pytest.raises(FaultError, match="once at least"):
        stage.faults.hang_up_after("Heartbeat", times=0)
    with pytest.raises(FaultError, match="negative"):
        stage.faults.delay(-1)


async def test_faults_that_wait_are_bounded(stage: Stage) -> None:
    for _ in range(MAX_FAULTS):
        stage.faults.fail("Heartbeat", 16)
    with pytest.raises(FaultError, match="wait for Heartbeat already"):
        stage.faults.fail("Heartbeat", 16)
