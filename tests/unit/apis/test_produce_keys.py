"""A compacted topic takes records with keys only, and says which ones had none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.core.errors import ErrorCode
from klamm.records.batch import BatchHeader, iter_batches, read_header, seal
from klamm.records.compression import Codec, compress
from klamm.records.record import Record, decode_records, encode_batch
from klamm.replica import recoding
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

LARGE = b"x" * 200_000


def batch(keys: Sequence[bytes | None], value: bytes | None = b"v", **options: Any) -> bytes:
    return encode_batch([Record(0, 1_700_000_000_000, key, value) for key in keys], **options)


def produce(records: bytes, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[TopicProduceData(name="t", partition_data=[part])])


async def send(node: Any, records: bytes, version: int = 9) -> Any:
    response = await node.call(produce(records), version)
    return response.responses[0].partition_responses[0]


async def keys(node: Any) -> list[bytes | None]:
    want = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 25)
    request = FetchRequest(
        replica_id=-1, min_bytes=1, max_bytes=1 << 25, topics=[FetchTopic(topic="t", partitions=[want])]
    )
    response = await node.call(request, 12)
    data = bytes(response.responses[0].partitions[0].records)
    return [record.key for position, _ in iter_batches(data) for record in decode_records(data, position)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("value", [b"v", LARGE, None], ids=["small", "large", "tombstone"])
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_records_without_a_key_are_refused_each_by_its_place_in_the_batch(
    node: Any, codec: Codec, value: bytes | None, policy: str
) -> None:
    await node.create(cleanup_policy=policy, max_message_bytes="2000000")
    assert (await send(node, batch([b"a", b"", b"c"], value, codec=codec))).error_code == 0
    answer = await send(node, batch([b"a", None, b"c", None], value, codec=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD and answer.base_offset == -1
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all("without a key" in error.batch_index_error_message for error in answer.record_errors)
    assert "2 records" in answer.error_message
    assert await keys(node) == [b"a", b"", b"c"]


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_version_refuses_and_from_v8_on_names_the_records(node: Any, version: int) -> None:
    topic_id = await node.create(cleanup_policy="compact")
    request = produce(batch([None, b"b"]))
    request.topic_data[0].topic_id = topic_id
    response = await node.call(request, version)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == ([0] if version >= 8 else [])


async def test_a_topic_that_is_not_compacted_takes_them(node: Any) -> None:
    await node.create()
    assert (await send(node, batch([None, b"b"]))).error_code == 0


async def test_large_batches_keep_their_place_in_the_line(node: Any, tools: Any) -> None:
    await node.create(cleanup_policy="compact", compression_type="lz4", max_message_bytes="2000000")
    requests = [
        produce(batch([b"%d" % i], LARGE if i % 3 == 0 else b"v", producer_id=1, producer_epoch=0, base_sequence=i))
        for i in range(10)
    ]
    begun = [node.begin(request, 9) for request in requests]
    assert node.partition().line is not None
    for i, answer in enumerate(await asyncio.gather(*map(tools.finished, begun))):
        response = node.decoded(requests[i], 9, answer).responses[0].partition_responses[0]
        assert (response.error_code, response.base_offset) == (0, i)
    assert await keys(node) == [b"%d" % i for i in range(10)]


async def test_a_refusal_names_so_many_records_and_no_more(node: Any) -> None:
    await node.create(cleanup_policy="compact")
    answer = await send(node, batch([None] * (recoding.MAX_RECORD_ERRORS + 5)))
    assert len(answer.record_errors) == recoding.MAX_RECORD_ERRORS


@pytest.mark.parametrize("codec", list(Codec))
async def test_bytes_that_are_no_records_are_refused(node: Any, codec: Codec) -> None:
    await node.create(cleanup_policy="compact")
    header = read_header(batch([b"k"]))
    torn = seal(header._replace(attributes=codec), compress(codec, b"\x01\x02\x03 nothing of use"))
    assert (await send(node, torn)).error_code == ErrorCode.CORRUPT_MESSAGE
    broken = bytearray(batch([b"k"], codec=codec))
    broken[-1] ^= 1
    assert (await send(node, bytes(broken))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await send(node, b"x")).error_code != 0


async def test_a_batch_that_counts_millions_is_refused_before_anybody_walks_over_it(node: Any) -> None:
    await node.create(cleanup_policy="compact")
    count = 5_000_000
    payload = compress(Codec.ZSTD, b"\0" * (7 * count))
    header = BatchHeader(0, 0, -1, 2, 0, Codec.ZSTD, count - 1, 0, 0, -1, -1, -1, count)
    assert (await send(node, seal(header, payload))).error_code == ErrorCode.MESSAGE_TOO_LARGE
