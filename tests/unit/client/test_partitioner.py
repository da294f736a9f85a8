from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peers_murmur2

from klamm.client.partitioner import murmur2, partition_for_key


def test_murmur2_gives_javas_values() -> None:
    javas = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    assert {key: murmur2(key.encode()) for key in javas} == {key: value & 0xFFFFFFFF for key, value in javas.items()}


@given(st.binary(max_size=70), st.integers(1, 100))
def test_a_key_goes_to_the_partition_that_another_client_chooses(key: bytes, partitions: int) -> None:
    assert murmur2(key) == peers_murmur2(key) & 0xFFFFFFFF
    assert partition_for_key(key, partitions) == (peers_murmur2(key) & 0x7FFFFFFF) % partitions
