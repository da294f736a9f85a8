from __future__ import annotations

import csv
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as peers_murmur2

from klamm.client import BrokerSaid, ClientConfig, ConfigError
from klamm.client.batches import Batch, Queue
from klamm.client.metadata import Partition, Topic
from klamm.client.partitioner import Default, Route, Sticky, murmur2, partition_for_key, partitioner
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.kernel import Builder

CORPUS = Path(__file__).with_name("partitions_of_java.csv")
BATCH_SIZE = 1000


def test_murmur2_gives_javas_values() -> None:
    javas = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    assert {key: murmur2(key.encode()) for key in javas} == {key: value & 0xFFFFFFFF for key, value in javas.items()}


def test_keys_go_where_javas_producer_sends_them() -> None:
    """tests/clients/java/Partitions.java has made the corpus."""
    with open(CORPUS, newline="") as file:
        _, *rows = csv.reader(file)
    assert len(rows) > 250
    for key, count, partition in rows:
        assert partition_for_key(bytes.fromhex(key), int(count)) == int(partition), key


@given(st.binary(max_size=70), st.integers(1, 100))
def test_a_key_goes_to_the_partition_that_another_client_chooses(key: bytes, partitions: int) -> None:
    assert murmur2(key) == peers_murmur2(key) & 0xFFFFFFFF
    assert partition_for_key(key, partitions) == (peers_murmur2(key) & 0x7FFFFFFF) % partitions


def route(partitions: int, *, leaderless: tuple[int, ...] = ()) -> Route:
    leaders = {n: Partition(n, -1 if n in leaderless else n, 0, (), (), ()) for n in range(partitions)}
    topic = Topic("t", bytes(16), False, ErrorCode.NONE, leaders)
    return Route(topic, [Queue(TopicPartition("t", n)) for n in range(partitions)])


def fill(chooser: Any, where: Route, batches: int, *, sent: bool = False, size: int = 900) -> list[int]:
    """The partitions of so many batches of keyless records, each begun as a sender does it."""
    chosen = []
    for _ in range(batches):
        queue = chooser.begin(where, chooser.pick(where, None), None)
        builder = Builder()
        builder.append(0, None, b"x" * size, (), 1 << 20)
        batch = Batch(queue.place, 0.0, builder)
        queue.begin(batch)
        chooser.begun(where, batch, None)
        chosen.append(queue.place.partition)
        if sent:
            queue.open.close()  # type: ignore[union-attr]
            queue.open = None
            queue.waiting.clear()
    return chosen


def default(**options: Any) -> Default:
    return Default(Random(1), BATCH_SIZE, options.pop("is_stalled", lambda node: False), **options)


def test_records_without_a_key_move_on_when_a_batch_is_full() -> None:
    chosen = fill(default(), route(4), 200)
    assert set(chosen) == {0, 1, 2, 3}
    assert max(Counter(chosen).values()) < 100


def test_batches_that_are_sent_half_empty_stay_with_a_partition_until_there_is_enough() -> None:
    chosen = fill(default(), route(50), 40, sent=True, size=190)
    runs = [list(chosen[at : at + 6]) for at in range(0, 36, 6)]
    assert all(len(set(run)) == 1 for run in runs), chosen
    assert len(set(chosen)) > 3


def test_partitions_with_long_queues_get_fewer_records() -> None:
    slow = route(2)
    slow.queues[0].waiting.extend([None] * 30)  # type: ignore[list-item]
    chooser = default()
    chosen: Counter[int] = Counter()
    for _ in range(500):
        chosen[chooser._move_on(slow).place.partition] += 1
    assert chosen[0] < 50 < chosen[1]
    fair: Counter[int] = Counter()
    even = default(adaptive=False)
    for _ in range(500):
        fair[even._move_on(slow).place.partition] += 1
    assert min(fair.values()) > 150


def test_partitions_without_a_leader_or_of_a_stalled_broker_are_avoided() -> None:
    chooser = default(is_stalled=lambda node: node == 2)
    where = route(4, leaderless=(0,))
    assert {chooser._move_on(where).place.partition for _ in range(100)} == {1, 3}
    nowhere = route(2, leaderless=(0, 1))
    assert {chooser._move_on(nowhere).place.partition for _ in range(100)} == {0, 1}


def test_sticky_begins_each_batch_somewhere_else() -> None:
    chosen = fill(Sticky(Random(1), BATCH_SIZE, lambda node: False), route(3), 60, sent=True, size=10)
    assert set(chosen) == {0, 1, 2}
    assert all(one != other for one, other in pairwise(chosen))
    assert fill(Sticky(Random(1), BATCH_SIZE, lambda node: False), route(1), 3) == [0, 0, 0]


def chooser_of(given: Any = None, **options: object) -> Any:
    config = ClientConfig.from_mapping({name.replace("_", "."): value for name, value in options.items()})
    return partitioner(given, config, Random(1), lambda node: False)


@pytest.mark.parametrize("name", ["round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_takes_all_that_have_a_leader_in_turn(name: str) -> None:
    chooser = chooser_of(partitioner_class=name)
    where = route(4, leaderless=(1,))
    assert [chooser.pick(where, b"the same key").place.partition for _ in range(7)] == [0, 2, 3, 0, 2, 3, 0]


def test_keys_can_be_ignored() -> None:
    chooser = chooser_of(partitioner_ignore_keys=True)
    where = route(20)
    picked = {chooser.pick(where, b"key-%d" % number).place.partition for number in range(50)}
    assert len(picked) == 1


def test_a_function_chooses_among_what_there_is() -> None:
    asked: list[object] = []

    def choose(key: Any, partitions: Any, available: Any) -> int:
        asked.append((key, partitions, available))
        return int(key)

    chooser = chooser_of(choose)
    where = route(3, leaderless=(2,))
    assert chooser.pick(where, b"1").place.partition == 1
    assert asked == [(b"1", [0, 1, 2], [0, 1])]
    with pytest.raises(BrokerSaid, match="partitions 0 to 2"):
        chooser.pick(where, b"7")


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="round_robin"):
        chooser_of("com.example.Mine")
