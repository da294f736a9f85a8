"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller.commands import Decision
from klamm.core.errors import ErrorCode
from klamm.metadata.records import BrokerRecord, PartitionChangeRecord
from klamm.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from klamm.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED, UNCLEAN = range(2)


async def replay(node: Any, *records: Any) -> None:
    await node.controller.run(lambda image: Decision(list(records), None))


async def change(node: Any, index: int = 0, **fields: Any) -> None:
    """Change a partition of the topic t."""
    topic = node.publisher.image.topics["t"]
    fields = {"leader": topic.partitions[index].leader, "leader_epoch": 9, "partition_epoch": 9, **fields}
    await replay(node, PartitionChangeRecord(topic_id=topic.id, partition_id=index, **fields))


def elect(*partitions: int, topic: str = "t", kind: int = PREFERRED, version: int = 2) -> ElectLeadersRequest:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=list(partitions))])
    if version:
        request.election_type = kind
    return request


def elected(response: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, p.partition_id, p.error_code)
        for topic in response.replica_election_results
        for p in topic.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed_where_there_is_one_broker(node: Any, version: int) -> None:
    await node.create("t", 2)
    assert elected(await node.call(elect(0, 1, 7, version=version), version)) == [
        ("t", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    response = await node.call(elect(0, topic="u", version=version), version)
    assert elected(response) == [("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_for_all_partitions_only_those_are_told_of_that_need_an_election(node: Any) -> None:
    await node.create("t", 2)
    everything = ElectLeadersRequest(topic_partitions=None)
    response = await node.call(everything, 2)
    assert (response.error_code, elected(response)) == (ErrorCode.NONE, [])
    await change(node, 1, leader=-1)
    assert elected(await node.call(everything, 2)) == [("t", 1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


async def test_a_partition_without_a_leader_finds_none(node: Any) -> None:
    await node.create("t", 2)
    await change(node, 0, leader=-1, replicas=[2, 1])
    await change(node, 1, leader=1, replicas=[2, 1])
    assert elected(await node.call(elect(0, 1), 2)) == [
        ("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ("t", 1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert elected(await node.call(elect(0, 1, kind=UNCLEAN), 2)) == [
        ("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
    ]


async def test_an_election_of_another_kind_is_refused(node: Any) -> None:
    response = await node.call(elect(0, kind=2), 2)
    assert (response.error_code, elected(response)) == (
        ErrorCode.INVALID_REQUEST,
        [("t", 0, ErrorCode.INVALID_REQUEST)],
    )


async def test_who_may_not_elect(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(elect(0), 2)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert elected(response) == [("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]


def reassign(*replicas: list[int] | None, topic: str = "t") -> AlterPartitionReassignmentsRequest:
    """For the partitions from 0 on."""
    partitions = [ReassignablePartition(partition_index=i, replicas=ids) for i, ids in enumerate(replicas)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])


def reassigned(response: Any) -> list[int]:
    assert all(bool(p.error_code) == bool(p.error_message) for t in response.responses for p in t.partitions)
    return [p.error_code for t in response.responses for p in t.partitions]


@pytest.mark.parametrize("version", [0, 1])
async def test_replicas_stay_where_they_are(node: Any, version: int) -> None:
    await node.create("t", 5)
    request = reassign([1], None, [2], [], [1, 1], [1])
    response = await node.call(request, version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert reassigned(response) == [
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert reassigned(await node.call(reassign([1], topic="u"), version)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_they_cannot_move_even_to_a_broker_that_is_there(node: Any) -> None:
    await node.create("t")
    await replay(node, BrokerRecord(id=2, epoch=7))
    assert reassigned(await node.call(reassign([2]), 1)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    request = reassign([1, 2])
    request.allow_replication_factor_change = False
    response = await node.call(request, 1)
    assert reassigned(response) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert response.allow_replication_factor_change is False


async def test_who_may_not_reassign(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(reassign([1]), 1)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert reassigned(response) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def under_way(*partitions: int, topic: str = "t") -> ListPartitionReassignmentsRequest:
    asked = ListPartitionReassignmentsTopics(name=topic, partition_indexes=list(partitions))
    return ListPartitionReassignmentsRequest(topics=[asked])


async def test_no_reassignment_is_under_way(node: Any) -> None:
    await node.create("t", 2)
    for request in (ListPartitionReassignmentsRequest(topics=None), under_way(0, 9), under_way(0, topic="u")):
        response = await node.call(request, 0)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


async def test_a_reassignment_of_the_metadata_is_listed(node: Any) -> None:
    await node.create("t", 2)
    await change(node, 1, replicas=[1, 2, 3], adding_replicas=[2], removing_replicas=[3])
    for request in (ListPartitionReassignmentsRequest(topics=None), under_way(0, 1)):
        ((partition,),) = [topic.partitions for topic in (await node.call(request, 0)).topics]
        assert (partition.partition_index, partition.replicas) == (1, [1, 2, 3])
        assert (partition.adding_replicas, partition.removing_replicas) == ([2], [3])
    assert (await node.call(under_way(0), 0)).topics == []


async def test_who_may_not_list_reassignments(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(under_way(0), 0)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
