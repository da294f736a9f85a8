"""Consumer groups under whatever members, topics and the clock do, with crashes in between: what always holds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.errors import ErrorCode
from support.consumer_groups import Consumer, Shard

CONSUMERS = 5
STATIC = {3: "i3", 4: "i4"}
SUBSCRIPTIONS = (["a"], ["a", "b"], ["b", "c"], [], ["a", "b", "c"])
REGEXES = (None, None, "a|b", "[bc].*", ".*")
CLUSTERS = ({"a": 3}, {"a": 3, "b": 2}, {"a": 5, "b": 2, "c": 1}, {"b": 4, "c": 1}, {"a": 1, "b": 4, "c": 6})
TIMES = (0.5, 3, 12, 46, 61)
KINDS = ("beat", "lost", "slow", "leave", "away", "die", "subscribe", "topics", "time", "crash", "resolve")
LIKELY = [*("beat",) * 10, *KINDS, "time", "slow", "resolve"]
ROUNDS = 60
"""Enough for every time limit to pass once (static members that died), and for the regular expressions after that."""

EVENTS = st.lists(
    st.tuples(st.sampled_from(LIKELY), st.integers(0, CONSUMERS - 1), st.integers(0, 4)), min_size=5, max_size=60
)


class World:
    def __init__(self, interval_ms: int) -> None:
        self.shard = Shard(CLUSTERS[1], group_consumer_assignment_interval_ms=interval_ms)
        self.consumers = [Consumer(self.shard, f"c{n}", STATIC.get(n)) for n in range(CONSUMERS)]
        for number, consumer in enumerate(self.consumers):
            consumer.topics = list(SUBSCRIPTIONS[number % 2])

    def do(self, kind: str, who: int, detail: int) -> None:
        consumer, shard = self.consumers[who], self.shard
        if kind in ("beat", "lost", "slow"):
            consumer.beat(lost=kind == "lost", slow=kind == "slow")
        elif kind == "leave":
            consumer.leave()
        elif kind == "away" and consumer.instance_id is not None and consumer.running:
            consumer.leave(-2)
            consumer.restart()
        elif kind == "die":
            consumer.restart()
            consumer.running = False
        elif kind == "subscribe":
            consumer.topics, consumer.regex, consumer.changed = list(SUBSCRIPTIONS[detail]), REGEXES[detail - who], True
        elif kind == "topics":
            shard.set_topics(CLUSTERS[detail])
        elif kind == "time":
            shard.reflex.wait(TIMES[detail])
        elif kind == "crash":
            shard.reflex.crash()
            shard.reflex.effects.clear()
        elif kind == "resolve":
            shard.resolve()

    def check(self, *, replay: bool = True) -> None:
        if replay:
            self.shard.check_replay()
        self.shard.check()
        for consumer in self.consumers:
            consumer.check()

    def settle(self) -> None:
        """Whoever runs goes on; then topics change once more, and after that nothing happens any more."""
        running = [consumer for consumer in self.consumers if consumer.running]
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                self.shard.set_topics({"a": 2, "c": 3})
            for consumer in running:
                code = consumer.beat()
                assert code in (
                    ErrorCode.NONE,
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                ), code
            self.shard.resolve()
            self.shard.reflex.wait(5)
            self.check(replay=False)
        self.check()
        if running:
            self.settled(running)

    def settled(self, running: list[Consumer]) -> None:
        shard = self.shard
        assert {consumer.member_id for consumer in running} == shard.members
        assert shard.group.state == "Stable"
        wanted = set()
        for consumer in running:
            member = shard.group.members[consumer.member_id]
            names = set(consumer.topics)
            if consumer.regex:
                names |= shard.group.resolved[consumer.regex].topics
            ids = {topic.id: len(topic.partitions) for name in names if (topic := shard.image.topic(name))}
            wanted |= {(topic, n) for topic, count in ids.items() for n in range(count)}
            assert consumer.epoch == member.epoch == shard.group.target_epoch
            assert {topic: set(epochs) for topic, epochs in member.assigned.items()} == consumer.owned
            assert set(consumer.owned) <= set(ids)
        owned = [(topic, n) for consumer in running for topic, numbers in consumer.owned.items() for n in numbers]
        assert sorted(owned) == sorted(wanted), "everything is read, and by one"


@settings(max_examples=60)
@given(EVENTS, st.sampled_from([0, 1000]))
def test_no_partition_has_two_owners_replay_gives_the_same_and_the_group_settles(
    events: list[tuple[str, int, int]], interval_ms: int
) -> None:
    world = World(interval_ms)
    for event in events:
        world.do(*event)
        world.check()
    world.settle()


@pytest.mark.parametrize("seed", range(12))
def test_the_same_through_long_histories(seed: int) -> None:
    rng = Random(seed)
    world = World(rng.choice([0, 1000]))
    for step in range(200):
        world.do(rng.choice(LIKELY), rng.randrange(CONSUMERS), rng.randrange(5))
        world.check(replay=step % 20 == 0)
    world.settle()
