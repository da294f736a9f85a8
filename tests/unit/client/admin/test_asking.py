"""Whom questions go to, when they are asked again, and what is made of brokers of other ages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import TOPIC_ID, FakeBroker, HangUp

from klamm.client import Cluster, ConnectionLost, UnsupportedVersion
from klamm.client.admin.clusters import Clusters
from klamm.client.admin.configs import Configs, Resource
from klamm.client.admin.groups import CommittedOffset, Groups
from klamm.client.admin.placement import Placement
from klamm.client.admin.topics import NewTopic, Topics
from klamm.client.admin.transactions import Transactions
from klamm.client.errors import BrokerSaid, NotReachable
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages import k75_describe_topic_partitions as k75
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from klamm.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from klamm.wire.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from klamm.wire.messages.k19_create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from klamm.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from klamm.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from klamm.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from klamm.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from klamm.wire.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from klamm.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from klamm.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]


def deleted(errors: dict[int, ErrorCode]) -> Callable[[DeleteRecordsRequest, int], DeleteRecordsResponse]:
    """An answer that deletes what was asked for, but for the partitions with errors."""

    def answer(request: DeleteRecordsRequest, version: int) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=p.partition_index,
                            low_watermark=p.offset,
                            error_code=errors.get(p.partition_index, ErrorCode.NONE),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def coordinated_by(*nodes: int) -> Callable[[FindCoordinatorRequest, int], FindCoordinatorResponse]:
    """One after the other, the last for good."""
    left = list(nodes)

    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        node = left.pop(0) if len(left) > 1 else left[0]
        if version < 4:
            return FindCoordinatorResponse(node_id=node)
        return FindCoordinatorResponse(coordinators=[Coordinator(key=request.coordinator_keys[0], node_id=node)])

    return answer


# ---- leaders


async def test_only_the_partitions_whose_leader_has_moved_are_asked_for_again(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    one.leaders = two.leaders = {("t", 0): 1, ("t", 1): 1}

    def moving(request: DeleteRecordsRequest, version: int) -> DeleteRecordsResponse:
        one.leaders["t", 1] = 2
        return deleted({1: ErrorCode.NOT_LEADER_OR_FOLLOWER})(request, version)

    one.on(DeleteRecordsRequest, moving)
    two.on(DeleteRecordsRequest, deleted({}))
    done = await Topics(await connect(one)).delete_records({("t", 0): 5, ("t", 1): 7})
    assert {place: found.low_watermark for place, found in done.check().items()} == {("t", 0): 5, ("t", 1): 7}
    assert len(one.requests(DeleteRecordsRequest)) == 1
    (again,) = two.requests(DeleteRecordsRequest)
    assert [p.partition_index for p in again.topics[0].partitions] == [1]


async def test_a_partition_that_is_not_there_is_its_own_error(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.leaders = {("t", 0): 1}
    broker.on(DeleteRecordsRequest, deleted({}))
    done = await Topics(await connect(broker)).delete_records({("t", 0): 1, ("t", 9): 1, ("gone", 0): 1})
    assert list(done) == [("t", 0)]
    for place in (TopicPartition("t", 9), TopicPartition("gone", 0)):
        error = done.errors[place]
        assert isinstance(error, BrokerSaid) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (error.topic, error.partition) == place


async def test_a_partition_that_stays_without_a_leader_fails_alone_when_the_time_is_up(
    fake: Fake, connect: Connect
) -> None:
    broker = await fake()
    broker.leaders = {("t", 0): 1, ("t", 1): -1}
    broker.on(DeleteRecordsRequest, deleted({}))
    cluster = await connect(broker, **{"default.api.timeout.ms": 1000})
    done = await Topics(cluster).delete_records({("t", 0): 1, ("t", 1): 1})
    assert list(done) == [("t", 0)]
    error = done.errors[TopicPartition("t", 1)]
    assert isinstance(error, BrokerSaid) and error.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert len(broker.requests(DeleteRecordsRequest)) == 1


# ---- the controller


async def test_another_controller_is_looked_for_if_it_was_the_wrong_one(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        code = codes.pop(0)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=t.name, error_code=code) for t in request.topics])

    broker.on(CreateTopicsRequest, answer)
    assert list(await Topics(await connect(broker)).create_topics(["t"])) == ["t"]
    assert not codes


async def test_a_change_that_was_not_answered_is_not_repeated(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def hang_up(request: Any, version: int) -> None:
        raise HangUp

    broker.on(CreateTopicsRequest, hang_up)
    with pytest.raises(ConnectionLost):
        await Topics(await connect(broker)).create_topics(["t"])
    assert len(broker.requests(CreateTopicsRequest)) == 1


async def test_a_question_that_was_not_answered_is_asked_again(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def answer(request: Any, version: int) -> DescribeClusterResponse:
        if len(broker.requests(DescribeClusterRequest)) == 1:
            raise HangUp
        return DescribeClusterResponse(cluster_id="c", controller_id=-1)

    broker.on(DescribeClusterRequest, answer)
    found = await Clusters(await connect(broker)).describe_cluster()
    assert (found.cluster_id, found.controller) == ("c", None)


async def test_what_was_never_sent_is_sent_when_the_broker_is_back(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
    broker.on(CreateTopicsRequest, lambda request, version: answer)
    cluster = await connect(broker)
    await broker.stop()
    asking = asyncio.create_task(Topics(cluster).create_topics([NewTopic("t", 1, 1)]))
    while cluster.metrics()["failed-connection-total"] < 5:
        await asyncio.sleep(0)
    await broker.start(broker.port)
    assert list(await asking) == ["t"]


# ---- coordinators


async def test_a_group_is_asked_for_where_its_coordinator_has_gone(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    for broker, code in ((one, ErrorCode.NOT_COORDINATOR), (two, ErrorCode.NONE)):
        answer = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])
        broker.on(DeleteGroupsRequest, lambda request, version, answer=answer: answer)
    finding = coordinated_by(1, 1, 2)
    one.on(FindCoordinatorRequest, finding)
    two.on(FindCoordinatorRequest, finding)
    done = await Groups(await connect(one)).delete_groups(["g"])
    assert list(done) == ["g"]
    assert (len(one.requests(DeleteGroupsRequest)), len(two.requests(DeleteGroupsRequest))) == (2, 1)


async def test_groups_that_are_refused_do_not_hold_up_the_others(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.on(FindCoordinatorRequest, coordinated_by(1))

    def answer(request: DeleteGroupsRequest, version: int) -> DeleteGroupsResponse:
        (name,) = request.groups_names
        code = ErrorCode.NON_EMPTY_GROUP if name == "busy" else ErrorCode.NONE
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name, error_code=code)])

    broker.on(DeleteGroupsRequest, answer)
    done = await Groups(await connect(broker)).delete_groups(["busy", "idle", "busy"])
    assert list(done) == ["idle"]
    assert str(done.errors["busy"]).startswith("group busy: ")
    assert len(broker.requests(DeleteGroupsRequest)) == 2


async def test_groups_are_those_of_all_brokers(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    for broker, name in ((one, "b"), (two, "a")):
        answer = ListGroupsResponse(groups=[ListedGroup(group_id=name, group_type="", group_state="Empty")])
        broker.on(ListGroupsRequest, lambda request, version, answer=answer: answer)
    groups = await Groups(await connect(one)).list_groups()
    assert [(group.group_id, group.type, group.coordinator) for group in groups] == [
        ("a", "classic", 2),
        ("b", "classic", 1),
    ]


async def test_a_broker_that_has_left_does_not_keep_the_others_from_listing(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    listed = ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state="Empty")])
    one.on(ListGroupsRequest, lambda request, version: listed)
    cluster = await connect(one)
    await two.stop()
    one.peers = [one]
    assert [group.coordinator for group in await Groups(cluster).list_groups()] == [1]
    await two.start()


# ---- many items


async def test_options_of_many_topics_are_asked_for_in_parts(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def answer(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        results = [
            DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name, configs=[])
            for one in request.resources
        ]
        return DescribeConfigsResponse(results=results)

    broker.on(DescribeConfigsRequest, answer)
    found = await Configs(await connect(broker)).describe_configs(Resource.topic(f"t{i}") for i in range(1200))
    assert len(found.check()) == 1200
    assert [len(request.resources) for request in broker.requests(DescribeConfigsRequest)] == [500, 500, 200]


async def test_a_broker_that_is_not_there_does_not_hide_the_folders_of_the_others(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.on(DescribeLogDirsRequest, lambda request, version: DescribeLogDirsResponse(results=[]))
    found = await Placement(await connect(broker)).describe_log_dirs([1, 7])
    assert dict(found) == {1: ()}
    assert isinstance(found.errors[7], NotReachable)


async def test_topics_come_in_pages_that_may_end_within_one(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def answer(request: k75.DescribeTopicPartitionsRequest, version: int) -> k75.DescribeTopicPartitionsResponse:
        """One partition on each page; every topic has two."""
        name, index = request.topics[0].name, 0
        if request.cursor is not None:
            name, index = request.cursor.topic_name, request.cursor.partition_index
        assert request.topics[0].name == name, "what was told already is asked for again"
        page = k75.DescribeTopicPartitionsResponseTopic(
            name=name,
            partitions=[k75.DescribeTopicPartitionsResponsePartition(partition_index=index, leader_id=index - 1)],
        )
        later = [topic.name for topic in request.topics if topic.name > name]
        cursor: k75.Cursor | None = k75.Cursor(topic_name=name, partition_index=1)
        if index == 1:
            cursor = k75.Cursor(topic_name=later[0], partition_index=0) if later else None
        return k75.DescribeTopicPartitionsResponse(topics=[page], next_cursor=cursor)

    broker.on(k75.DescribeTopicPartitionsRequest, answer)
    found = await Topics(await connect(broker)).describe_topics(["b", "a"])
    assert {name: [p.leader for p in topic.partitions.values()] for name, topic in found.check().items()} == {
        "a": [None, 0],
        "b": [None, 0],
    }
    assert len(broker.requests(k75.DescribeTopicPartitionsRequest)) == 4


# ---- older brokers


async def test_topics_are_described_from_metadata_where_there_is_nothing_better(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.leaders = {("t", 0): 1, ("t", 1): -1}
    found = await Topics(await connect(broker)).describe_topics(["t", "gone"])
    assert (found["t"].id, [p.leader for p in found["t"].partitions.values()]) == (TOPIC_ID, [1, None])
    assert found["t"].partitions[0].eligible_leaders is None
    assert list(found.errors) == ["gone"]


async def test_offsets_are_asked_for_in_the_old_form_too(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.on(FindCoordinatorRequest, coordinated_by(1), (0, 3))
    partitions = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata="m"),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
    broker.on(OffsetFetchRequest, lambda request, version: answer, (1, 7))
    found = await Groups(await connect(broker)).list_group_offsets("g", [("t", 0), ("t", 1)])
    assert dict(found.check()) == {("t", 0): CommittedOffset(5, 2, "m")}
    (asked,) = broker.requests(OffsetFetchRequest)
    assert (asked.group_id, asked.topics[0].partition_indexes) == ("g", [0, 1])


async def test_topics_are_deleted_by_name_in_a_version_that_has_names(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def answer(request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        assert version == 5
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in request.topic_names])

    broker.on(DeleteTopicsRequest, answer)
    assert list(await Topics(await connect(broker)).delete_topics(["a", "b"])) == ["a", "b"]


async def test_what_a_broker_is_too_old_for_is_said_before_it_is_asked(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.on(ListGroupsRequest, lambda request, version: ListGroupsResponse(groups=[]), (0, 3))
    broker.on(ListTransactionsRequest, lambda request, version: ListTransactionsResponse(), (0, 1))
    broker.on(CreateTopicsRequest, lambda request, version: CreateTopicsResponse(topics=[]), (2, 3))
    broker.on(DeleteTopicsRequest, lambda request, version: DeleteTopicsResponse(responses=[]), (1, 5))
    cluster = await connect(broker)
    for asking in (
        Groups(cluster).list_groups(states=["Empty"]),
        Transactions(cluster).list_transactions(pattern="x.*"),
        Topics(cluster).create_topics(["t"]),
        Topics(cluster).delete_topics([TOPIC_ID]),
        Clusters(cluster).describe_cluster(fenced=True),
        Clusters(cluster).unregister_broker(1),
    ):
        with pytest.raises(UnsupportedVersion):
            await asking
    assert await Groups(cluster).list_groups() == []
    assert await Transactions(cluster).list_transactions(longer_than_ms=5) == []
    done = await Topics(cluster).create_topics([NewTopic("t", 1, 1)])
    assert list(done.errors) == ["t"], "the answer says nothing of it"
