"""A transaction that nobody will end: a batch that came after its end, as brokers of old let happen."""

from __future__ import annotations

import asyncio

from klamm.client import ClientConfig, Cluster
from klamm.core.env.real import real_env
from klamm.records.record import Record, encode_batch
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Options of a broker that lets it happen."""


def write_late(bootstrap: str, name: str) -> None:
    """For the only producer in partition 0 of the topic that has its transactional id's name."""
    asyncio.run(_write_late(bootstrap, name))


async def _write_late(bootstrap: str, name: str) -> None:
    env = real_env()
    config = ClientConfig.from_mapping({"bootstrap.servers": bootstrap})
    async with await Cluster.connect(config, env) as cluster:
        asked = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])])
        known = (await cluster.request(asked)).topics[0].partitions[0].active_producers[0]
        batch = encode_batch(
            [Record(0, env.clock.time_ms(), None, b"late")],
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            base_sequence=known.last_sequence + 1,
            transactional=True,
        )
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = await cluster.request(request, version=9)
        assert not answer.responses[0].partition_responses[0].error_code
    env.executor.close()
