"""Random commits, transactions, deletions, topics that come and go, and crashes: what is kept is what the log says."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from klamm.coordinator.groups import listing
from klamm.coordinator.groups.machine import GroupMachine
from klamm.coordinator.groups.offsets import Commit, Committer
from klamm.coordinator.machine import Now, Outcome, Producer, Record
from klamm.coordinator.records import GROUPS, encode
from klamm.core.ids import TopicId
from klamm.core.options import Options
from klamm.metadata.image import Image, TopicState
from klamm.metadata.replay import Delta, difference
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
)
from support.groups import Reply

GROUP = st.sampled_from("gh")
TOPIC = st.sampled_from("tu")
PARTITION = st.integers(0, 1)
PRODUCER = st.integers(1, 3)


class OffsetsUnderFire(RuleBasedStateMachine):
    """`model` is what clients may expect: by group, topic and partition."""

    @initialize()
    def begin(self) -> None:
        self.options = Options.from_mapping({"offsets.retention.minutes": 60})
        self.log: list[tuple[bytes, bytes | None, Producer | None] | tuple[Producer, bool]] = []
        self.monotonic = 10.0
        self.ids = {"t": 1, "u": 2}
        self.image = self.image_of()
        self.machine = self.fresh()
        self.machine.image_changed(self.image, Delta(), self.now)
        self.apply(self.machine.loaded(self.now))
        self.model: dict[tuple[str, str, int], int] = {}
        self.open: dict[int, dict[tuple[str, str, int], int]] = {}
        self.next_offset = 0

    @property
    def now(self) -> Now:
        return Now(self.monotonic, int(self.monotonic * 1000))

    def fresh(self) -> GroupMachine:
        return GroupMachine(lambda: self.options, lambda: bytes(16))

    def image_of(self) -> Image:
        states = {name: TopicState(name, TopicId(bytes([number]) * 16), ()) for name, number in self.ids.items()}
        return Image(topics=states, topic_ids={state.id: state for state in states.values()})

    def apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append((*encode(record), outcome.producer))
            self.machine.replay(record, outcome.producer)
        self.settle()

    def settle(self) -> None:
        """What is due now, and what follows from it."""
        while (due := self.machine.next_due) is not None and due <= self.monotonic + 0.1:
            self.monotonic = max(self.monotonic, due)
            for record in (outcome := self.machine.tick(self.now)).records:
                self.log.append((*encode(record), outcome.producer))
                self.machine.replay(record, outcome.producer)

    def write(self, group: str, topic: str, partition: int, producer: Producer | None) -> int:
        self.next_offset += 1
        asked = OffsetCommitRequestPartition(partition_index=partition, committed_offset=self.next_offset)
        commit = Commit(topic, self.image.topics[topic].id, asked, OffsetCommitResponsePartition())
        who = Committer(group, version=9, producer=producer)
        outcome = self.machine.offsets.commit(who, [commit], OffsetCommitResponse(), Reply(), self.now)
        assert not commit.answer.error_code
        self.apply(outcome)
        return self.next_offset

    @rule(group=GROUP, topic=TOPIC, partition=PARTITION)
    def commit(self, group: str, topic: str, partition: int) -> None:
        if topic in self.ids:
            self.model[group, topic, partition] = self.write(group, topic, partition, None)

    @rule(group=GROUP, topic=TOPIC, partition=PARTITION, producer=PRODUCER)
    def commit_in_transaction(self, group: str, topic: str, partition: int, producer: int) -> None:
        if topic in self.ids:
            offset = self.write(group, topic, partition, Producer(producer, 0))
            self.open.setdefault(producer, {})[group, topic, partition] = offset

    @rule(producer=PRODUCER, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.log.append((Producer(producer, 0), committed))
        self.machine.replay_end(Producer(producer, 0), committed)
        for place, offset in self.open.pop(producer, {}).items():
            if committed and offset > self.model.get(place, 0):  # offsets grow, so the larger one was written later
                self.model[place] = offset

    @rule(group=GROUP)
    def delete(self, group: str) -> None:
        self.apply(listing.delete(self.machine, group, Reply()))
        self.forget(lambda place: place[0] == group)
        assert group not in self.machine.groups

    @rule(group=GROUP, topic=TOPIC, partition=PARTITION)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        self.apply(Outcome(self.machine.offsets.tombstones(group, [(topic, partition)])))
        self.forget(lambda place: place == (group, topic, partition))

    @rule(topic=TOPIC)
    def delete_topic(self, topic: str) -> None:
        if self.ids.pop(topic, None) is not None:
            self.change()
            self.forget(lambda place: place[1] == topic)

    @rule(topic=TOPIC)
    def create_topic(self, topic: str) -> None:
        if topic not in self.ids:
            self.ids[topic] = max(self.ids.values(), default=2) + 1
            self.change()

    def change(self) -> None:
        before, self.image = self.image, self.image_of()
        self.apply(self.machine.image_changed(self.image, difference(before, self.image), self.now))

    @rule()
    def crash(self) -> None:
        """Another machine takes over, with the log and the image alone."""
        self.machine = self.replayed()
        self.machine.image_changed(self.image, Delta(), self.now)
        self.apply(self.machine.loaded(self.now))

    def forget(self, gone: Any) -> None:
        self.model = {place: offset for place, offset in self.model.items() if not gone(place)}
        for producer, places in self.open.items():
            self.open[producer] = {place: offset for place, offset in places.items() if not gone(place)}

    def replayed(self) -> GroupMachine:
        machine = self.fresh()
        for entry in self.log:
            if len(entry) == 2:
                machine.replay_end(*entry)
            else:
                key, value, producer = entry
                record = GROUPS.decode(key, value)
                assert isinstance(record, Record)
                machine.replay(record, producer)
        return machine

    @invariant()
    def what_is_kept_is_what_clients_may_expect(self) -> None:
        store = self.machine.offsets.store
        kept = {(group, *place): value.offset for group in "gh" for place, value in store.of_group(group).items()}
        assert kept == self.model
        pending = {(group, *place) for group in "gh" for place in store.pending_places(group)}
        assert pending == {place for places in self.open.values() for place in places}

    @invariant()
    def the_log_alone_gives_the_same(self) -> None:
        again = self.replayed()
        assert again.offsets.store.durable() == self.machine.offsets.store.durable()
        assert again.groups.keys() == self.machine.groups.keys()


OffsetsUnderFire.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestOffsetsUnderFire = OffsetsUnderFire.TestCase
