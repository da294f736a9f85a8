"""TxnOffsetCommit through the wire: offsets that count when their transaction does."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from klamm.apis.api import Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.k26_end_txn import EndTxnRequest
from klamm.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

VERSIONS = range(6)
ADDS = 5


class Producer(NamedTuple):
    id: int
    epoch: int


@pytest.fixture
def shortcuts() -> bool:
    """It has none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    node = await start(offsets_topic_num_partitions="3", transaction_state_log_num_partitions="3")
    await node.create("t", 2)
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    await node.call(FindCoordinatorRequest(key="x", key_type=1), 2)
    return node


async def init(node: Any, transactional_id: str = "x") -> Producer:
    answer = await node.call(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == 0
    return Producer(answer.producer_id, answer.producer_epoch)


async def add_offsets(node: Any, producer: Producer) -> None:
    request = AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
    )
    assert (await node.call(request, 3)).error_code == 0


async def commit(
    node: Any,
    version: int,
    producer: Producer,
    offset: int = 5,
    partitions: tuple[int, ...] = (0,),
    group: str = "g",
    **more: Any,
) -> list[int]:
    asked = [TxnOffsetCommitRequestPartition(partition_index=i, committed_offset=offset) for i in partitions]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=asked)],
        **more,
    )
    response = await node.call(request, version)
    return [partition.error_code for partition in response.topics[0].partitions]


async def end(node: Any, version: int, producer: Producer, *, committed: bool) -> Producer:
    """The producer as it goes on: with another epoch, in transaction protocol 2."""
    request = EndTxnRequest(
        transactional_id="x", producer_id=producer.id, producer_epoch=producer.epoch, committed=committed
    )
    answer = await node.call(request, 5 if version >= ADDS else 3)
    assert answer.error_code == 0
    return Producer(answer.producer_id, answer.producer_epoch) if version >= ADDS else producer


async def fetched(node: Any, *, stable: bool = False) -> tuple[int, int]:
    """Offset and error of the first partition."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    response = await node.call(OffsetFetchRequest(groups=[group], require_stable=stable), 9)
    partition = response.groups[0].topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


async def settled(node: Any) -> None:
    """Markers have been written."""
    async with asyncio.timeout(10):
        while (await fetched(node, stable=True))[1]:
            await asyncio.sleep(0)


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_count_when_the_transaction_is_committed(node: Any, version: int, committed: bool) -> None:
    producer = await init(node)
    if version < ADDS:
        await add_offsets(node, producer)
    assert await commit(node, version, producer) == [0]
    assert await commit(node, version, producer, offset=6) == [0], "the transaction is under way"
    assert await fetched(node) == (-1, 0)
    assert await fetched(node, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    await end(node, version, producer, committed=committed)
    await settled(node)
    assert await fetched(node) == (6 if committed else -1, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_one_transaction_follows_another(node: Any, version: int) -> None:
    producer = await init(node)
    for offset in range(1, 6):
        if version < ADDS:
            await add_offsets(node, producer)
        assert await commit(node, version, producer, offset=offset) == [0]
        committed = offset % 2 == 1
        producer = await end(node, version, producer, committed=committed)
        await settled(node)
        assert await fetched(node) == (offset if committed else offset - 1, 0)


async def test_the_group_is_there_while_its_first_offsets_are_pending(node: Any) -> None:
    await commit(node, ADDS, await init(node))
    (group,) = (await node.call(DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert (group.error_code, group.group_state) == (0, "Empty")


@pytest.mark.parametrize("version", range(ADDS))
async def test_a_partition_that_was_not_added_is_refused(node: Any, version: int) -> None:
    producer = await init(node)
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert await commit(node, version, producer) == [expected]
    assert await fetched(node, stable=True) == (-1, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_fenced_producer_commits_nothing(node: Any, version: int) -> None:
    old = await init(node)
    await init(node)
    assert await commit(node, version, old) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_producer_of_another_transactional_id_commits_nothing(node: Any, version: int) -> None:
    await init(node)
    other = await init(node, "y")
    assert await commit(node, version, other) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_a_coordinator_of_transactions_it_has_to_be_tried_again(start: Any, version: int) -> None:
    node = await start()
    await node.create("t", 1)
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    assert await commit(node, version, Producer(1, 0)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_a_coordinator_of_groups_nothing_becomes_part_of_the_transaction(
    start: Any, version: int
) -> None:
    node = await start()
    await node.create("t", 1)
    await node.call(FindCoordinatorRequest(key="x", key_type=1), 2)
    producer = await init(node)
    assert await commit(node, version, producer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    (described,) = (await node.call(DescribeTransactionsRequest(transactional_ids=["x"]), 0)).transaction_states
    assert (described.transaction_state, described.topics) == ("Empty", [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_is_not_there_has_no_members(node: Any, version: int) -> None:
    producer = await init(node)
    await add_offsets(node, producer)
    member: dict[str, Any] = {"generation_id": 3, "member_id": "m"} if version >= 3 else {}
    assert await commit(node, version, producer, **member) == [ErrorCode.ILLEGAL_GENERATION if member else 0]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS])
async def test_offsets_wait_for_the_word_of_the_transactions_coordinator(node: Any, code: ErrorCode) -> None:
    producer = await init(node)
    waiting, answers = Pending(), []

    def later(key: str, decide: Any, refuse: Any) -> Pending:
        answers.append(refuse(code))
        return waiting

    node.broker.transactions.call = later
    answer = asyncio.ensure_future(commit(node, ADDS, producer))
    while not answers:
        await asyncio.sleep(0)
    assert not answer.done()
    waiting.set(answers[0])
    assert await answer == [code]
    assert await fetched(node, stable=True) == (-1, 0 if code else ErrorCode.UNSTABLE_OFFSET_COMMIT)


async def test_partitions_that_do_not_exist_are_refused_by_themselves(node: Any) -> None:
    producer = await init(node)
    assert await commit(node, ADDS, producer, partitions=(0, 2)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(node, ADDS, producer, group="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        ((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.READ, ResourceType.GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ((Operation.READ, ResourceType.TOPIC, "t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_who_may_not_commits_nothing(node: Any, tools: Any, denied: Any, code: ErrorCode) -> None:
    producer = await init(node)
    node.broker.authorizer = tools.deny(denied)
    assert await commit(node, ADDS, producer) == [code]
