from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peers_murmur2

from klamm.client.partitioner import Sticky, murmur2, partition_for_key


def test_murmur2_gives_javas_values() -> None:
    javas = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    assert {key: murmur2(key.encode()) for key in javas} == {key: value & 0xFFFFFFFF for key, value in javas.items()}


@given(st.binary(max_size=70), st.integers(1, 100))
def test_a_key_goes_to_the_partition_that_another_client_chooses(key: bytes, partitions: int) -> None:
    assert murmur2(key) == peers_murmur2(key) & 0xFFFFFFFF
    assert partition_for_key(key, partitions) == (peers_murmur2(key) & 0x7FFFFFFF) % partitions


def test_sticky_moves_to_another_partition_where_there_is_one() -> None:
    sticky = Sticky(Random(1))
    assert sticky.current("t") is None
    assert sticky.move_on("t", [3]) == 3
    assert sticky.move_on("t", [3]) == 3
    seen = [sticky.move_on("t", [1, 2, 3]) for _ in range(50)]
    assert set(seen) == {1, 2, 3}
    assert all(one != other for one, other in pairwise(seen))
    assert sticky.current("t") == seen[-1]
