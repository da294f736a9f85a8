from __future__ import annotations

from random import Random

from controller_setup import arguments, image_with, play

from klamm.controller.partitions import MorePartitions, create_partitions
from klamm.controller.topics import NewTopic, create_topics
from klamm.core.errors import ErrorCode
from klamm.metadata.records import BrokerRecord


def with_topic(*brokers, replicas=1):
    image = image_with(*brokers)
    return play(image, create_topics(image, [NewTopic("a", 2, replicas)], **arguments()).records)


def grow(image, *topics, **options):
    return create_partitions(image, topics, rng=Random(1), **options)


def errors(decision):
    return [(result.name, result.error) for result in decision.reply]


def test_a_topic_has_so_many_partitions_afterwards_and_the_old_ones_stay_as_they_are():
    image = with_topic(1, 2, 3, replicas=2)
    decision = grow(image, MorePartitions("a", 5))
    assert errors(decision) == [("a", ErrorCode.NONE)]
    after = play(image, decision.records)
    assert after.topics["a"].partitions[:2] == image.topics["a"].partitions
    assert len(after.topics["a"].partitions) == 5
    assert all(len(p.replicas) == 2 and p.leader == p.replicas[0] for p in after.topics["a"].partitions)


def test_replicas_can_be_chosen_by_hand():
    image = with_topic(1, 2, 3, replicas=2)
    after = play(image, grow(image, MorePartitions("a", 4, [[3, 1], [1, 2]])).records)
    assert [p.replicas for p in after.topics["a"].partitions[2:]] == [(3, 1), (1, 2)]


def test_a_choice_of_replicas_that_cannot_be_is_refused():
    image = with_topic(1, 2, 3, replicas=2)
    for assignment in ([[1, 2]], [[1, 2], [1]], [[1, 2], [1, 9]], [[1, 2], [2, 2]], [[1, 2], []], []):
        decision = grow(image, MorePartitions("a", 4, assignment))
        assert errors(decision) == [("a", ErrorCode.INVALID_REPLICA_ASSIGNMENT)], assignment
        assert not decision.records


def test_fewer_or_as_many_partitions_are_refused():
    image = with_topic(1)
    for count in (-1, 0, 1, 2):
        assert errors(grow(image, MorePartitions("a", count))) == [("a", ErrorCode.INVALID_PARTITIONS)]


def test_each_topic_has_an_error_of_its_own():
    image = with_topic(1)
    decision = grow(image, MorePartitions("b", 3), MorePartitions("a", 3), MorePartitions("b", 4))
    assert errors(decision) == [("b", ErrorCode.INVALID_REQUEST), ("a", ErrorCode.NONE)]
    assert errors(grow(image, MorePartitions("b", 3))) == [("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_request_adds_only_so_many():
    image = with_topic(1)
    decision = grow(image, MorePartitions("a", 2**31 - 1))
    assert errors(decision) == [("a", ErrorCode.POLICY_VIOLATION)] and not decision.records


def test_without_enough_brokers_nothing_is_added():
    image = with_topic(1, 2, replicas=2)
    lonely = play(image, [BrokerRecord(id=2, epoch=9, fenced=True)])
    assert errors(grow(lonely, MorePartitions("a", 3))) == [("a", ErrorCode.INVALID_REPLICATION_FACTOR)]


def test_validate_only_changes_nothing():
    image = with_topic(1)
    decision = grow(image, MorePartitions("a", 3), MorePartitions("b", 3), validate_only=True)
    assert errors(decision) == [("a", ErrorCode.NONE), ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert not decision.records
