from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.controller.placement import place
from klamm.metadata.image import BrokerState


def brokers(racks):
    return [BrokerState(i, i, bytes(16), (), rack, (), False) for i, rack in enumerate(racks)]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9), st.data())
def test_placement_keeps_its_promises(racks, data):
    members = brokers(racks)
    replicas = data.draw(st.integers(1, len(racks)))
    partitions = data.draw(st.integers(1, 40))
    placed = place(members, partitions, replicas, Random(data.draw(st.integers(0, 1000))))
    assert len(placed) == partitions
    leaders = Counter(replica[0] for replica in placed)
    rack_of = {b.id: b.rack if b.rack is not None else f"own {b.id}" for b in members}
    for replica in placed:
        assert len(replica) == len(set(replica)) == replicas
        assert len({rack_of[b] for b in replica}) == min(replicas, len(set(rack_of.values())))
    counts = [leaders[b.id] for b in members]
    assert max(counts) - min(counts) <= 1


def test_followers_of_one_leader_are_spread_over_the_others():
    placed = place(brokers([None] * 5), 20, 2, Random(1))
    followers = {leader: {p[1] for p in placed if p[0] == leader} for leader in range(5)}
    assert all(len(found) == 4 for found in followers.values())


def test_topics_of_one_partition_do_not_all_land_on_one_broker():
    rng = Random(1)
    leaders = Counter(place(brokers([None] * 4), 1, 1, rng)[0][0] for _ in range(400))
    assert all(leaders[broker] > 50 for broker in range(4))


def test_the_same_seed_places_the_same():
    members = brokers(["a", "b", "a", "b", None])
    assert place(members, 9, 3, Random(7)) == place(list(reversed(members)), 9, 3, Random(7))
