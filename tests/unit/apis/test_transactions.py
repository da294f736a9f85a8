"""InitProducerId for transactional ids, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, Describe- and ListTransactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.k26_end_txn import EndTxnRequest
from klamm.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.k66_list_transactions import ListTransactionsRequest

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


@pytest.fixture
async def served(node: Any) -> Any:
    """A broker with a coordinator and a topic."""
    return await prepared(node)


async def prepared(node: Any) -> Any:
    await node.create(partitions=3)
    found = await node.call(FindCoordinatorRequest(key="x", key_type=1), 3)
    assert found.error_code == NONE
    return node


async def init(
    node: Any, id_: str = "x", *, producer_id: int = -1, epoch: int = -1, version: int = 5, **fields: Any
) -> tuple[int, int, int]:
    fields.setdefault("transaction_timeout_ms", 60_000)
    request = InitProducerIdRequest(transactional_id=id_, producer_id=producer_id, producer_epoch=epoch, **fields)
    response = await node.call(request, version)
    return response.error_code, response.producer_id, response.producer_epoch


def topics(**partitions: list[int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def add_request(
    version: int, producer_id: int, epoch: int, *, id_: str = "x", verify: bool = False, **partitions: list[int]
) -> AddPartitionsToTxnRequest:
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=id_,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics(**partitions),
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=id_,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify,
        topics=topics(**partitions),
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


async def add(node: Any, version: int, *args: Any, **kwargs: Any) -> dict[str, list[int]]:
    """The error codes of the partitions, by topic."""
    response = await node.call(add_request(version, *args, **kwargs), version)
    if version < 4:
        results = response.results_by_topic_v3_and_below
    else:
        assert response.error_code == NONE
        ((results),) = [one.topic_results for one in response.results_by_transaction]
    return {topic.name: [p.partition_error_code for p in topic.results_by_partition] for topic in results}


async def end(
    node: Any, producer_id: int, epoch: int, committed: bool = True, *, version: int = 3
) -> tuple[int, int, int]:
    request = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=committed)
    response = await node.call(request, version)
    return response.error_code, response.producer_id, response.producer_epoch


async def describe(node: Any, *ids: str) -> list[Any]:
    response = await node.call(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
    return list(response.transaction_states)


async def state(node: Any) -> str:
    (described,) = await describe(node, "x")
    return str(described.transaction_state)


# ---- InitProducerId


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_that_comes_again_has_the_next_epoch(served: Any, version: int) -> None:
    error, producer_id, epoch = await init(served, version=version)
    assert (error, epoch) == (NONE, 0) and producer_id >= 0
    assert await init(served, version=version) == (NONE, producer_id, 1)
    other = await init(served, "y", version=version)
    assert other[0] == NONE and other[1] != producer_id


@pytest.mark.parametrize("version", range(3, 6))
async def test_who_was_replaced_hears_it_in_words_that_it_knows(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    await init(served)
    code = FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await init(served, producer_id=producer_id, epoch=epoch, version=version) == (code, -1, -1)


async def test_requests_that_make_no_sense(served: Any) -> None:
    assert (await init(served, ""))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(served, producer_id=5))[0] == ErrorCode.INVALID_REQUEST
    assert (await init(served, transaction_timeout_ms=900_001))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_without_the_topic_there_is_no_coordinator(node: Any) -> None:
    assert (await init(node))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_who_may_not_use_a_transactional_id(served: Any, tools: Any) -> None:
    served.broker.authorizer = tools.deny((Operation.WRITE, TRANSACTIONAL_ID, "x"))
    assert (await init(served))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await init(served, "y"))[0] == NONE
    assert await add(served, 3, 1, 0, t=[0]) == {"t": [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]}
    assert (await end(served, 1, 0))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await add_offsets(served, 1, 0) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def last_version_of_init(node: Any) -> int:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = await node.call(request, 4)
    (version,) = [api.max_version for api in response.api_keys if api.api_key == 22]
    return int(version)


async def test_two_phase_commit_is_not_offered_where_it_is_not_allowed(start: Any) -> None:
    node = await start(transaction_two_phase_commit_enable="false")
    assert await last_version_of_init(node) == 5
    assert node.apis.get(22).versions == (0, 5)


async def test_a_prepared_transaction_can_be_kept_by_the_next_producer(start: Any, tools: Any) -> None:
    node = await prepared(await start())
    assert await last_version_of_init(node) == 6
    _, producer_id, _ = await init(node, version=6, enable2_pc=True)
    await add(node, 3, producer_id, 0, t=[1])
    request = InitProducerIdRequest(transactional_id="x", enable2_pc=True, keep_prepared_txn=True)
    response = await node.call(request, 6)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (NONE, producer_id, 1)
    assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (producer_id, 0)
    assert await end(node, producer_id, 1, version=5) == (NONE, producer_id, 2)
    assert await state(node) == "CompleteCommit"
    node.broker.authorizer = tools.deny((Operation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, "x"))
    assert (await init(node, version=6, enable2_pc=True))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await init(node, version=6))[0] == NONE


# ---- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
async def test_partitions_become_part_of_the_transaction(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    assert await add(served, version, producer_id, epoch, t=[0, 2]) == {"t": [NONE, NONE]}
    (described,) = await describe(served, "x")
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0, 2])]


@pytest.mark.parametrize("version", range(6))
async def test_a_stranger_adds_nothing(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    code = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add(served, version, producer_id, epoch + 1, t=[0, 1]) == {"t": [code, code]}
    assert await add(served, version, producer_id + 1, epoch, t=[0]) == {"t": [ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
    assert await add(served, version, producer_id, epoch, id_="y", t=[0]) == {
        "t": [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    }
    assert await state(served) == "Empty"


@pytest.mark.parametrize("version", [3, 5])
async def test_all_partitions_or_none(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    assert await add(served, version, producer_id, epoch, t=[0, 9], u=[0]) == {
        "t": [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        "u": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }
    assert await state(served) == "Empty"


async def test_topics_that_a_client_may_not_write_to(served: Any, tools: Any) -> None:
    _, producer_id, epoch = await init(served)
    await served.create("u")
    served.broker.authorizer = tools.deny((Operation.WRITE, ResourceType.TOPIC, "u"))
    denied, skipped = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert await add(served, 3, producer_id, epoch, t=[0], u=[0]) == {"t": [skipped], "u": [denied]}
    assert await add(served, 3, producer_id, epoch, __transaction_state=[0]) == {"__transaction_state": [denied]}
    assert await add(served, 4, producer_id, epoch, t=[0], u=[0]) == {"t": [NONE], "u": [NONE]}


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_ask_for_many_transactions_at_once(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    _, other_id, _ = await init(served, "y")
    await add(served, 3, producer_id, epoch, t=[0])
    request = AddPartitionsToTxnRequest(
        transactions=[
            add_request(version, producer_id, epoch, verify=True, t=[0, 1]).transactions[0],
            add_request(version, other_id, 0, id_="y", t=[2]).transactions[0],
            add_request(version, 5, 0, id_="z", verify=True, t=[2]).transactions[0],
        ]
    )
    response = await served.call(request, version)
    found = {
        one.transactional_id: [p.partition_error_code for t in one.topic_results for p in t.results_by_partition]
        for one in response.results_by_transaction
    }
    assert found == {
        "x": [NONE, ErrorCode.TRANSACTION_ABORTABLE],
        "y": [NONE],
        "z": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
    }


async def test_only_brokers_ask_for_many(served: Any, tools: Any) -> None:
    served.broker.authorizer = tools.deny((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await served.call(add_request(4, 1, 0, t=[0]), 4)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- AddOffsetsToTxn


async def add_offsets(node: Any, producer_id: int, epoch: int, *, version: int = 4, id_: str = "x") -> int:
    request = AddOffsetsToTxnRequest(transactional_id=id_, producer_id=producer_id, producer_epoch=epoch, group_id="g")
    return int((await node.call(request, version)).error_code)


@pytest.mark.parametrize("version", range(5))
async def test_the_offsets_of_a_group_become_part_of_it(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    assert await add_offsets(served, producer_id, epoch, version=version) == NONE
    (described,) = await describe(served, "x")
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [
        ("__consumer_offsets", [served.broker.groups.partition_of("g")])
    ]
    code = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add_offsets(served, producer_id, epoch + 1, version=version) == code
    assert (await end(served, producer_id, epoch))[0] == NONE
    assert await state(served) == "CompleteCommit"


async def test_who_may_not_read_the_group(served: Any, tools: Any) -> None:
    served.broker.authorizer = tools.deny((Operation.READ, ResourceType.GROUP, "g"))
    assert await add_offsets(served, 1, 0) == ErrorCode.GROUP_AUTHORIZATION_FAILED


# ---- EndTxn


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_the_markers_are_written_when_it_is_answered(served: Any, version: int, committed: bool) -> None:
    _, producer_id, epoch = await init(served)
    await add(served, 3, producer_id, epoch, t=[0, 1])
    ended = await end(served, producer_id, epoch, committed, version=version)
    assert ended == ((NONE, producer_id, epoch + 1) if version == 5 else (NONE, -1, -1))
    assert await state(served) == ("CompleteCommit" if committed else "CompleteAbort")
    assert [served.partition(index=index).log.next_offset for index in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("version", range(6))
async def test_a_stranger_ends_nothing(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    await add(served, 3, producer_id, epoch, t=[0])
    code = FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await end(served, producer_id, epoch + 1, version=version))[0] == code
    assert await state(served) == "Ongoing"


async def test_a_producer_that_comes_again_has_its_open_transaction_aborted(served: Any) -> None:
    _, producer_id, epoch = await init(served)
    await add(served, 3, producer_id, epoch, t=[0])
    assert (await init(served))[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    assert await state(served) == "CompleteAbort"
    assert await init(served) == (NONE, producer_id, epoch + 2)


async def test_a_transaction_that_takes_too_long_is_aborted(served: Any) -> None:
    _, producer_id, epoch = await init(served, transaction_timeout_ms=50)
    await add(served, 3, producer_id, epoch, t=[0])
    async with asyncio.timeout(20):
        while await state(served) != "CompleteAbort":
            await asyncio.sleep(0.01)
    assert (await end(served, producer_id, epoch))[0] == FENCED


async def test_a_topic_that_was_deleted_does_not_keep_a_transaction_from_ending(served: Any, tools: Any) -> None:
    from klamm.controller.topics import TopicToDelete

    await served.create("u")
    _, producer_id, epoch = await init(served)
    await add(served, 3, producer_id, epoch, t=[0], u=[0])
    await served.controller.delete_topics([TopicToDelete(name="u")])
    assert (await end(served, producer_id, epoch))[0] == NONE
    assert await state(served) == "CompleteCommit"


# ---- what is known of them


async def test_what_a_transaction_looks_like(served: Any, tools: Any) -> None:
    _, producer_id, epoch = await init(served, transaction_timeout_ms=12_345)
    before_ms = served.env.clock.time_ms()
    await served.create("u")
    await add(served, 3, producer_id, epoch, t=[0, 1], u=[0])
    served.broker.authorizer = tools.deny(
        (Operation.DESCRIBE, ResourceType.TOPIC, "u"), (Operation.DESCRIBE, TRANSACTIONAL_ID, "secret")
    )
    found, unknown, empty, secret = await describe(served, "x", "y", "", "secret")
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (NONE, "Ongoing", 12_345)
    assert (found.producer_id, found.producer_epoch) == (producer_id, epoch)
    assert before_ms <= found.transaction_start_time_ms <= served.env.clock.time_ms()
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    assert secret.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def listed(node: Any, version: int = 2, **filters: Any) -> dict[str, str]:
    response = await node.call(ListTransactionsRequest(**filters), version)
    assert response.error_code == NONE
    return {one.transactional_id: one.transaction_state for one in response.transaction_states}


@pytest.mark.parametrize("version", range(3))
async def test_transactions_are_listed_by_state_and_producer(served: Any, version: int) -> None:
    _, producer_id, epoch = await init(served)
    _, other_id, _ = await init(served, "y")
    await add(served, 3, producer_id, epoch, t=[0])
    assert await listed(served, version) == {"x": "Ongoing", "y": "Empty"}
    assert await listed(served, version, state_filters=["Ongoing", "Dead"]) == {"x": "Ongoing"}
    assert await listed(served, version, state_filters=["Empty"], producer_id_filters=[producer_id]) == {}
    assert await listed(served, version, producer_id_filters=[other_id]) == {"y": "Empty"}
    response = await served.call(ListTransactionsRequest(state_filters=["Nonsense"]), version)
    assert (response.unknown_state_filters, response.transaction_states) == (["Nonsense"], [])


async def test_transactions_are_listed_by_duration_and_pattern(served: Any) -> None:
    for id_ in ("app-1", "app-2", "other"):
        _, producer_id, epoch = await init(served, id_)
        await add(served, 3, producer_id, epoch, id_=id_, t=[0])
    assert await listed(served, 1, duration_filter=60_000) == {}
    assert len(await listed(served, 1, duration_filter=-1)) == 3
    assert set(await listed(served, transactional_id_pattern="app-.*")) == {"app-1", "app-2"}
    assert await listed(served, transactional_id_pattern="app") == {}, "the whole id has to match"
    assert len(await listed(served, transactional_id_pattern="")) == 3
    response = await served.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_who_sees_which_transactions(served: Any, tools: Any) -> None:
    await init(served)
    await init(served, "y")
    served.broker.authorizer = tools.deny((Operation.DESCRIBE, TRANSACTIONAL_ID, "x"))
    assert set(await listed(served)) == {"y"}


async def test_a_broker_that_never_had_a_transaction_lists_none(node: Any) -> None:
    assert await listed(node) == {}


# ---- restarts


async def restarted(node: Any) -> Any:
    """Another broker on the same folder, once its coordinators have loaded."""
    await node.stop()
    again = type(node)(real_env(seed=2), node.path, node.options, node.shortcuts)
    await again.start()
    async with asyncio.timeout(20):
        while again.broker.transactions.loading:
            await asyncio.sleep(0)
    return again


async def test_what_was_decided_before_a_restart_is_carried_out_after_it(served: Any) -> None:
    _, producer_id, epoch = await init(served)
    await add(served, 3, producer_id, epoch, t=[0, 1])
    served.broker.transactions.on_effect = lambda partition, effect: None
    assert (await end(served, producer_id, epoch))[0] == NONE
    assert await state(served) == "PrepareCommit"
    assert (await end(served, producer_id, epoch))[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    again = await restarted(served)
    try:
        assert await state(again) == "CompleteCommit"
        assert [again.partition(index=index).log.next_offset for index in range(3)] == [1, 1, 0]
    finally:
        await again.stop()
    await served.start()  # for the fixture to stop


async def test_a_prepared_transaction_of_two_phases_waits_for_its_producer_over_a_restart(start: Any) -> None:
    node = await prepared(await start(transaction_two_phase_commit_enable="true"))
    _, producer_id, _ = await init(node, version=6, enable2_pc=True)
    await add(node, 3, producer_id, 0, t=[1])
    again = await restarted(node)
    try:
        assert await init(again, version=6, enable2_pc=True, keep_prepared_txn=True) == (NONE, producer_id, 1)
        assert await end(again, producer_id, 1, version=5) == (NONE, producer_id, 2)
        assert await state(again) == "CompleteCommit"
        assert again.partition(index=1).log.next_offset == 1
    finally:
        await again.stop()
    await node.start()
