from __future__ import annotations

import pytest
from controller_setup import arguments, image_with, play

from klamm.controller.topics import MAX_PARTITIONS_PER_REQUEST, NewTopic, create_topics
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID


def create(image, *topics, validate_only=False, **options):
    return create_topics(image, topics, validate_only=validate_only, **arguments(**options))


def refusal(image, topic, **options):
    decision = create(image, topic, **options)
    assert decision.records == []
    (result,) = decision.reply
    assert result.topic_id == NO_TOPIC_ID
    return result.error, result.message


def test_a_topic_takes_the_brokers_defaults():
    decision = create(image_with(1), NewTopic("a"), num_partitions=3)
    (result,) = decision.reply
    assert (result.error, result.message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    topic = play(image_with(1), decision.records).topics["a"]
    assert topic.id == result.topic_id
    assert [(p.replicas, p.isr, p.leader, p.leader_epoch) for p in topic.partitions] == [((1,), (1,), 1, 0)] * 3


def test_partitions_replicas_and_configs_are_as_asked_for():
    topic = NewTopic("a", 4, 2, configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")])
    decision = create(image_with(1, 2, 3), topic)
    image = play(image_with(1, 2, 3), decision.records)
    assert [len(p.replicas) for p in image.topics["a"].partitions] == [2] * 4
    assert image.topic_configs("a") == {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert decision.reply[0].configs == image.topic_configs("a")


def test_validate_only_answers_the_same_and_writes_nothing():
    decision = create(image_with(1), NewTopic("a", 2), NewTopic("b b"), validate_only=True)
    assert decision.records == []
    assert [(r.error, r.num_partitions) for r in decision.reply] == [
        (ErrorCode.NONE, 2),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    ]


def test_one_bad_topic_does_not_stop_the_others():
    decision = create(image_with(1), NewTopic("a"), NewTopic(""), NewTopic("c"))
    errors = [r.error for r in decision.reply]
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert set(play(image_with(1), decision.records).topics) == {"a", "c"}


def test_a_name_twice_in_a_request_is_refused_once():
    decision = create(image_with(1), NewTopic("a"), NewTopic("b"), NewTopic("a", 5))
    assert [(r.name, r.error) for r in decision.reply] == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.NONE)]


def test_an_existing_topic_is_not_created_again():
    image = play(image_with(1), create(image_with(1), NewTopic("a")).records)
    assert refusal(image, NewTopic("a")) == (ErrorCode.TOPIC_ALREADY_EXISTS, "topic a exists")


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a._", "a__")])
def test_names_that_metrics_would_confuse_are_refused_also_within_a_request(first, second):
    image = play(image_with(1), create(image_with(1), NewTopic(first)).records)
    error, message = refusal(image, NewTopic(second))
    assert error == ErrorCode.INVALID_TOPIC_EXCEPTION and first in message
    both = create(image_with(1), NewTopic(first), NewTopic(second)).reply
    assert [r.error for r in both] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", MAX_PARTITIONS_PER_REQUEST + 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("a", configs=[("x", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", configs=[("retention.ms", "1"), ("retention.ms", "2")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("a", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments=[(0, [3])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_created_is_refused_with_kafkas_code(topic, error):
    code, message = refusal(image_with(1, 2, 3, fenced=[3]), topic)
    assert code == error
    assert message


def test_the_bound_on_partitions_is_for_the_whole_request():
    many = [NewTopic(f"t{i}", 1000) for i in range(11)]
    decision = create(image_with(1), *many)
    assert {r.error for r in decision.reply} == {ErrorCode.POLICY_VIOLATION}
    assert decision.records == []


def test_a_manual_assignment_is_kept_and_fenced_brokers_are_not_in_sync():
    image = image_with(1, 2, 3, fenced=[2])
    decision = create(image, NewTopic("a", assignments=[(1, [2, 3]), (0, [1, 2])]))
    partitions = play(image, decision.records).topics["a"].partitions
    assert [(p.replicas, p.isr, p.leader) for p in partitions] == [((1, 2), (1,), 1), ((2, 3), (3,), 3)]


def test_without_brokers_nothing_can_be_created():
    assert refusal(image_with(), NewTopic("a"))[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def test_reserved_and_used_ids_are_not_given_out():
    image = play(image_with(1), create(image_with(1), NewTopic("a")).records)
    ids = iter([bytes(16), (1).to_bytes(16), image.topics["a"].id, (77).to_bytes(16)])
    decision = create_topics(image, [NewTopic("b")], **{**arguments(), "new_id": lambda: next(ids)})
    assert decision.reply[0].topic_id == (77).to_bytes(16)
