"""Every assignor gives each partition to one member that wants it; the sticky ones evenly, and with few moves."""

from __future__ import annotations

import struct
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.client.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    Member,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    resolve,
)
from klamm.client.errors import ConfigError
from klamm.core.ids import TopicPartition

TOPICS = ("t0", "t1", "t2", "t3")
MOST_ROUNDS = 8

partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), max_size=4)
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)
same_subscriptions = st.integers(1, 7).map(lambda count: [frozenset(TOPICS)] * count)


def places(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def members_of(wanted: list[frozenset[str]]) -> list[Member]:
    return [Member(f"m{index}", topics) for index, topics in enumerate(wanted)]


def with_claims(assignor: Assignor, members: list[Member], owned: Assignment, generation: int = 1) -> list[Member]:
    """The members as they join again, with what they were assigned in this generation."""
    again = []
    for member in members:
        mine = tuple(owned.get(member.id, ()))
        told = assignor.user_data(member.topics, mine, generation)
        held = mine if assignor.cooperative else ()
        again.append(member._replace(owned=held, generation=generation, user_data=told))
    return again


def settled(assignor: Assignor, members: list[Member], partitions: dict[str, int]) -> Assignment:
    """What the group comes to from here; a cooperative one in a second round, after what moves was given up."""
    result = assignor.assign(members, partitions)
    if assignor.cooperative:
        result = assignor.assign(with_claims(assignor, members, result), partitions)
    return result


def check_complete(result: Assignment, members: list[Member], partitions: dict[str, int]) -> None:
    given_out = [place for mine in result.values() for place in mine]
    wanted = {topic for member in members for topic in member.topics}
    everything = {TopicPartition(t, p) for t, count in partitions.items() if t in wanted for p in range(count)}
    assert set(result) == {member.id for member in members}
    assert len(given_out) == len(set(given_out)), "a partition was given out twice"
    assert set(given_out) == everything
    for member in members:
        assert {place.topic for place in result[member.id]} <= member.topics


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor(), StickyAssignor()], ids=lambda a: a.name)
@given(wanted=subscriptions, partitions=partition_counts)
def test_every_partition_has_exactly_one_member_that_wants_it(
    assignor: Assignor, wanted: list[frozenset[str]], partitions: dict[str, int]
) -> None:
    members = members_of(wanted)
    check_complete(assignor.assign(members, partitions), members, partitions)


def test_range_divides_each_topic_in_runs() -> None:
    members = members_of([frozenset({"t0", "t1"})] * 2)
    assert RangeAssignor().assign(members, {"t0": 3, "t1": 3}) == {
        "m0": places("t0", 0, 1) + places("t1", 0, 1),
        "m1": places("t0", 2) + places("t1", 2),
    }


def test_round_robin_deals_out_in_turn_and_passes_over_those_who_do_not_want_it() -> None:
    members = [
        Member("m0", frozenset({"t0"})),
        Member("m1", frozenset({"t0", "t1"})),
        Member("m2", frozenset({"t0", "t1", "t2"})),
    ]
    assert RoundRobinAssignor().assign(members, {"t0": 1, "t1": 2, "t2": 3}) == {
        "m0": places("t0", 0),
        "m1": places("t1", 0),
        "m2": places("t1", 1) + places("t2", 0, 1, 2),
    }


def test_static_members_come_first_by_their_instance_ids() -> None:
    topics = frozenset({"t0"})
    members = [Member("a", topics), Member("c", topics, instance_id="1"), Member("b", topics, instance_id="2")]
    result = RangeAssignor().assign(members, {"t0": 3})
    assert result == {"c": places("t0", 0), "b": places("t0", 1), "a": places("t0", 2)}


STICKY = pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()], ids=lambda a: a.name)


def unevenness(result: Assignment) -> int:
    return sum(len(mine) ** 2 for mine in result.values())


def least_unevenness(members: list[Member], partitions: dict[str, int]) -> int:
    """By trying everything."""
    everything = [topic for topic, count in partitions.items() for _ in range(count)]
    choices = [[m.id for m in members if topic in m.topics] for topic in everything]
    return min(
        sum(chosen.count(member.id) ** 2 for member in members)
        for chosen in product(*(choice for choice in choices if choice))
    )


@STICKY
@given(
    wanted=st.lists(st.frozensets(st.sampled_from(TOPICS[:3]), min_size=1), min_size=1, max_size=3),
    partitions=st.dictionaries(st.sampled_from(TOPICS[:3]), st.integers(1, 2), max_size=3),
    before=st.lists(st.frozensets(st.sampled_from(TOPICS[:3]), min_size=1), min_size=1, max_size=3),
)
def test_no_division_is_more_even(
    assignor: Assignor, wanted: list[frozenset[str]], partitions: dict[str, int], before: list[frozenset[str]]
) -> None:
    start = settled(assignor, members_of(before), partitions)
    members = with_claims(assignor, members_of(wanted), start)
    result = settled(assignor, members, partitions)
    check_complete(result, members, partitions)
    assert unevenness(result) == least_unevenness(members, partitions)


@STICKY
@given(wanted=subscriptions, partitions=partition_counts)
def test_nothing_moves_when_nothing_has_changed(
    assignor: Assignor, wanted: list[frozenset[str]], partitions: dict[str, int]
) -> None:
    members = members_of(wanted)
    before = settled(assignor, members, partitions)
    assert settled(assignor, with_claims(assignor, members, before), partitions) == before


@STICKY
@given(old=same_subscriptions, new=same_subscriptions, partitions=partition_counts, grown=partition_counts)
def test_members_with_the_same_topics_keep_all_that_an_even_share_allows(
    assignor: Assignor,
    old: list[frozenset[str]],
    new: list[frozenset[str]],
    partitions: dict[str, int],
    grown: dict[str, int],
) -> None:
    before = settled(assignor, members_of(old), partitions)
    members = with_claims(assignor, members_of(new), before)
    after = settled(assignor, members, grown)
    sizes = sorted(len(mine) for mine in after.values())
    assert sizes[-1] - sizes[0] <= 1
    there = {TopicPartition(topic, index) for topic, count in grown.items() for index in range(count)}
    had = {member.id: set(before.get(member.id, ())) & there for member in members}
    share, extra = divmod(len(there), len(members))
    most = sorted((len(mine) for mine in had.values()), reverse=True)
    possible = sum(min(count, share + (index < extra)) for index, count in enumerate(most))
    assert sum(len(had[member.id] & set(after[member.id])) for member in members) == possible


@given(wanted=subscriptions, joining=subscriptions, partitions=partition_counts, leaves=st.integers(0, 5))
def test_cooperative_members_never_lose_what_stays_nor_get_what_another_has(
    wanted: list[frozenset[str]], joining: list[frozenset[str]], partitions: dict[str, int], leaves: int
) -> None:
    """In no round does anything go to a member while another has it. Where all want the same, two rounds are enough,
    and the second takes nothing from anybody; else it may take another one, now and then."""
    assignor = CooperativeStickyAssignor()
    before = settled(assignor, members_of(wanted), partitions)
    members = members_of([*wanted, *joining])
    if leaves < len(wanted):
        del members[leaves]
    members = with_claims(assignor, members, before)
    rounds = [assignor.assign(members, partitions)]
    while len(rounds) < MOST_ROUNDS and (len(rounds) < 2 or rounds[-1] != rounds[-2]):
        rounds.append(assignor.assign(with_claims(assignor, members, rounds[-1], len(rounds) + 1), partitions))
    check_complete(rounds[-1], members, partitions)
    owned = {member.id: list(member.owned) for member in members}
    for had, result in pairwise([owned, *rounds]):
        owner = {place: member for member, mine in had.items() for place in mine}
        assert all(owner.get(place, member) == member for member, mine in result.items() for place in mine)
    if len({member.topics for member in members}) == 1:
        check_complete(rounds[1], members, partitions)
        assert all(set(mine) <= set(rounds[1][member]) for member, mine in rounds[0].items())
    for member, mine in rounds[0].items():
        stays = set(owned[member]) & set(rounds[1][member])
        assert stays <= set(mine), "it was made to stop reading what it has before and after"


def test_a_partition_goes_by_way_of_another_member_where_there_is_no_direct_one() -> None:
    assignor = StickyAssignor()
    members = [
        Member("a", frozenset({"t0"})),
        Member("b", frozenset({"t0", "t1"})),
        Member("c", frozenset({"t1"})),
    ]
    had = {"a": places("t0", 0, 1, 2), "b": places("t1", 0, 1), "c": places("t1", 2)}
    result = assignor.assign(with_claims(assignor, members, had), {"t0": 3, "t1": 3})
    assert {member: len(mine) for member, mine in result.items()} == {"a": 2, "b": 2, "c": 2}


def test_of_two_claims_the_later_generation_is_believed_and_of_equals_neither() -> None:
    assignor = CooperativeStickyAssignor()
    topics = frozenset({"t0"})
    late = Member("b", topics, owned=tuple(places("t0", 0, 1)), generation=5)
    early = Member("a", topics, owned=tuple(places("t0", 0, 1)), generation=4)
    result = assignor.assign([early, late], {"t0": 4})
    assert result == {"a": places("t0", 2, 3), "b": []}, "what both claim waits until one has given it up"
    only = assignor.assign([early._replace(owned=()), late], {"t0": 4})
    assert only == {"a": places("t0", 2, 3), "b": places("t0", 0, 1)}


def test_user_data_is_what_java_writes() -> None:
    sticky = StickyAssignor().user_data(frozenset({"t"}), places("t", 3), 7)
    assert sticky == b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\3" + b"\0\0\0\7"
    assert StickyAssignor().user_data(frozenset({"t"}), (), -1) is None
    assert CooperativeStickyAssignor().user_data(frozenset({"t"}), (), 7) == b"\0\0\0\7"


@pytest.mark.parametrize(("data", "owner"), [(b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0", "b"), (b"nonsense", "a")])
def test_user_data_without_a_generation_is_read_and_nonsense_is_not(data: bytes, owner: str) -> None:
    topics = frozenset({"t"})
    result = StickyAssignor().assign([Member("a", topics), Member("b", topics, user_data=data)], {"t": 4})
    assert TopicPartition("t", 0) in result[owner]


def test_the_generation_of_an_old_member_comes_from_its_user_data() -> None:
    topics = frozenset({"t"})
    old = Member("a", topics, owned=tuple(places("t", 0)), user_data=struct.pack(">i", 9))
    stale = Member("b", topics, owned=tuple(places("t", 0)), generation=8)
    result = CooperativeStickyAssignor().assign([old, stale], {"t": 2})
    assert result == {"a": [], "b": places("t", 1)}


def test_assignors_are_found_by_their_names_and_javas() -> None:
    names = [
        assignor.name for assignor in resolve("org.apache.kafka.clients.consumer.RangeAssignor, cooperative-sticky")
    ]
    assert names == ["range", "cooperative-sticky"]
    mine = StickyAssignor()
    assert resolve([mine]) == (mine,)
    for wrong in ("fair", "", "range,range"):
        with pytest.raises(ConfigError):
            resolve(wrong)


def test_a_large_group_is_divided_within_a_moment() -> None:
    """A thousand members of two kinds, ten thousand partitions: seconds would hold up the whole rebalance."""
    topics = [f"t{index}" for index in range(20)]
    wanted = [frozenset(topics if index % 2 else topics[:15]) for index in range(1000)]
    members = members_of(wanted)
    assignor = StickyAssignor()
    partitions = dict.fromkeys(topics, 500)
    before = assignor.assign(members, partitions)
    after = assignor.assign(with_claims(assignor, members[:-1], before), partitions)
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 1
