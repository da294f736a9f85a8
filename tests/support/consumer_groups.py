"""Consumer groups without a broker: a group machine that is driven as a shard would, topics that come and go, and
members that behave as a client library does."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeat import Client
from klamm.coordinator.groups.consumer.regexes import ResolveRegexes, resolving
from klamm.coordinator.groups.machine import GroupMachine
from klamm.coordinator.records import GROUPS
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.core.options import Options
from klamm.core.slices import at_once
from klamm.metadata.image import ConfigResource, Image, PartitionState, TopicState
from klamm.metadata.replay import difference
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from support.coordinators import Reflex

GROUP = "g"
REBALANCE_MS = 60_000


class Shard:
    """One shard, with the metadata around it."""

    def __init__(self, topics: dict[str, int] | None = None, seed: int = 1, **options: object) -> None:
        given = {name.replace("_", "."): value for name, value in options.items()}
        self.options = Options.from_mapping({"group.consumer.assignment.interval.ms": 0, **given})
        self.rng = Random(seed)
        self.hidden: set[str] = set()
        """Topics that members may not see."""
        self._states: dict[str, TopicState] = {}
        self._offset = 0
        self.reflex = Reflex(lambda: GroupMachine(lambda: self.options, lambda: self.rng.randbytes(16)), GROUPS)
        self.set_topics(topics or {})
        self.reflex.do(lambda machine, now: machine.loaded(now))

    def set_topics(self, topics: dict[str, int], configs: dict[str, str] | None = None) -> None:
        """All topics that there are from now on, and how many partitions each has."""
        old = self.image
        for name in set(self._states) - set(topics):
            del self._states[name]
        for name, count in topics.items():
            state = self._states.get(name)
            topic_id = TopicId(self.rng.randbytes(16)) if state is None else state.id
            partition = PartitionState((1,), (1,), 1, 0, 0)
            self._states[name] = TopicState(name, topic_id, (partition,) * count)
        self._offset += 1
        image = Image(
            offset=self._offset,
            topics=dict(self._states),
            topic_ids={state.id: state for state in self._states.values()},
            configs={ConfigResource(32, GROUP): configs} if configs else {},
        )
        self.reflex.publish(image, difference(old, image))

    @property
    def image(self) -> Image:
        return self.reflex.image or Image()

    def topic_id(self, name: str) -> bytes:
        return self._states[name].id

    @property
    def group(self) -> ConsumerGroup:
        group = self.reflex.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def members(self) -> set[str]:
        return set(self.group.members) if GROUP in self.reflex.machine.groups else set()

    def send(self, member_id: str, epoch: int, owned: dict[str, set[int]] | None = None, **fields: Any) -> Any:
        """A heartbeat, and its answer."""
        partitions = None
        if owned is not None:
            partitions = [
                TopicPartitions(topic_id=self.topic_id(name), partitions=sorted(numbers))
                for name, numbers in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, topic_partitions=partitions, **fields
        )
        client = Client("client", "/127.0.0.1", lambda topic: topic not in self.hidden)
        note = self.reflex.ask(lambda machine, reply, now: machine.consumer.heartbeat(request, client, reply, now))
        assert note.done, "a heartbeat is answered at once"
        return note.answer

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        if "subscribed_topic_regex" not in fields or topics:
            fields["subscribed_topic_names"] = list(topics)
        return self.send(member_id, 0, {}, **fields)

    def resolve(self) -> None:
        """Carry out what the machine has asked for."""
        effects, self.reflex.effects = self.reflex.effects, []
        for effect in effects:
            assert isinstance(effect, ResolveRegexes)
            self._resolve(effect)

    def _resolve(self, effect: ResolveRegexes) -> None:
        matched = at_once(resolving(effect.expressions, self.image.topics))
        found = {text: frozenset(filter(effect.may_see, topics)) for text, topics in matched.items()}
        version = self.image.offset
        self.reflex.do(lambda machine, now: machine.consumer.resolved(effect.group_id, found, version, now))

    def assignment(self, answer: Any) -> dict[str, list[int]] | None:
        """What an answer assigns, by topic name; None: it does not say."""
        if answer.assignment is None:
            return None
        names = {state.id: name for name, state in self._states.items()}
        return {names[topic.topic_id]: topic.partitions for topic in answer.assignment.topic_partitions}

    def check_replay(self) -> None:
        """The log gives the same groups, also when some of it was compacted, with or without its tombstones."""
        whole = list(self.reflex.log)
        cut = self.rng.randint(0, len(whole))
        for start in ([], compacted(whole[:cut], tombstones=True), compacted(whole[:cut], tombstones=False)):
            self.reflex.log = start + whole[cut if start else 0 :]
            replayed = self.reflex.replayed().groups
            self.reflex.log = whole
            self._compare(replayed)

    def _compare(self, replayed: Mapping[str, Any]) -> None:
        groups = self.reflex.machine.groups
        assert set(replayed) == set(groups)
        for group_id, group in groups.items():
            again = replayed[group_id]
            assert type(again) is type(group)
            if isinstance(group, ConsumerGroup) and isinstance(again, ConsumerGroup):
                assert again.durable() == group.durable()

    def check(self) -> None:
        """What always holds in the coordinator."""
        for group in self.reflex.machine.groups.values():
            if isinstance(group, ConsumerGroup):
                _check(group)


def compacted(log: list[Any], *, tombstones: bool) -> list[Any]:
    """The newest of each key, where it was."""
    newest = {entry[0]: number for number, entry in enumerate(log)}
    return [
        entry for number, entry in enumerate(log) if newest[entry[0]] == number and (tombstones or entry[1] is not None)
    ]


def _check(group: ConsumerGroup) -> None:
    owned = [
        (topic, partition)
        for member in group.members.values()
        for assigned in (member.assigned, member.revoking)
        for topic, partitions in assigned.items()
        for partition in partitions
    ]
    assert len(owned) == len(set(owned)) == len(group.owners()), "a partition has two owners"
    target = [(t, p) for part in group.target.values() for t, numbers in part.items() for p in numbers]
    assert len(target) == len(set(target)), "a partition is meant for two members"
    assert set(group.target) <= set(group.members)


class Consumer:
    """A member as a client library is: it owns what it was told to, gives up what it is told to, and says so."""

    def __init__(self, shard: Shard, name: str, instance_id: str | None = None) -> None:
        self.shard = shard
        self.name = name
        self.instance_id = instance_id
        self.lives = 0
        self.topics: list[str] = []
        self.regex: str | None = None
        self.running = False
        self.restart()

    def restart(self) -> None:
        """As if its process had gone and come again: with a new id, and nothing."""
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.begin_anew()

    def begin_anew(self) -> None:
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.told: dict[bytes, set[int]] = {}
        self.changed = True

    def beat(self, *, lost: bool = False, slow: bool = False) -> ErrorCode:
        """A heartbeat. `lost`: the answer does not arrive. `slow`: it has not given up yet what it has to."""
        if not slow:
            self._obey()
        full = self.epoch == 0 or self.changed
        topics = [TopicPartitions(topic_id=t, partitions=sorted(n)) for t, n in sorted(self.owned.items())]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=topics if full else None,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=list(self.topics) if full else None,
            subscribed_topic_regex=(self.regex or "") if full else None,
        )
        client = Client(self.name, "/127.0.0.1", lambda topic: True)
        reflex = self.shard.reflex
        answer = reflex.ask(lambda m, reply, now: m.consumer.heartbeat(request, client, reply, now)).answer
        self.running = True
        if lost:
            self.changed = True  # a client that does not know what came of it says everything again
            return ErrorCode.NONE
        self.changed = False
        return self._take(answer)

    def _take(self, answer: Any) -> ErrorCode:
        code = ErrorCode(answer.error_code)
        if code:
            self.begin_anew()
            return code
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.told = {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
            for topic, numbers in self.told.items():
                self.owned.setdefault(topic, set()).update(numbers)
            self.changed = self.changed or self.owned != self.told
        return code

    def _obey(self) -> None:
        if self.owned != self.told:
            self.changed = True
        self.owned = {topic: set(numbers) for topic, numbers in self.told.items()}

    def leave(self, epoch: int = -1) -> None:
        self.shard.send(self.member_id, epoch, instance_id=self.instance_id)
        self.running = False
        self.begin_anew()

    def check(self) -> None:
        """It owns nothing that the coordinator does not know to be its own."""
        if self.member_id in self.shard.members:
            member = self.shard.group.members[self.member_id]
            for topic, numbers in self.owned.items():
                known = {*member.assigned.get(topic, {}), *member.revoking.get(topic, {})}
                assert numbers <= known, (self.member_id, topic, numbers, known)
