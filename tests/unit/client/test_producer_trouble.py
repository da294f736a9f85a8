"""The producer in trouble, on fake brokers: what callers hear of it, and when."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import TOPIC_ID, FakeBroker
from client_log import FakeLogs

from klamm.aio import Producer
from klamm.client import AuthenticationFailed, BrokerSaid, ClientError, TimedOut
from klamm.client.batches import BatchResult
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k00_produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from klamm.wire.messages.k03_metadata import MetadataRequest
from klamm.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

Fake = Callable[[], Awaitable[FakeBroker]]
QUICK = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "retry_backoff_max_ms": 20}
LATE_MS = 60


def producer_of(logs: FakeLogs, **options: Any) -> Producer:
    return Producer(bootstrap_servers=f"127.0.0.1:{logs.brokers[0].port}", **{**QUICK, **options})


class Silence:
    """Produce requests are written, and answered only when `gate` is open."""

    def __init__(self, logs: FakeLogs) -> None:
        self.gate = asyncio.Event()
        self._answer = logs.brokers[0].answers[ProduceRequest]
        logs.brokers[0].on(ProduceRequest, self._later)

    async def _later(self, request: ProduceRequest, version: int) -> object:
        answer = self._answer(request, version)
        await self.gate.wait()
        return answer


async def test_a_password_that_turns_wrong_fails_what_is_sent_at_once(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    broker = logs.brokers[0]
    codes = [0]

    def authenticate(request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=codes[0], error_message="Wrong password." if codes[0] else None)

    broker.on(SaslHandshakeRequest, lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"]))
    broker.on(SaslAuthenticateRequest, authenticate)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    async with producer_of(logs, **login, sasl_username="u", sasl_password="p") as producer:
        await producer.send("t", b"1")
        codes[0] = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
        port = broker.port
        await broker.stop()
        await broker.start(port)
        with pytest.raises(AuthenticationFailed, match=r"t-0: No login at .* by PLAIN: Wrong password") as caught:
            await producer.send("t", b"2")
        assert (caught.value.topic, caught.value.partition, caught.value.retriable) == ("t", 0, False)
        codes[0] = 0  # somebody has put it right
        assert (await producer.send("t", b"3")).offset == 1
    assert logs.values() == [b"1", b"3"]


async def test_a_leader_that_has_moved_says_where_and_nobody_else_is_asked(fake: Fake) -> None:
    one, two = await fake(), await fake()
    logs = FakeLogs(one, two)

    def moved(request: ProduceRequest, version: int) -> ProduceResponse:
        part = PartitionProduceResponse(
            index=0,
            error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            current_leader=LeaderIdAndEpoch(leader_id=two.node_id, leader_epoch=7),
        )
        topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=[part])
        where = NodeEndpoint(node_id=two.node_id, host="127.0.0.1", port=two.port)
        return ProduceResponse(responses=[topic], node_endpoints=[where])

    async with producer_of(logs, batch_size=0, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as producer:
        await producer.send("t", b"0")
        asked = len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest))
        one.on(ProduceRequest, moved)
        two.leaders["t", 0] = two.node_id
        async with asyncio.timeout(30):
            await producer.send_many("t", [b"%d" % number for number in range(1, 20)])
            await producer.flush()
        assert len(one.requests(MetadataRequest)) + len(two.requests(MetadataRequest)) == asked
    assert logs.values() == [b"%d" % number for number in range(20)]


async def test_a_topic_is_looked_for_until_the_broker_is_back(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    broker, port = logs.brokers[0], logs.brokers[0].port
    async with producer_of(logs) as producer:
        await broker.stop()
        sending = asyncio.ensure_future(producer.send("t", b"1"))
        while producer.metrics()["failed-connection-total"] < 2:
            await asyncio.sleep(0.001)
        await broker.start(port)
        assert (await sending).offset == 0


async def test_a_broker_that_stays_away_is_told_of_with_the_topic(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producer_of(logs, max_block_ms=LATE_MS) as producer:
        await logs.brokers[0].stop()
        with pytest.raises(TimedOut, match=r"Finding the topic t did not succeed.*refused") as caught:
            await producer.send("t", b"1")
        assert caught.value.topic == "t"
        await logs.brokers[0].start()


async def test_a_partition_that_was_added_is_found(fake: Fake) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    broker = logs.brokers[0]
    added = broker.leaders.pop(("t", 1))
    async with producer_of(logs, max_block_ms=LATE_MS) as producer:
        await producer.send("t", b"0")
        with pytest.raises(BrokerSaid, match="no partition 1; it has only partition 0") as caught:
            await producer.send("t", b"1", partition=1)
        assert (caught.value.topic, caught.value.partition) == ("t", 1)
        broker.leaders["t", 1] = added
        assert (await producer.send("t", b"1", partition=1)).offset == 0
        await producer.send_many("t", [b"2"], partition=1)
    assert logs.values(1) == [b"1", b"2"]


def let_time_pass(producer: Producer) -> None:
    """All that is not written has been there for longer than delivery.timeout.ms."""
    sender = producer._ready()
    for batch in sender._pending():
        batch.created -= 1000
    sender._driver.wake()


async def test_nobody_waits_longer_than_delivery_timeout_for_an_answer(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    told: list[BatchResult] = []
    async with producer_of(logs, batch_size=0) as producer:
        await producer.send("t", b"0")
        silence = Silence(logs)
        delivery = await producer.send_soon("t", b"1")
        await producer.send_many("t", [b"2"], on_batch=told.append)
        while producer.metrics()["produce-requests-in-flight"] < 2:
            await asyncio.sleep(0)
        let_time_pass(producer)
        with pytest.raises(TimedOut, match=r"t-0: 1 records were sent, and have not been acknowledged") as caught:
            await delivery
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        await producer.flush()
        assert isinstance(told[0].error, TimedOut)
        assert producer._ready().records.memory.used > 0  # they are still on their way
        silence.gate.set()
        assert (await producer.send("t", b"3")).offset == 3
        assert producer._ready().records.memory.used == 0
        assert producer.metrics()["record-error-total"] == 2
    assert (logs.values(), logs.producer_ids) == ([b"0", b"1", b"2", b"3"], 1)
    assert len(told) == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE])
async def test_what_is_refused_after_its_time_is_not_sent_again(fake: Fake, code: ErrorCode) -> None:
    logs = FakeLogs(await fake())
    async with producer_of(logs) as producer:
        await producer.send("t", b"0")
        silence = Silence(logs)
        codes = iter([code])
        logs.fault = lambda partition: next(codes, None)
        await producer.send_many("t", [b"1", b"2"])
        flushing = asyncio.ensure_future(producer.flush())
        while not producer.metrics()["produce-requests-in-flight"]:
            await asyncio.sleep(0)
        let_time_pass(producer)
        with pytest.raises(TimedOut):
            await flushing
        silence.gate.set()
        assert (await producer.send("t", b"3")).offset == 1
        assert producer._ready().records.memory.used == 0
    assert (logs.values(), logs.producer_ids) == ([b"0", b"3"], 2)


async def test_an_error_of_time_says_what_was_in_the_way(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producer_of(logs) as producer:
        await producer.send("t", b"0")
        logs.fault = lambda partition: ErrorCode.NOT_ENOUGH_REPLICAS
        delivery = await producer.send_soon("t", b"1")
        while not producer.metrics()["record-retry-total"]:
            await asyncio.sleep(0)
        let_time_pass(producer)
        with pytest.raises(TimedOut, match=r"in 120 s\. The last error: .*NOT_ENOUGH_REPLICAS"):
            await delivery
        await logs.brokers[0].stop()
        delivery = await producer.send_soon("t", b"2")
        while not producer._ready()._in_the_way:
            await asyncio.sleep(0)
        let_time_pass(producer)
        with pytest.raises(TimedOut, match=r"not written in 120 s\. The last error: .*refused"):
            await delivery
        await logs.brokers[0].start()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_large_batches_are_compressed_in_a_thread_and_keep_their_order(
    fake: Fake, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klamm.client import batches, sending
    from klamm.records.compression import compress

    threads: list[bool] = []

    def noted(*arguments: Any) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return compress(*arguments)

    monkeypatch.setattr(sending, "compress", noted)
    monkeypatch.setattr(batches, "compress", noted)
    logs = FakeLogs(await fake(), partitions=2)
    faults = iter([None, None, "lost after", None, "lost before", ErrorCode.NOT_LEADER_OR_FOLLOWER])
    logs.fault = lambda partition: next(faults, None)
    values = [b"%04d" % number * 500 for number in range(1000)]
    async with producer_of(logs, compression_type=codec, batch_size=100_000) as producer:
        for partition in range(2):
            await producer.send_many("t", values, partition=partition)
        await producer.flush()
        assert producer._ready().records.memory.used == 0
        assert threads.count(False) >= 40
        few = len(threads)
        await producer.send("t", b"small", partition=0)
        assert threads[few:] == [True]
    assert logs.values(0) == [*values, b"small"]
    assert logs.values(1) == values


async def test_a_producer_that_is_closed_twice_at_a_time_writes_what_it_has(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    producer = producer_of(logs)
    await producer.start()
    await producer.send("t", b"0")
    silence = Silence(logs)
    delivery = await producer.send_soon("t", b"1")
    closing = [asyncio.ensure_future(producer.close()) for _ in range(2)]
    while len(logs.brokers[0].requests(ProduceRequest)) < 2:
        await asyncio.sleep(0)
    assert not any(each.done() for each in closing)
    silence.gate.set()
    await asyncio.gather(*closing)
    assert (await delivery).offset == 1


async def test_topics_that_nobody_sends_to_are_not_asked_for_any_more(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.client.sender.CREATION_WAIT_MS", 10)
    logs = FakeLogs(await fake())
    broker = logs.brokers[0]
    broker.leaders["other", 0] = 1
    async with producer_of(logs, metadata_max_age_ms=1, metadata_max_idle_ms=5000) as producer:
        with pytest.raises(BrokerSaid):
            async with asyncio.timeout(30):
                await producer.send("no such", b"")
        await producer.partitions_for("other")
        await producer.send("t", b"0")
        sender = producer._ready()
        sender.records.used_at["other"] = sender.records.used_at["t"] - 10
        broker.asked.clear()
        while not (found := broker.requests(MetadataRequest)):
            await producer.send("t", b"0")
        assert [topic.name for topic in found[-1].topics] == ["t"]
        assert (await producer.partitions_for("other"))[0].leader == 1


async def test_bulk_keeps_to_its_memory_with_large_batches_of_many_partitions(fake: Fake) -> None:
    logs = FakeLogs(await fake(), partitions=200)
    silence = Silence(logs)
    async with producer_of(logs, batch_size=1 << 20, buffer_memory=1 << 20, linger_ms=60_000) as producer:
        value = b"x" * 100_000
        keys = [b"%d" % number for number in range(400)]
        sending = asyncio.ensure_future(producer.send_many("t", [value] * len(keys), keys=keys))
        while not producer._ready().records.memory.used:
            await asyncio.sleep(0)
        assert producer._ready().records.memory.used < 10 << 20
        sending.cancel()
        silence.gate.set()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"topic": None}, "None is no name of a topic"),
        ({"topic": ""}, "'' is no name of a topic"),
        ({"partition": -1}, "t: -1 is no partition"),
        ({"partition": "0"}, "t: '0' is no partition"),
    ],
)
async def test_what_can_never_be_a_place_is_refused_at_once(fake: Fake, wrong: dict[str, Any], says: str) -> None:
    logs = FakeLogs(await fake())
    async with producer_of(logs) as producer:
        with pytest.raises(ClientError, match=says):
            await producer.send(**{"topic": "t", "value": b"", **wrong})
        await producer.send_many("t", [b"1"], headers=[{"h": b"v"}])
    assert logs.logs[0].records[0].headers == (("h", b"v"),)
