from __future__ import annotations

from controller_setup import arguments, image_with, play

from klamm.controller.commands import PRODUCER_ID_BLOCK, ProducerIdBlock, allocate_producer_ids
from klamm.controller.features import FeatureUpdate, Upgrade, update_features
from klamm.controller.registration import BrokerRegistration, register_broker
from klamm.controller.topics import NewTopic, TopicToDelete, create_topics, delete_topics
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicId
from klamm.core.options import Options
from klamm.metadata.image import BrokerEndpoint


def with_topics(*names, partitions=1):
    image = image_with(1)
    return play(image, create_topics(image, [NewTopic(n, partitions) for n in names], **arguments()).records)


def delete(image, *topics, **options):
    given = {name.replace("_", "."): value for name, value in options.items()}
    return delete_topics(image, topics, options=Options.from_mapping(given))


def test_topics_are_deleted_by_name_and_by_id():
    image = with_topics("a", "b", "c")
    decision = delete(image, TopicToDelete("a"), TopicToDelete(topic_id=image.topics["b"].id))
    assert [(r.name, r.topic_id, r.error) for r in decision.reply] == [
        ("a", image.topics["a"].id, ErrorCode.NONE),
        ("b", image.topics["b"].id, ErrorCode.NONE),
    ]
    assert set(play(image, decision.records).topics) == {"c"}


def test_topics_that_are_not_there_are_reported_each_in_its_way():
    unknown = TopicId(bytes(range(16)))
    image = with_topics("a")
    results = delete(image, TopicToDelete("x"), TopicToDelete(topic_id=unknown), TopicToDelete()).reply
    assert [r.error for r in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    both = delete(image, TopicToDelete("a", image.topics["a"].id))
    assert both.reply[0].error == ErrorCode.INVALID_REQUEST and not both.records


def test_a_topic_asked_for_twice_is_not_deleted():
    image = with_topics("a", "b")
    decision = delete(image, TopicToDelete("a"), TopicToDelete(topic_id=image.topics["a"].id), TopicToDelete("b"))
    assert [r.error for r in decision.reply] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert set(play(image, decision.records).topics) == {"a"}


def test_deletion_can_be_switched_off():
    decision = delete(with_topics("a"), TopicToDelete("a"), TopicToDelete("x"), delete_topic_enable="false")
    errors = [r.error for r in decision.reply]
    assert errors == [ErrorCode.TOPIC_DELETION_DISABLED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert decision.records == []


def test_blocks_of_producer_ids_follow_each_other():
    image = image_with(1)
    for first in (0, PRODUCER_ID_BLOCK, 2 * PRODUCER_ID_BLOCK):
        decision = allocate_producer_ids(image, broker_id=1)
        assert decision.reply == ProducerIdBlock(first=first, size=PRODUCER_ID_BLOCK)
        image = play(image, decision.records)


def test_only_a_registered_broker_gets_producer_ids():
    decision = allocate_producer_ids(image_with(1), broker_id=2)
    assert decision.records == [] and decision.reply.error == ErrorCode.BROKER_ID_NOT_REGISTERED


def registration(clean):
    return BrokerRegistration(1, bytes(16), [BrokerEndpoint("P", "h", 1)], "r", [("f", 0, 2)], clean)


def test_a_registration_is_in_the_image():
    decision = register_broker(image_with(), registration(True), epoch=9)
    broker = play(image_with(), decision.records).brokers[1]
    assert decision.reply == broker.epoch == 9
    assert broker.endpoint("P") == BrokerEndpoint("P", "h", 1)
    assert (broker.rack, broker.features, broker.fenced) == ("r", (("f", 0, 2),), False)


def registered_with(*features):
    return BrokerRegistration(1, bytes(16), [], features=features, clean=True)


def test_the_only_broker_brings_its_features_at_their_highest_levels():
    new = play(image_with(), register_broker(image_with(), registered_with(("f", 0, 2), ("g", 0, 0)), epoch=1).records)
    assert new.features == {"f": 2}
    upgraded = play(new, register_broker(new, registered_with(("f", 0, 3), ("h", 0, 1)), epoch=2).records)
    assert upgraded.features == {"f": 2, "h": 1}


def test_a_feature_that_was_switched_off_stays_off():
    image = play(image_with(), register_broker(image_with(), registered_with(("f", 0, 2)), epoch=1).records)
    image = play(image, update_features(image, [FeatureUpdate("f", 0, Upgrade.SAFE_DOWNGRADE)]).records)
    image = play(image, register_broker(image, registered_with(("f", 0, 2)), epoch=2).records)
    assert image.features == {}


def test_one_of_several_brokers_brings_no_features():
    image = image_with(2)
    image = play(image, register_broker(image, registered_with(("f", 0, 2)), epoch=9).records)
    assert image.features == {}


def test_after_a_clean_stop_a_broker_leads_on_and_after_a_crash_in_a_new_epoch():
    image = with_topics("a", "b", partitions=2)
    clean = play(image, register_broker(image, registration(True), epoch=9).records)
    assert clean.topics == image.topics
    crashed = play(image, register_broker(image, registration(False), epoch=9).records)
    for topic in crashed.topics.values():
        for partition in topic.partitions:
            assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)
            assert partition.isr == (1,)
