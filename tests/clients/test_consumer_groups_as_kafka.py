"""What members of consumer groups (KIP-848) hear, request by request: the same as from Apache Kafka. But for a classic
member that joins them while they have members: Kafka takes it, and Klamm does not."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.apache_kafka import ApacheKafka
from support.conversation import Conversation, Ids, heard_by
from support.downloads import FETCH_LIMIT_S
from support.group_requests import (
    beat,
    commit,
    delete,
    delete_offsets,
    describe,
    describe_consumers,
    fetch,
    join,
    of_group,
    pulse,
    sync,
)
from support.process import BrokerProcess

TOPICS = ("shared-a", "shared-b")
A, B = TOPICS
GROUPS = ("members", "static", "expressions")
INTERVAL = "consumer.assignment.interval.ms"
GROUP_RESOURCE = 32
LOADING = (14, 15, 16)


async def begin(talk: Conversation) -> Ids:
    """With topics, a coordinator that answers, and groups that are assigned anew at once. The topics' ids."""
    ids = await talk.begin(TOPICS)
    await talk.until("one", pulse("nobody", "nobody", 1), lambda answer: answer.error_code not in LOADING)
    await assign_at_once(talk)
    return ids


async def assign_at_once(talk: Conversation) -> None:
    change = AlterableConfig(name=INTERVAL, config_operation=0, value="0")
    changed = [
        AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[change]) for group in GROUPS
    ]
    await talk.ask("one", IncrementalAlterConfigsRequest(resources=changed))
    for group in GROUPS:
        asked = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group)
        await talk.until(
            "one",
            DescribeConfigsRequest(resources=[asked]),
            lambda answer: any(c.name == INTERVAL and c.value == "0" for c in answer.results[0].configs),
        )


def enter(group: str, member: str, topics: list[str] | None = None, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """As a member that joins; to the first topic, if it says nothing else."""
    more.setdefault("owned", {})
    if "regex" not in more:
        topics = [A] if topics is None else topics
    return pulse(group, member, 0, rebalance_ms=60_000, topics=topics, **more)


async def mistakes(talk: Conversation, ids: Ids) -> None:
    for version in (0, 1):
        for what, request in {
            "no member id, later": pulse("none", "", 3),
            "no member id, leaves": pulse("none", "", -1),
            "no group": enter("", "m"),
            "an empty instance": enter("none", "m", instance=""),
            "an empty rack": enter("none", "m", rack=""),
            "no time-out": pulse("none", "m", 0, topics=[A], owned={}),
            "joins with partitions": enter("none", "m", owned={ids[A]: [0]}),
            "joins without saying what it owns": enter("none", "m", owned=None),
            "subscribes to nothing at all": pulse("none", "m", 0, rebalance_ms=60_000, owned={}),
            "epoch -2 without instance": pulse("none", "m", -2),
            "epoch -3": pulse("none", "m", -3),
            "an unknown assignor": enter("none", "m", assignor="x"),
            "an assignor without name": enter("none", "m", assignor=""),
            "no such group": pulse("none", "m", 3),
            "leaves no such group": pulse("none", "m", -1),
            "leaves no such group for a moment": pulse("none", "m", -2, instance="i"),
            "a topic that is not there": enter(f"unknown-{version}", "m", ["none"]),
        }.items():
            await talk.tell(what, "one", request, version)
        await talk.tell("described", "watch", describe_consumers("none", f"unknown-{version}"), version)
    await talk.tell("no member id", "one", enter("none", ""), 1)
    await talk.tell("a bad expression", "one", enter("none", "m", regex="("), 1)


async def members(talk: Conversation, ids: Ids) -> None:
    group = "members"

    async def described() -> None:
        await talk.tell("described", "watch", describe_consumers(group), 1)

    at = (await talk.tell("one joins", "one", enter(group, "m1"), 1)).member_epoch
    await described()
    await talk.tell("described by v0", "watch", describe_consumers(group), 0)
    for version in (5, 6):
        await talk.tell("described as a classic one", "watch", describe(group), version)
    await talk.tell("one has its partitions", "one", pulse(group, "m1", at, owned={ids[A]: [0, 1, 2]}), 1)
    for what, member, epoch in (("one", "m1", at), ("an epoch to come", "m1", at + 1), ("an old epoch", "m1", at - 1)):
        await talk.tell(what, "one", pulse(group, member, epoch), 1)
    for epoch in (at, -1):
        await talk.tell("somebody", "one", pulse(group, "m", epoch), 1)
    for version in (2, 8, 9, 10):
        for member, epoch in (("m1", at), ("m1", at - 1), ("m1", at + 1), ("m", at), ("", -1), ("m1", -1)):
            request = commit(group, [(A, 0, 5)], member, epoch, ids=ids)
            await talk.tell(f"{member!r} commits in {epoch - at}", "one", request, version)
    readers = (("m1", at), ("m1", at + 1), ("m", 1), (None, -1), ("m1", -1), ("", -1))
    await talk.tell("fetched", "one", fetch(*(of_group(group, None, member, e) for member, e in readers)), 9)
    await talk.tell("offsets are deleted", "one", delete_offsets(group, {A: [0], B: [0]}), 0)
    await talk.tell("is deleted", "one", delete(group), 2)
    two = (await talk.tell("two joins", "two", enter(group, "m2"), 1)).member_epoch
    await described()
    answer = await talk.tell("one is to give up some", "one", pulse(group, "m1", at), 1)
    await described()
    kept = {topic.topic_id: list(topic.partitions) for topic in answer.assignment.topic_partitions}
    await talk.tell("two has to wait", "two", pulse(group, "m2", two), 1)
    new = (await talk.tell("one has given up some", "one", pulse(group, "m1", at, owned=kept), 1)).member_epoch
    await talk.tell("one has missed that answer", "one", pulse(group, "m1", at, owned=kept), 1)
    await talk.tell("one is in an old epoch", "one", pulse(group, "m1", at), 1)
    for partitions in (kept[ids[A]], [0, 1, 2]):
        request = commit(group, [(A, partition, 5) for partition in partitions], "m1", at, ids=ids)
        await talk.tell("one commits under the old epoch", "one", request, 10)
    two = (await talk.tell("two gets the rest", "two", pulse(group, "m2", two), 1)).member_epoch
    await described()
    answer = await talk.tell("two wants the other topic", "two", pulse(group, "m2", two, topics=[B]), 1)
    await described()
    await talk.tell("two", "two", pulse(group, "m2", answer.member_epoch), 1)
    await talk.tell("one", "one", pulse(group, "m1", new), 1)
    await described()
    await talk.tell("a classic heartbeat", "three", beat(group, "m1", 1), 4)
    await talk.tell("a classic sync", "three", sync(group, "m1", 1), 5)
    for member in ("m1", "m2", "m2"):
        await talk.tell(f"{member} leaves", "one", pulse(group, member, -1), 1)
    await described()
    await talk.tell("who has left", "two", pulse(group, "m2", 4), 1)
    await talk.tell("a stranger commits", "one", commit(group, [(A, 0, 5)], ids=ids), 10)
    await talk.tell("who has left commits", "one", commit(group, [(A, 0, 5)], "m1", 3, ids=ids), 10)
    await talk.tell("who has left fetches", "one", fetch(of_group(group, None, "m1", 1)), 9)
    await talk.tell("a classic member that is not known", "three", join(group, "m"), 9)
    await described()
    await talk.tell("a classic member", "three", join(group), 9)
    # Kafka answers before that is committed.
    await talk.until("watch", describe(group), lambda answer: not answer.groups[0].error_code)
    await talk.tell("described as a classic one", "watch", describe(group), 6)
    await described()
    await talk.tell("a member of the newer protocol", "one", enter(group, "m1"), 1)
    await described()


async def static_members(talk: Conversation, ids: Ids) -> None:
    group = "static"

    async def described() -> None:
        await talk.tell("described", "watch", describe_consumers(group), 1)

    at = (await talk.tell("joins", "one", enter(group, "m1", instance="i"), 1)).member_epoch
    await talk.tell("another joins as it", "two", enter(group, "m2", instance="i"), 1)
    await talk.tell("another beats as it", "two", pulse(group, "m2", 1, instance="i"), 1)
    await talk.tell("beats as another", "one", pulse(group, "m1", at, instance="j"), 1)
    await talk.tell("beats without its instance", "one", pulse(group, "m1", at), 1)
    await talk.tell("another leaves for it", "two", pulse(group, "m2", -2, instance="i"), 1)
    await talk.tell("leaves as another", "two", pulse(group, "m1", -2, instance="j"), 1)
    await talk.tell("leaves for a moment", "one", pulse(group, "m1", -2, instance="i"), 1)
    await described()
    for epoch in (at, -2):
        request = commit(group, [(A, 0, 5)], "m1", epoch, "i", ids=ids)
        await talk.tell("commits while it is away", "one", request, 10)
    await talk.tell("beats while it is away", "one", pulse(group, "m1", at, instance="i"), 1)
    await talk.tell("leaves again", "one", pulse(group, "m1", -2, instance="i"), 1)
    await talk.tell("is back", "two", enter(group, "m2", instance="i"), 1)
    await described()
    for epoch in (at, -1):
        await talk.tell("a zombie", "one", pulse(group, "m1", epoch, instance="i"), 1)
    await talk.tell("leaves for a moment", "two", pulse(group, "m2", -2, instance="i"), 1)
    await talk.tell("is back with another topic", "two", enter(group, "m2", [B], instance="i"), 1)
    await described()
    await talk.tell("joins again without leaving", "two", enter(group, "m2", instance="i"), 1)
    await talk.tell("leaves for good", "two", pulse(group, "m2", -1, instance="i"), 1)
    await described()
    for _ in range(2):
        await talk.tell("a dynamic one joins", "two", enter(group, "m3"), 1)
    await talk.tell("becomes a static one", "two", enter(group, "m3", instance="j"), 1)
    await described()
    await talk.tell("leaves", "two", pulse(group, "m3", -1), 1)


async def expressions(talk: Conversation, ids: Ids) -> None:
    group = "expressions"
    at = (await talk.tell("joins", "one", enter(group, "m", regex="shared-.*"), 1)).member_epoch
    await talk.until("watch", describe_consumers(group), lambda answer: answer.groups[0].group_epoch > at)
    at = (await talk.tell("gets its partitions", "one", pulse(group, "m", at), 1)).member_epoch
    await talk.tell("described", "watch", describe_consumers(group), 1)
    await talk.tell("a bad one", "one", pulse(group, "m", at, regex="["), 1)
    await talk.tell("a name instead", "one", pulse(group, "m", at, topics=[A], regex=""), 1)
    await talk.tell("described", "watch", describe_consumers(group), 1)
    await talk.tell("leaves", "one", pulse(group, "m", -1), 1)
    await talk.tell("described", "watch", describe_consumers(group), 1)


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
async def test_members_hear_the_same_as_from_apache_kafka(broker: BrokerProcess, apache_kafka: ApacheKafka) -> None:
    parts = (mistakes, members, static_members, expressions)
    ours, theirs = [await heard_by(one.bootstrap, begin, *parts) for one in (broker, apache_kafka)]
    assert [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b] == []
