from __future__ import annotations

import pytest
from hypothesis import given, settings
from metadata_strategies import histories

from klamm.metadata.acls import Acl
from klamm.metadata.entries import decode_snapshot, encode_snapshot, record_count
from klamm.metadata.image import (
    EMPTY,
    TOPIC_RESOURCE,
    BrokerEndpoint,
    BrokerState,
    ConfigResource,
    acl_record,
    fold_name,
    quota_record,
    to_records,
)
from klamm.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    FeatureRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    SnapshotRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from klamm.metadata.replay import Delta, InconsistentMetadata, difference, replay

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))


def play(*records, on=EMPTY, epoch=0):
    return replay(on, records, offset=on.offset + len(records), epoch=epoch)


def topic(name="a", topic_id=ID, partitions=1):
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(topic_id=topic_id, partition_id=i, replicas=[1], isr=[1], leader=1)
            for i in range(partitions)
        ),
    ]


def images(entries):
    image = EMPTY
    yield image
    for number, records in enumerate(entries):
        image, _ = replay(image, records, offset=image.offset + len(records), epoch=number)
        yield image


def test_a_topic_is_found_by_name_and_by_id():
    image, delta = play(*topic("a", partitions=2))
    assert image.topic("a") is image.topic_by_id(ID)
    assert len(image.topics["a"].partitions) == 2
    assert image.partition("a", 1).leader == 1
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None
    assert image.offset == 2
    assert delta == Delta(created=(image.topics["a"],), controller=True)


def test_an_image_does_not_change_when_the_next_one_is_made():
    config = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a", name="k", value="v")
    before, _ = play(*topic(), config)
    copy, _ = play(*topic(), config)
    change = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a", name="k", value="w")
    after, _ = play(change, *topic("b", OTHER_ID), RemoveTopicRecord(topic_id=ID), on=before)
    assert before == copy != after


def test_a_removed_topic_takes_its_configs_along():
    config = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a.b", name="k", value="v")
    before, _ = play(*topic("a.b"), config)
    after, delta = play(RemoveTopicRecord(topic_id=ID), on=before)
    assert after.topic("a.b") is None and after.topic_by_id(ID) is None
    assert after.topic_configs("a.b") == {} and not after.configs and not after.folded_names
    assert delta == Delta(removed=(before.topics["a.b"],), configs=(ConfigResource(TOPIC_RESOURCE, "a.b"),))


def test_a_topic_created_again_is_another_topic():
    before, _ = play(*topic())
    after, delta = play(RemoveTopicRecord(topic_id=ID), *topic("a", OTHER_ID), on=before)
    assert delta.removed == (before.topics["a"],)
    assert delta.created == (after.topics["a"],)


def test_what_comes_and_goes_in_one_entry_is_not_in_the_delta():
    _, delta = play(*topic(), RemoveTopicRecord(topic_id=ID), on=play(*topic("b", OTHER_ID))[0])
    assert delta == Delta()


def test_a_change_of_a_partition_keeps_what_it_does_not_name():
    before, _ = play(*topic(partitions=2))
    change = PartitionChangeRecord(topic_id=ID, partition_id=1, leader=-1, leader_epoch=4, partition_epoch=7, isr=[])
    after, delta = play(change, on=before)
    state = after.partition("a", 1)
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (-1, 4, 7, ())
    assert state.replicas == (1,)
    assert after.partition("a", 0) is before.partition("a", 0)
    assert delta.changed == ((before.topics["a"], after.topics["a"]),)


def test_brokers_come_change_and_go():
    image, delta = play(BrokerRecord(id=2, epoch=5), BrokerRecord(id=1, epoch=6, fenced=True))
    assert delta.brokers == (2, 1)
    assert [broker.id for broker in image.live_brokers()] == [2]
    after, delta = play(UnregisterBrokerRecord(id=2, epoch=5), on=image)
    assert list(after.brokers) == [1]
    assert delta.brokers == (2,)


def test_a_broker_has_an_endpoint_for_each_listener():
    endpoints = (BrokerEndpoint("A", "h", 1), BrokerEndpoint("B", "i", 2))
    broker = BrokerState(1, 1, ID, endpoints, None, (), False)
    assert broker.endpoint("B") == endpoints[1]
    assert broker.endpoint("C") is None


def test_configs_and_features_are_removed_by_null_and_zero():
    set_both = ConfigRecord(resource_type=4, resource_name="", name="k", value="v"), FeatureRecord(name="f", level=2)
    image, delta = play(*set_both)
    assert image.broker_configs(None) == {"k": "v"} and image.broker_configs(1) == {}
    assert image.features == {"f": 2} and delta.features
    unset = ConfigRecord(resource_type=4, resource_name="", name="k", value=None), FeatureRecord(name="f", level=0)
    after, _ = play(*unset, on=image)
    assert not after.configs and not after.features


@pytest.mark.parametrize(
    "records",
    [
        [PartitionRecord(topic_id=ID)],
        [RemoveTopicRecord(topic_id=ID)],
        [*topic(), *topic()],
        [*topic(), *topic("b")],
        [*topic(), *topic("a", OTHER_ID)],
        [*topic(), PartitionRecord(topic_id=ID, partition_id=2)],
        [*topic(), PartitionChangeRecord(topic_id=ID, partition_id=1)],
        [UnregisterBrokerRecord(id=1)],
        [ProducerIdsRecord(next_producer_id=5), ProducerIdsRecord(next_producer_id=4)],
        [SnapshotRecord()],
    ],
)
def test_a_log_that_cannot_be_is_refused(records):
    with pytest.raises(InconsistentMetadata):
        play(*records)


def test_names_that_metrics_confuse_fold_to_the_same():
    assert fold_name("a.b_c") == fold_name("a_b.c") == "a_b_c"
    assert fold_name("abc") is None


@settings(deadline=None, max_examples=100)
@given(histories())
def test_an_image_is_the_same_from_its_log_in_one_go_and_from_its_records(entries):
    image = list(images(entries))[-1]
    records = [record for step in entries for record in step]
    if records:
        assert replay(EMPTY, records, offset=image.offset, epoch=image.epoch)[0] == image
    again, _ = replay(EMPTY, to_records(image), offset=image.offset, epoch=image.epoch)
    assert again == image
    assert record_count(image) == sum(1 for _ in to_records(image))


@settings(deadline=None, max_examples=60)
@given(histories())
def test_a_snapshot_is_read_back_as_the_image_it_was_made_of(entries):
    image = list(images(entries))[-1]
    assert decode_snapshot(b"".join(encode_snapshot(image, 0))) == image


@settings(deadline=None, max_examples=60)
@given(histories())
def test_a_delta_is_what_differs_between_the_images(entries):
    def sets(delta):
        return {field: set(value) if isinstance(value, tuple) else value for field, value in delta._asdict().items()}

    image = EMPTY
    for number, records in enumerate(entries):
        after, delta = replay(image, records, offset=image.offset + len(records), epoch=number)
        assert sets(delta) == sets(difference(image, after))
        image = after


@settings(deadline=None, max_examples=60)
@given(histories())
def test_the_tables_of_an_image_agree_with_each_other(entries):
    for image in images(entries):
        assert {t.id: t for t in image.topics.values()} == image.topic_ids
        assert all(name == t.name for name, t in image.topics.items())
        assert all(image.configs.values())
        assert {fold_name(name): name for name in image.topics if fold_name(name)} == image.folded_names


ACL = Acl(2, "a", 3, "User:x", "*", 3, 3)


def test_an_acl_comes_once_and_goes():
    image, delta = play(acl_record(ACL), acl_record(ACL))
    assert list(image.acls) == [ACL] and delta.acls
    after, delta = play(acl_record(ACL, removed=True), on=image)
    assert not after.acls and delta.acls and image.acls
    with pytest.raises(InconsistentMetadata, match="not there"):
        play(acl_record(ACL, removed=True), on=after)


def test_quotas_are_kept_for_each_entity():
    alice = (("client-id", None), ("user", "alice"))
    image, delta = play(quota_record(alice, "a", 1.0), quota_record(alice, "b", 2.5))
    assert image.quotas == {alice: {"a": 1.0, "b": 2.5}} and delta.quotas
    after, _ = play(quota_record(alice, "a", None), on=image)
    assert after.quotas == {alice: {"b": 2.5}} and image.quotas[alice] == {"a": 1.0, "b": 2.5}
    after, _ = play(quota_record(alice, "b", None), on=after)
    assert after.quotas == {}
