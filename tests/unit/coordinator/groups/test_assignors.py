"""How partitions are shared out: every one to exactly one subscriber, as evenly as promised, and no more moved than
needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.consumer.assignors import ASSIGNORS, Partitions, Subscriber, assign_range, assign_uniform

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
TOPICS = (A, B, C)
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
ASSIGNOR = st.sampled_from(list(ASSIGNORS.values()))


def subscribers(*ids: str, topics: set[bytes] | None = None, had: dict[str, Partitions] | None = None) -> dict:
    wanted = frozenset(TOPICS if topics is None else topics)
    return {member: Subscriber(wanted, (had or {}).get(member, {})) for member in ids}


def loads(assignment: dict[str, Partitions]) -> dict[str, int]:
    return {member: sum(map(len, partitions.values())) for member, partitions in assignment.items()}


def pairs(assignment: dict[str, Partitions]) -> list[tuple[bytes, int]]:
    return sorted((t, p) for partitions in assignment.values() for t, numbers in partitions.items() for p in numbers)


def moved(old: dict[str, Partitions], new: dict[str, Partitions]) -> int:
    """Partitions that somebody has lost who is still there."""
    return sum(
        len(numbers - new[member].get(topic, frozenset()))
        for member, partitions in old.items()
        if member in new
        for topic, numbers in partitions.items()
    )


@given(ASSIGNOR, COUNTS, IDS, st.data())
def test_every_partition_goes_to_one_subscriber_of_its_topic(
    assign: object, counts: dict[bytes, int], ids: list[str], data: st.DataObject
) -> None:
    members: dict[str, Subscriber] = {}
    had: dict[str, Partitions] = {}
    for _ in range(3):
        for member in ids:
            topics = data.draw(st.frozensets(st.sampled_from(TOPICS)))
            members[member] = Subscriber(topics, had.get(member, {}), data.draw(st.sampled_from([None, f"i{member}"])))
        assigned = assign(members, counts)  # type: ignore[operator]
        assert set(assigned) == set(members)
        wanted = {topic for subscriber in members.values() for topic in subscriber.topics}
        assert pairs(assigned) == sorted((topic, p) for topic in wanted for p in range(counts[topic]))
        assert all(set(assigned[member]) <= members[member].topics for member in members)
        assert all(numbers for partitions in assigned.values() for numbers in partitions.values())
        had = assigned
        if members and data.draw(st.booleans()):
            del members[min(members)]
            ids = list(members)


def test_range_keeps_neighbours_together_and_cuts_topics_of_one_size_alike() -> None:
    assigned = assign_range(subscribers("b", "a", "c"), {A: 7, B: 7, C: 2})
    assert assigned == {
        "a": {A: {0, 1, 2}, B: {0, 1, 2}, C: {0}},
        "b": {A: {3, 4}, B: {3, 4}, C: {1}},
        "c": {A: {5, 6}, B: {5, 6}},
    }


def test_range_places_static_members_first() -> None:
    members = {"a": Subscriber(frozenset((A,)), {}), "z": Subscriber(frozenset((A,)), {}, "instance")}
    assert assign_range(members, {A: 2}) == {"z": {A: {0}}, "a": {A: {1}}}


@given(COUNTS, IDS)
def test_uniform_gives_members_that_subscribe_alike_the_same_but_for_one(
    counts: dict[bytes, int], ids: list[str]
) -> None:
    found = loads(assign_uniform(subscribers(*ids), counts)).values()
    assert not found or max(found) - min(found) <= 1


@given(COUNTS, IDS.filter(bool), st.sampled_from("ijk"))
def test_uniform_moves_to_a_newcomer_no_more_than_its_share(counts: dict[bytes, int], ids: list[str], new: str) -> None:
    before = assign_uniform(subscribers(*ids), counts)
    after = assign_uniform(subscribers(*ids, new, had=before), counts)
    assert moved(before, after) == loads(after)[new]
    again = assign_uniform(subscribers(*ids, new, had=after), counts)
    assert again == after, "nothing moves without a reason"


@given(COUNTS, IDS.filter(lambda ids: len(ids) > 1))
def test_uniform_moves_only_what_the_one_who_left_had(counts: dict[bytes, int], ids: list[str]) -> None:
    before = assign_uniform(subscribers(*ids), counts)
    after = assign_uniform(subscribers(*ids[1:], had=before), counts)
    assert moved(before, after) == 0


@given(COUNTS, st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=2, max_size=8))
def test_uniform_leaves_no_partition_where_a_move_would_even_out_two_members(
    counts: dict[bytes, int], subscriptions: list[frozenset[bytes]]
) -> None:
    members = {f"m{n}": Subscriber(topics, {}) for n, topics in enumerate(subscriptions)}
    assigned = assign_uniform(members, counts)
    load = loads(assigned)
    for giver, partitions in assigned.items():
        for topic in partitions:
            for taker, subscriber in members.items():
                assert topic not in subscriber.topics or load[giver] - load[taker] <= 1
    members = {member: Subscriber(old.topics, assigned[member]) for member, old in members.items()}
    assert assign_uniform(members, counts) == assigned, "what is balanced stays"


def test_uniform_drops_partitions_and_topics_that_are_gone() -> None:
    had: dict[str, Partitions] = {"a": {A: frozenset((0, 5)), B: frozenset((0,))}}
    assert assign_uniform(subscribers("a", topics={A}, had=had), {A: 2}) == {"a": {A: {0, 1}}}


def test_nobody_gets_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign({}, {}) == {}
        assert assign(subscribers("a", "b", topics=set()), {}) == {"a": {}, "b": {}}
