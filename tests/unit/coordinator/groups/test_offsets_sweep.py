"""What becomes of offsets by time and by the deletion of topics, on a machine without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import wire
from klamm.coordinator.groups.offsets import Commit, Committer
from klamm.coordinator.machine import Outcome, Producer, Record
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.metadata.image import Image, TopicState
from klamm.metadata.replay import difference
from klamm.wire.messages.coordinator import OffsetCommitKey
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
)
from support.groups import GroupDriver, Reply

MINUTE = 60.0
RETENTION = 60 * MINUTE
CHECK = 10 * MINUTE
SUBSCRIBED_TO_T = {"range": b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"}


def image_of(**topics: int) -> Image:
    """Topics by name, each with a number that stands for its id."""
    states = {name: TopicState(name, topic_id(number), ()) for name, number in topics.items()}
    return Image(topics=states, topic_ids={state.id: state for state in states.values()})


def topic_id(number: int) -> TopicId:
    return TopicId(bytes([number]) * 16)


class OffsetDriver(GroupDriver):
    def __init__(self, **options: object) -> None:
        super().__init__(offsets_retention_minutes=60, **options)
        self.image = image_of(t=1, u=2)
        self.machine.image_changed(self.image, difference(self.image, self.image), self.moment)

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        group_id: str = "g",
        member_id: str = "",
        epoch: int = -1,
        retention_ms: int = -1,
        producer: Producer | None = None,
    ) -> int:
        """The error of the first."""
        commits = []
        for (topic, index), offset in offsets.items():
            asked = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            answer = OffsetCommitResponsePartition(partition_index=index)
            commits.append(Commit(topic, self.image.topics[topic].id, asked, answer))
        who = Committer(group_id, member_id, None, epoch, 9, producer)
        outcome = self.machine.offsets.commit(who, commits, OffsetCommitResponse(), Reply(), self.moment, retention_ms)
        self.write(outcome)
        return commits[0].answer.error_code

    def write(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.machine.replay(record, outcome.producer)

    def change(self, image: Image) -> None:
        delta, self.image = difference(self.image, image), image
        self.apply(self.machine.image_changed(image, delta, self.moment))
        self.advance(0.1)

    def kept(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        return {place: value.offset for place, value in self.machine.offsets.store.of_group(group_id).items()}


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver()


def test_offsets_of_a_group_that_never_had_members_expire_after_their_commit(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1})
    driver.advance(RETENTION / 2)
    driver.commit({("t", 1): 2})
    driver.advance(RETENTION / 2 + CHECK)
    assert driver.kept() == {("t", 1): 2}
    assert "g" in driver.machine.groups
    driver.advance(RETENTION / 2)
    assert driver.kept() == {}
    assert "g" not in driver.machine.groups, "nothing is left of the group"
    counters = driver.machine.counters
    assert (counters.commits, counters.expired_offsets, counters.expired_groups) == (2, 2, 1)


def test_offsets_of_an_empty_group_expire_after_the_last_member_has_left(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1})
    (member,) = driver.stable(1, protocols=SUBSCRIBED_TO_T, session_ms=10**9)
    driver.advance(3 * RETENTION)
    assert driver.kept() == {("t", 0): 1}, "a member reads the topic"
    driver.leave((member, None))
    driver.advance(RETENTION - 1)
    assert driver.kept() == {("t", 0): 1}
    driver.advance(CHECK + 1)
    assert driver.kept() == {}
    assert "g" not in driver.machine.groups


def test_offsets_of_a_topic_that_nobody_in_the_group_reads_expire_while_it_has_members(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1, ("u", 0): 2})
    driver.stable(1, protocols=SUBSCRIBED_TO_T, session_ms=10**9)
    driver.advance(RETENTION + CHECK)
    assert driver.kept() == {("t", 0): 1}
    assert driver.group().state == "Stable"


def test_members_that_are_no_consumers_keep_everything(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1})
    driver.stable(1, protocol_type="connect", session_ms=10**9)
    driver.advance(3 * RETENTION)
    assert driver.kept() == {("t", 0): 1}


def test_a_client_of_old_may_say_itself_how_long_to_keep_an_offset(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1}, retention_ms=int(2 * RETENTION * 1000))
    driver.commit({("u", 0): 1}, retention_ms=1)
    driver.advance(RETENTION + CHECK)
    assert driver.kept() == {("t", 0): 1}
    driver.advance(RETENTION)
    assert driver.kept() == {}


@pytest.mark.parametrize(("retention_ms", "kept"), [(2**63 - 1, True), (0, False), (-(2**62), False)])
def test_any_retention_that_a_client_may_say_can_be_kept(driver: OffsetDriver, retention_ms: int, kept: bool) -> None:
    driver.commit({("t", 0): 1}, retention_ms=retention_ms)
    value = driver.machine.offsets.store.get("g", ("t", 0))
    assert value is not None
    wire.encode(value, 1)
    driver.advance(RETENTION + CHECK)
    assert bool(driver.kept()) == kept


def test_what_a_transaction_is_about_to_change_does_not_expire(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1})
    driver.commit({("t", 0): 2}, producer=Producer(7, 0))
    driver.advance(2 * RETENTION)
    assert driver.kept() == {("t", 0): 1}
    driver.machine.replay_end(Producer(7, 0), True)
    driver.advance(CHECK)
    assert driver.kept() == {}, "it was committed long ago"
    assert "g" not in driver.machine.groups


def test_an_empty_group_without_offsets_goes_with_the_next_look(driver: OffsetDriver) -> None:
    (member,) = driver.stable(1, session_ms=10**9)
    driver.leave((member, None))
    driver.advance(CHECK + 1)
    assert "g" not in driver.machine.groups
    driver.crash()
    assert "g" not in driver.machine.groups


def test_a_deleted_topic_takes_its_offsets_along_and_pending_ones_too(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1, ("u", 0): 2})
    driver.commit({("t", 1): 3, ("u", 1): 4}, producer=Producer(7, 0))
    driver.change(image_of(u=2))
    assert driver.kept() == {("u", 0): 2}
    driver.machine.replay_end(Producer(7, 0), True)
    assert driver.kept() == {("u", 0): 2, ("u", 1): 4}


def test_offsets_of_a_topic_that_was_made_anew_are_not_those_of_the_old_one(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1})
    driver.change(image_of(t=3, u=2))
    assert driver.kept() == {}
    driver.commit({("t", 0): 5})
    driver.change(image_of(t=3))
    assert driver.kept() == {("t", 0): 5}


def test_a_topic_that_was_deleted_while_the_shard_was_away_is_noticed_at_its_return(driver: OffsetDriver) -> None:
    driver.commit({("t", 0): 1, ("u", 0): 2})
    again = OffsetDriver()
    again.machine = again.fresh()
    for (topic, index), value in driver.machine.offsets.store.of_group("g").items():
        again.machine.replay(Record(OffsetCommitKey(group="g", topic=topic, partition=index), value))
    image = image_of(u=2)
    again.apply(again.machine.image_changed(image, difference(image, image), again.moment))
    again.apply(again.machine.loaded(again.moment))
    again.advance(0.1)
    assert again.kept() == {("u", 0): 2}


def test_a_sweep_over_many_offsets_takes_small_steps() -> None:
    driver = OffsetDriver()
    for group in ("g", "h"):
        driver.commit({("t", index): 1 for index in range(1200)}, group)
    sizes: list[int] = []
    apply = driver.apply

    def measured(outcome: Any) -> None:
        sizes.append(len(outcome.records))
        apply(outcome)

    driver.apply = measured  # type: ignore[method-assign]
    driver.change(image_of(u=2))
    assert driver.kept("g") == driver.kept("h") == {}
    assert max(sizes) <= 1000
    assert sum(sizes) == 2400


def test_a_commit_is_a_sign_of_life(driver: OffsetDriver) -> None:
    (member,) = driver.stable(1, protocols=SUBSCRIBED_TO_T, session_ms=10_000)
    for offset in range(5):
        driver.advance(8)
        assert not driver.commit({("t", 0): offset}, member_id=member, epoch=1)
    driver.advance(11)
    assert driver.commit({("t", 0): 9}, member_id=member, epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
