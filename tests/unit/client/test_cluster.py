from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from client_broker import FakeBroker, HangUp

from klamm.client import CONTROLLER, BrokerSaid, ClientConfig, Closed, Cluster, ConnectionLost, NotReachable
from klamm.client.metadata import Metadata, Partition, Topic, merge
from klamm.client.nodes import Lane
from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k03_metadata import MetadataRequest
from klamm.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]


async def test_bootstrap_goes_through_the_list(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    cluster = await connect("127.0.0.1:1", broker)
    assert cluster.known.cluster_id == "fake"


async def test_when_nobody_answers_every_address_is_named_with_the_reason() -> None:
    config = ClientConfig.from_mapping({"bootstrap.servers": "127.0.0.1:1,no-such-host.invalid:2"})
    with pytest.raises(NotReachable) as caught:
        await Cluster.connect(config, real_env())
    addresses = [address for address, _ in caught.value.attempts]
    assert addresses == ["127.0.0.1:1", "no-such-host.invalid:2"]
    assert "127.0.0.1:1: connection refused" in str(caught.value)


async def test_requests_go_to_the_broker_that_is_named(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    for broker in (one, two):
        broker.on(
            DescribeClusterRequest,
            lambda request, version, me=broker.node_id: DescribeClusterResponse(controller_id=me),
        )
    cluster = await connect(one)
    assert (await cluster.request(DescribeClusterRequest(), node=2)).controller_id == 2
    assert (await cluster.request(DescribeClusterRequest(), node=CONTROLLER)).controller_id == 1
    assert (await cluster.request(DescribeClusterRequest())).controller_id in (1, 2)
    with pytest.raises(NotReachable, match="broker 7"):
        await cluster.request(DescribeClusterRequest(), node=7)


async def test_any_broker_will_do_when_others_are_gone(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    cluster = await connect(one)
    await one.stop()
    assert set((await cluster.metadata()).brokers) == {1, 2}
    assert two.requests(MetadataRequest)
    await one.start(one.port)


async def test_a_broker_that_cannot_be_reached_at_its_address_is_explained(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    cluster = await connect(one)
    await two.stop()
    with pytest.raises(NotReachable, match=r"advertised\.listeners"):
        await cluster.request(DescribeClusterRequest(), node=2)
    await two.start()


async def test_a_lane_is_a_connection_of_its_own_and_is_made_once(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    cluster = await connect(broker)
    made = await asyncio.gather(*(cluster.connection(1, lane) for lane in [*Lane] * 5))
    assert len(set(map(id, made))) == len(Lane)


async def test_refreshes_at_the_same_time_are_one_request(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.leaders = {("a", 0): 1, ("b", 0): 1}
    cluster = await connect(broker)
    before = len(broker.requests(MetadataRequest))
    await asyncio.gather(*(cluster.refresh([name]) for name in "abab"))
    asked = broker.requests(MetadataRequest)[before:]
    assert [[topic.name for topic in request.topics] for request in asked] == [["a", "b"]]
    assert set(cluster.known.topics) == {"a", "b"}


async def test_topics_that_nobody_uses_are_shown_and_not_kept(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    broker.leaders = {("a", 0): 1, ("b", 1): 1, ("b", 0): 1}
    cluster = await connect(broker)
    assert set((await cluster.metadata()).topics) == {"a", "b"}
    assert set((await cluster.topic("b")).partitions) == {0, 1}
    assert set(cluster.known.topics) == {"b"}
    assert cluster.leader("b", 1) is not None
    assert cluster.leader("b", 2) is None
    with pytest.raises(BrokerSaid) as caught:
        await cluster.topic("c")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_request_is_never_sent_twice(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def hang_up(request: DescribeClusterRequest, version: int) -> None:
        raise HangUp

    broker.on(DescribeClusterRequest, hang_up)
    cluster = await connect(broker)
    with pytest.raises(ConnectionLost):
        await cluster.request(DescribeClusterRequest())
    assert len(broker.requests(DescribeClusterRequest)) == 1
    assert (await cluster.metadata()).brokers


async def test_a_closed_cluster_says_so(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    cluster = await connect(broker)
    await cluster.close()
    with pytest.raises(Closed):
        await cluster.metadata()


def _topic(topic_id: bytes, epoch: int, leader: int, error: ErrorCode = ErrorCode.NONE) -> Metadata:
    partitions = {0: Partition(0, leader, epoch, (1, 2), (1, 2), ())}
    return Metadata({}, 1, None, {"t": Topic("t", topic_id, False, error, {} if error else partitions)})


def test_metadata_never_goes_back_to_an_older_leader_of_the_same_topic() -> None:
    one, other = b"1" * 16, b"2" * 16
    known = _topic(one, epoch=5, leader=2)
    assert merge(known, _topic(one, epoch=4, leader=1)).topics["t"].partitions[0].leader == 2
    assert merge(known, _topic(one, epoch=6, leader=1)).topics["t"].partitions[0].leader == 1
    assert merge(known, _topic(other, epoch=0, leader=1)).topics["t"].partitions[0].leader == 1
    assert "t" not in merge(known, _topic(bytes(16), 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)).topics
    assert "t" in merge(known, _topic(bytes(16), 0, 0, ErrorCode.LEADER_NOT_AVAILABLE)).topics
