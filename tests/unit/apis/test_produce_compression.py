"""Topics with a compression.type of their own: what is stored, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Hangup
from klamm.core.errors import ErrorCode
from klamm.log.results import Rejected
from klamm.records.batch import iter_batches
from klamm.records.compression import Codec
from klamm.records.record import decode_records
from klamm.replica import recoding
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

SMALL, LARGE = b"small ", b"large " * 10_000


def produce(*batches: bytes, acks: int = -1, first: int = 0) -> ProduceRequest:
    """One batch for each partition, from the first on."""
    parts = [PartitionProduceData(index=first + i, records=batch) for i, batch in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])


async def send(node: Any, request: ProduceRequest) -> list[Any]:
    response = await node.call(request, 9)
    return list(response.responses[0].partition_responses)


async def stored(node: Any, index: int = 0) -> bytes:
    want = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 25)
    request = FetchRequest(
        replica_id=-1, min_bytes=1, max_bytes=1 << 25, topics=[FetchTopic(topic="t", partitions=[want])]
    )
    response = await node.call(request, 12)
    return bytes(response.responses[0].partitions[0].records)


async def values(node: Any, index: int = 0) -> list[bytes | None]:
    data = await stored(node, index)
    return [record.value for position, _ in iter_batches(data) for record in decode_records(data, position)]


def codecs_of(data: bytes) -> set[int]:
    return {header.codec for _, header in iter_batches(data)}


@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
async def test_a_batch_is_stored_as_its_topic_wants_it(
    node: Any, tools: Any, kind: str, codec: Codec, value: bytes
) -> None:
    await node.create(compression_type=kind)
    for i, sent in enumerate(Codec):
        (answer,) = await send(node, produce(tools.batch(value, b"second", codec=sent)))
        assert (answer.error_code, answer.base_offset) == (0, 2 * i)
    assert codecs_of(await stored(node)) == {codec}
    assert await values(node) == [value, b"second"] * len(Codec)


async def test_the_producers_codec_is_kept_unless_the_topic_says_otherwise(node: Any, tools: Any) -> None:
    await node.create()
    for codec in Codec:
        await send(node, produce(tools.batch(LARGE, codec=codec)))
    assert codecs_of(await stored(node)) == set(Codec)


async def test_batches_keep_their_order_whatever_their_size(node: Any, tools: Any) -> None:
    """An idempotent producer with many requests in flight: any other order would be an error."""
    await node.create(compression_type="gzip")
    sent = [b"%d " % i * (10_000 if i % 3 == 0 else 1) for i in range(30)]
    requests = [
        produce(tools.batch(value, producer_id=1, producer_epoch=0, base_sequence=i)) for i, value in enumerate(sent)
    ]
    begun = [node.begin(request, 9) for request in requests]
    assert node.partition().line is not None
    finished = [
        node.decoded(request, 9, answer)
        for request, answer in zip(requests, await asyncio.gather(*map(tools.finished, begun)), strict=True)
    ]
    answers = [response.responses[0].partition_responses[0] for response in finished]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, i) for i in range(30)]
    assert await values(node) == sent
    assert node.partition().line is None


async def test_a_retried_batch_is_a_duplicate_as_ever(node: Any, tools: Any) -> None:
    await node.create(compression_type="zstd")
    batch = tools.batch(LARGE, producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        (answer,) = await send(node, produce(batch))
        assert (answer.error_code, answer.base_offset) == (0, 0)
    assert await values(node) == [LARGE]


async def test_a_bad_batch_is_refused_and_those_around_it_are_stored(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    broken = bytearray(tools.batch(LARGE))
    broken[-1] ^= 1
    batches = [tools.batch(LARGE), bytes(broken), tools.batch(b"last")]
    answers = await asyncio.gather(*(send(node, produce(batch)) for batch in batches))
    codes = [answer.error_code for (answer,) in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
    assert await values(node) == [LARGE, b"last"]


async def test_each_partition_of_a_request_has_its_own_answer(node: Any, tools: Any) -> None:
    await node.create(partitions=3, compression_type="lz4")
    answers = await send(node, produce(tools.batch(LARGE), b"no batch at all", tools.batch(SMALL)))
    assert [answer.index for answer in answers] == [0, 1, 2]
    assert [answer.error_code for answer in answers] == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert await values(node, 0) == [LARGE]
    assert await values(node, 2) == [SMALL]


async def test_what_is_too_large_once_decompressed_is_refused(node: Any, tools: Any) -> None:
    await node.create(compression_type="uncompressed", max_message_bytes="50000")
    (answer,) = await send(node, produce(tools.batch(LARGE, codec=Codec.GZIP)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    (answer,) = await send(node, produce(tools.batch(LARGE)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await stored(node) == b""


async def test_a_small_batch_that_holds_much_does_not_hold_up_the_loop(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    batch = tools.batch(bytes(5 << 20), codec=Codec.ZSTD)
    assert len(batch) < recoding.INLINE_BYTES
    begun = node.begin(produce(batch), 9)
    assert node.partition().line is not None
    await tools.finished(begun)
    assert await values(node) == [bytes(5 << 20)]


async def test_a_waiting_fetch_is_told_of_a_batch_that_took_longer(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        replica_id=-1, max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[want])]
    )
    waiting = asyncio.create_task(node.call(fetch, 12))
    await asyncio.sleep(0)
    await send(node, produce(tools.batch(LARGE)))
    response = await waiting
    assert len(bytes(response.responses[0].partitions[0].records)) > 0


async def test_without_an_answer_an_error_still_hangs_up(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    assert await node.call(produce(tools.batch(LARGE), acks=0), 9) is None
    assert await values(node) == [LARGE]
    broken = bytearray(tools.batch(LARGE))
    broken[-1] ^= 1
    with pytest.raises(Hangup):
        await node.call(produce(bytes(broken), acks=0), 9)


async def test_the_line_of_a_partition_is_bounded(node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create(compression_type="gzip")
    batch = tools.batch(LARGE)
    monkeypatch.setattr(recoding, "MAX_WAITING_BYTES", 2 * len(batch))
    answers = await asyncio.gather(*(send(node, produce(batch)) for _ in range(5)))
    codes = [answer.error_code for (answer,) in answers]
    assert codes == [0, 0] + 3 * [ErrorCode.REQUEST_TIMED_OUT]
    (answer,) = await send(node, produce(batch))
    assert answer.error_code == 0


async def test_what_a_new_producer_sent_behind_a_batch_that_found_no_room_is_not_its_first(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be, for the log: the batch before it could then never be written."""
    await node.create(compression_type="gzip")
    others = tools.batch(LARGE)
    monkeypatch.setattr(recoding, "MAX_WAITING_BYTES", len(others) + 1000)
    first = tools.batch(LARGE, producer_id=1, producer_epoch=0, base_sequence=0)
    second = tools.batch(b"second", producer_id=1, producer_epoch=0, base_sequence=1)
    answers = await asyncio.gather(*(send(node, produce(batch)) for batch in (others, first, second)))
    codes = [answer.error_code for (answer,) in answers]
    assert codes == [0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    for batch in (first, second):
        (answer,) = await send(node, produce(batch))
        assert answer.error_code == 0
    assert await values(node) == [LARGE, LARGE, b"second"]


async def test_a_producer_whose_first_batch_is_in_the_line_may_be_refused_the_next(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create(compression_type="gzip")
    first, second = (tools.batch(LARGE, producer_id=1, producer_epoch=0, base_sequence=i) for i in range(2))
    monkeypatch.setattr(recoding, "MAX_WAITING_BYTES", len(first))
    answers = await asyncio.gather(*(send(node, produce(batch)) for batch in (first, second)))
    assert [answer.error_code for (answer,) in answers] == [0, ErrorCode.REQUEST_TIMED_OUT]
    (answer,) = await send(node, produce(second))
    assert (answer.error_code, answer.base_offset) == (0, 1)


@pytest.mark.parametrize("kind", ["uncompressed", "snappy"])
async def test_what_grows_too_large_does_not_wait_in_the_line(
    node: Any, tools: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few kilobytes of requests could take gigabytes."""
    await node.create(compression_type=kind, max_message_bytes="50000")
    outcomes = []
    recoded = recoding._prepared

    def seen(*args: Any) -> Any:
        outcomes.append(recoded(*args))
        return outcomes[-1]

    monkeypatch.setattr(recoding, "_prepared", seen)
    batch = tools.batch(bytes(5 << 20), codec=Codec.ZSTD)
    assert len(batch) < 5_000
    (answer,) = await send(node, produce(batch))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert [type(outcome) for outcome in outcomes] == [Rejected]


async def test_a_change_of_the_option_holds_for_the_next_batch(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    partition = node.partition()
    begun = [node.begin(produce(tools.batch(LARGE)), 9)]
    partition.log.config = partition.log.config._replace(compression=None)
    begun.append(node.begin(produce(tools.batch(b"behind it", codec=Codec.ZSTD)), 9))
    await asyncio.gather(*map(tools.finished, begun))
    data = await stored(node)
    assert [header.codec for _, header in iter_batches(data)] == [Codec.GZIP, Codec.ZSTD]
    assert await values(node) == [LARGE, b"behind it"]


async def test_a_deleted_topic_refuses_what_is_still_in_line(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    request = produce(tools.batch(LARGE))
    begun = node.begin(request, 9)
    node.partition().stop_leading(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    response = node.decoded(request, 9, await tools.finished(begun))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_broker_that_stops_appends_nothing_more(node: Any, tools: Any) -> None:
    await node.create(compression_type="gzip")
    request = produce(tools.batch(LARGE))
    begun = [node.begin(request, 9) for _ in range(5)]
    node.broker.replicas.close()
    for answer in await asyncio.gather(*map(tools.finished, begun)):
        response = node.decoded(request, 9, answer)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.partition().log.end_offset == 0
    late = node.partition().append(bytearray(tools.batch(LARGE)), -1)
    assert isinstance(await late, Rejected)


async def test_an_append_that_fails_unexpectedly_is_told_and_the_line_goes_on(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create(compression_type="gzip")
    log = node.partition().log
    append = type(log).append
    failures = iter([ValueError("a fault of ours")])

    def fail_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        for failure in failures:
            raise failure
        return append(self, *args, **kwargs)

    monkeypatch.setattr(type(log), "append", fail_once)
    first, second = (node.begin(produce(tools.batch(value)), 9) for value in (LARGE, SMALL))
    with pytest.raises(ValueError, match="a fault of ours"):
        await tools.finished(first)
    await tools.finished(second)
    assert await values(node) == [SMALL]
