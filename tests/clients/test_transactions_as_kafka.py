"""What a producer hears in a transaction, request by request: the same as from Apache Kafka."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NamedTuple

import pytest

from klamm.client import ClientConfig, Cluster
from klamm.client.errors import error_code
from klamm.core.env import Env
from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.records.record import Record, encode_batch
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.k26_end_txn import EndTxnRequest
from klamm.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, TransactionState
from support.apache_kafka import ApacheKafka
from support.downloads import FETCH_LIMIT_S
from support.process import BrokerProcess

PAUSE_S = 0.02
ATTEMPTS = 1000
SEEDS = 16
STEPS = 25
TOPIC = "compared"
NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class Who(NamedTuple):
    name: str | None
    id: int
    epoch: int


class Talk:
    """Requests to one broker, and what came back, in the order in which they were made."""

    def __init__(self, cluster: Cluster, env: Env) -> None:
        self.heard: list[tuple[str, object]] = []
        self._cluster = cluster
        self._env = env
        self._topic_id = b""

    def note(self, what: str, answer: object) -> None:
        self.heard.append((what, answer))

    async def create_topic(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
        made = await self._cluster.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        self._topic_id = made.topics[0].topic_id
        await self._cluster.metadata([TOPIC])
        for partition in range(3):  # Kafka names a leader a moment before it leads
            asked = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[partition])])
            await self._until(asked, 0, lambda answer: answer.topics[0].partitions[0])

    async def init(self, name: str, timeout_ms: int = 60_000) -> Who | str:
        await self._until(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4, lambda a: a.coordinators[0])
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = await self._until(request, 4, lambda a: a)
        return _name(answer.error_code) if answer.error_code else Who(name, answer.producer_id, answer.producer_epoch)

    async def init_again(self, what: str, who: Who, expected: Who | None) -> Who:
        """Who the producer is afterwards: the same if it was refused."""
        request = InitProducerIdRequest(transactional_id=who.name, transaction_timeout_ms=60_000)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected.id, expected.epoch
        answer = await self._until(request, 4, lambda a: a)
        self.note(what, (_name(answer.error_code), answer.producer_epoch, answer.producer_id == who.id))
        return who if answer.error_code else Who(who.name, answer.producer_id, answer.producer_epoch)

    async def transaction(self, what: str, who: Who) -> None:
        """What the coordinator knows, once no markers are under way."""
        found = await self._settled(who)
        partitions = sorted(index for topic in found.topics for index in topic.partitions)
        self.note(what, (found.transaction_state, found.producer_epoch, found.producer_id == who.id, partitions))

    async def _settled(self, who: Who) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[str(who.name)])
        for _ in range(ATTEMPTS):
            (found,) = (await self._cluster.request(request, node=1)).transaction_states
            if not found.transaction_state.startswith("Prepare"):
                return found
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"the markers of {who} are never written")

    async def _until(self, request: Any, version: int, part: Any) -> Any:
        """The answer that is not only that it is too early."""
        for _ in range(ATTEMPTS):
            answer = part(await self._cluster.request(request, version=version, node=1))
            if error_code(answer.error_code) not in NOT_YET:
                return answer
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{request} is always too early")

    async def produce(
        self, what: str, who: Who, sequence: int, *, partition: int = 0, version: int = 9, transactional: bool = True
    ) -> None:
        batch = encode_batch(
            [Record(0, self._env.clock.time_ms(), b"k", b"v")],
            producer_id=who.id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        data = PartitionProduceData(index=partition, records=batch)
        topic = TopicProduceData(name=TOPIC, topic_id=self._topic_id, partition_data=[data])
        request = ProduceRequest(transactional_id=who.name, acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = (await self._cluster.request(request, version=version, node=1)).responses[0].partition_responses[0]
        self.note(f"v{version}: {what}", (_name(answer.error_code), answer.base_offset))

    async def add(self, what: str, who: Who, partition: int = 0) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who.name,
            v3_and_below_producer_id=who.id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
        )
        answer = await self._cluster.request(request, version=3, node=1)
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        self.note(what, _name(result.partition_error_code))

    async def end(self, what: str, who: Who, *, commit: bool = True, version: int = 3) -> Who:
        """Who the producer is afterwards. Kafka answers before it has written the markers, so they are waited for."""
        request = EndTxnRequest(
            transactional_id=who.name, producer_id=who.id, producer_epoch=who.epoch, committed=commit
        )
        answer = await self._until(request, version, lambda a: a)
        raised = answer.producer_epoch - who.epoch if version >= 5 and not answer.error_code else None
        self.note(f"v{version}: {what}", (_name(answer.error_code), raised))
        if not answer.error_code:
            await self._settled(who)
        return who if raised is None else Who(who.name, answer.producer_id, answer.producer_epoch)

    async def state(self, who: Who, partition: int = 0) -> tuple[int, int, int, int] | None:
        """Epoch, last sequence, coordinator's epoch, start of the open transaction."""
        asked = TopicRequest(name=TOPIC, partition_indexes=[partition])
        answer = await self._cluster.request(DescribeProducersRequest(topics=[asked]), node=1)
        for one in answer.topics[0].partitions[0].active_producers:
            if one.producer_id == who.id:
                return one.producer_epoch, one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset
        return None

    async def marker(
        self, what: str, who: Who, *, partition: int = 2, coordinator_epoch: int = 0, version: int = 0
    ) -> None:
        marker = WritableTxnMarker(
            producer_id=who.id,
            producer_epoch=who.epoch,
            transaction_result=False,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[partition])],
        )
        answer = await self._cluster.request(WriteTxnMarkersRequest(markers=[marker]), version=2, node=1)
        self.note(what, _name(answer.markers[0].topics[0].partitions[0].error_code))

    async def stable_offset(self, partition: int) -> int:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])
        answer = await self._cluster.request(request, node=1)
        return int(answer.topics[0].partitions[0].offset)


def _name(number: int) -> str:
    return error_code(number).name


async def protocol_1(talk: Talk) -> None:
    who = await talk.init("one")
    assert isinstance(who, Who)
    for version in (9, 10, 11):
        await talk.produce("a partition that was not added", who, 0, version=version)
    await talk.add("add", who)
    for what, sequence in (("first", 0), ("second", 1), ("second again", 1), ("a gap", 7)):
        await talk.produce(what, who, sequence)
    await talk.produce("outside of the open transaction", who._replace(name=None), 2, transactional=False)
    await talk.produce("not transactional, but with an id", who, 2, transactional=False)
    await talk.produce("transactional, but without an id", who._replace(name=None), 2)
    talk.note("while it is open", await talk.state(who))
    await talk.end("commit", who)
    talk.note("after its end", await talk.state(who))
    await talk.produce("after its end", who, 2)
    await talk.produce("a duplicate after its end", who, 1)
    await talk.end("commit again", who)
    await talk.end("abort what was committed", who, commit=False)
    new = await talk.init("one")
    assert isinstance(new, Who)
    talk.note("the next epoch", (new.id == who.id, new.epoch - who.epoch))
    for version in (9, 11, 12):
        await talk.produce("fenced", who, 2, version=version)
    await talk.add("add, fenced", who)
    await talk.end("commit, fenced", who)
    await talk.add("add", new)
    await talk.produce("a new epoch that does not begin with 0", new, 5)
    await talk.add("add another", new, 1)
    await talk.produce("an unknown producer that does not begin with 0", new, 5, partition=1)
    for version in (9, 12):
        await talk.produce("an epoch that is not known yet", new._replace(epoch=new.epoch + 1), 0, version=version)
        await talk.produce("another's id", new._replace(id=new.id + 1), 0, version=version)
        await talk.produce("an id that nobody has", new._replace(name="nobody"), 0, version=version)
    await talk.end("abort", new, commit=False)


async def protocol_2(talk: Talk) -> None:
    who = await talk.init("two")
    assert isinstance(who, Who)
    await talk.produce("does not begin with 0", who, 3, version=12)
    await talk.produce("first", who, 0, version=12)
    await talk.produce("second", who, 1, version=13)
    talk.note("while it is open", await talk.state(who))
    await talk.end("commit", who, version=5)
    talk.note("after its end", await talk.state(who))
    following = who._replace(epoch=who.epoch + 1)
    await talk.produce("under the old epoch", who, 2, version=12)
    await talk.produce("the next transaction", following, 0, version=12)
    await talk.end("commit of the last one again", who, version=5)
    await talk.end("abort", following, commit=False, version=5)
    await talk.end("abort again", following, commit=False, version=5)
    await talk.end("commit what was aborted", following, version=5)
    talk.note("after its end", await talk.state(who))
    await talk.end("abort nothing", who._replace(epoch=who.epoch + 2), commit=False, version=5)
    await talk.end("commit nothing", who._replace(epoch=who.epoch + 3), version=5)


async def markers(talk: Talk) -> None:
    who = await talk.init("three")
    assert isinstance(who, Who)
    who = await talk.init("three")
    assert isinstance(who, Who)
    await talk.add("add", who, 2)
    await talk.produce("a batch", who, 0, partition=2)
    await talk.marker("an old epoch", who._replace(epoch=who.epoch - 1))
    await talk.marker("by version 2, without the next epoch", who, version=2)
    await talk.marker("a marker", who, coordinator_epoch=5)
    await talk.marker("of an old coordinator", who, coordinator_epoch=4)
    await talk.marker("again", who, coordinator_epoch=5)
    await talk.marker("of a producer that is not known", Who(None, 999_999, 0))
    await talk.marker("for a partition that is not there", who, partition=77)
    talk.note("after the marker", await talk.state(who, 2))
    await talk.produce("the coordinator knows nothing of that marker", who, 1, partition=2)
    talk.note("the last stable offset", await talk.stable_offset(2))
    for timeout_ms in (0, 10**9):
        talk.note(f"a time limit of {timeout_ms} ms", await talk.init("four", timeout_ms))


async def at_random(talk: Talk, seed: int) -> None:
    """Requests in no order at all, some of them by who the producer was before. Of one protocol: where a client mixes
    them, or writes under an epoch that is not its own, Kafka holds that against the rightful producer as well."""
    rng = Random(seed)
    first = await talk.init(f"random {seed}")
    assert isinstance(first, Who)
    bumps = seed % 2 == 1
    known = [first]
    sequences: dict[tuple[Who, int], int] = {}
    for step in range(STEPS):
        now = known[-1]
        who = now if rng.random() < 0.75 else rng.choice(known)
        partition, commit, what = rng.randrange(2), rng.random() < 0.5, f"{seed}.{step}"
        match rng.choice(("init", "init by", "add", "produce", "produce", "produce", "end", "end")):
            case "init" if rng.random() < 0.5:
                known.append(await talk.init_again(f"{what} init", now, None))
            case "init by":
                known.append(await talk.init_again(f"{what} init by epoch {who.epoch}", now, who))
            case "add" if not bumps:
                await talk.add(f"{what} add", who, partition)
            case "end":
                after = await talk.end(f"{what} end, commit {commit}", who, commit=commit, version=5 if bumps else 3)
                if after != who:
                    known.append(after)
            case _:
                sequence = sequences.get((now, partition), 0)
                sequence = sequence if rng.random() < 0.8 else 5
                await talk.produce(f"{what} produce", now, sequence, partition=partition, version=12 if bumps else 11)
                sequences[now, partition] = sequence + (talk.heard[-1][1][0] == "NONE")  # type: ignore[index]
        await talk.transaction(f"{what} transaction", now)
        talk.note(f"{what} producer", await talk.state(now, partition))


async def conversation(bootstrap: str) -> list[tuple[str, object]]:
    env = real_env()
    try:
        async with await Cluster.connect(ClientConfig.from_mapping({"bootstrap.servers": bootstrap}), env) as cluster:
            talk = Talk(cluster, env)
            await talk.create_topic()
            for part in (protocol_1, protocol_2, markers):
                await part(talk)
            for seed in range(SEEDS):
                await at_random(talk, seed)
            return talk.heard
    finally:
        env.executor.close()


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
async def test_producers_hear_the_same_as_from_apache_kafka(broker: BrokerProcess, apache_kafka: ApacheKafka) -> None:
    assert await conversation(broker.bootstrap) == await conversation(apache_kafka.bootstrap)
