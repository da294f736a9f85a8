"""Random metadata: logs that a controller could have written."""

from __future__ import annotations

from hypothesis import strategies as st

from klamm.metadata.acls import Acl
from klamm.metadata.image import EMPTY, acl_record, fold_name, quota_record
from klamm.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    ControllerRecord,
    Endpoint,
    FeatureRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    SupportedFeature,
    TopicRecord,
    UnregisterBrokerRecord,
)
from klamm.metadata.replay import replay

NAMES = st.text(alphabet="ab._-9", min_size=1, max_size=5)
BROKER_IDS = st.integers(0, 4)
ID_LISTS = st.lists(BROKER_IDS, unique=True, max_size=4)
EPOCHS = st.integers(0, 2**31 - 1)

ACLS = st.builds(
    Acl,
    st.integers(2, 7),
    NAMES,
    st.sampled_from([3, 4]),
    NAMES.map("User:".__add__),
    st.just("*"),
    st.integers(2, 15),
    st.sampled_from([2, 3]),
)


@st.composite
def partition_records(draw, topic_id, index):
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=draw(ID_LISTS),
        isr=draw(ID_LISTS),
        leader=draw(st.integers(-1, 4)),
        leader_epoch=draw(EPOCHS),
        partition_epoch=draw(EPOCHS),
        eligible_leader_replicas=draw(ID_LISTS),
        adding_replicas=draw(ID_LISTS),
        removing_replicas=draw(ID_LISTS),
    )


@st.composite
def brokers(draw):
    return BrokerRecord(
        id=draw(BROKER_IDS),
        epoch=draw(st.integers(-1, 2**63 - 1)),
        incarnation_id=draw(st.binary(min_size=16, max_size=16)),
        endpoints=[
            Endpoint(name=draw(NAMES), host=draw(st.text(max_size=5)), port=draw(st.integers(0, 65535)))
            for _ in range(draw(st.integers(0, 2)))
        ],
        rack=draw(st.none() | NAMES),
        features=[SupportedFeature(name=draw(NAMES), min_level=0, max_level=draw(st.integers(0, 9)))],
        fenced=draw(st.booleans()),
    )


@st.composite
def steps(draw, image):
    """The records of one entry that fits the image."""
    choices = ["topic", "config", "broker", "feature", "producer ids", "controller"]
    choices += ["acl", "quota"] + ["remove acl"] * bool(image.acls)
    choices += ["remove", "change", "grow"] * bool(image.topics) + ["unregister"] * bool(image.brokers)
    kind = draw(st.sampled_from(choices))
    if kind == "topic":
        name, topic_id = draw(NAMES), draw(st.binary(min_size=16, max_size=16))
        if name in image.topics or topic_id in image.topic_ids or fold_name(name) in image.folded_names:
            return []
        count = draw(st.integers(1, 3))
        configs = draw(st.dictionaries(NAMES, st.text(max_size=3), max_size=2))
        return [
            TopicRecord(name=name, topic_id=topic_id),
            *(draw(partition_records(topic_id, index)) for index in range(count)),
            *(ConfigRecord(resource_type=2, resource_name=name, name=k, value=v) for k, v in configs.items()),
        ]
    if kind == "config":
        resource = draw(st.sampled_from([(2, name) for name in image.topics] + [(4, ""), (4, "1")]))
        value = draw(st.none() | st.text(max_size=3))
        return [ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=draw(NAMES), value=value)]
    if kind == "broker":
        return [draw(brokers())]
    if kind == "unregister":
        return [UnregisterBrokerRecord(id=draw(st.sampled_from(list(image.brokers))))]
    if kind == "feature":
        return [FeatureRecord(name=draw(NAMES), level=draw(st.integers(0, 3)))]
    if kind == "producer ids":
        return [ProducerIdsRecord(broker_id=1, next_producer_id=image.next_producer_id + draw(st.integers(1, 1000)))]
    if kind == "acl":
        return [acl_record(draw(ACLS))]
    if kind == "remove acl":
        return [acl_record(draw(st.sampled_from(list(image.acls))), removed=True)]
    if kind == "quota":
        whom = draw(st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | NAMES, min_size=1))
        return [quota_record(tuple(sorted(whom.items())), draw(NAMES), draw(st.none() | st.floats(1, 1e9)))]
    if kind == "controller":
        return [ControllerRecord(id=draw(BROKER_IDS))]
    topic = image.topics[draw(st.sampled_from(list(image.topics)))]
    if kind == "remove":
        return [RemoveTopicRecord(topic_id=topic.id)]
    if kind == "grow":
        return [draw(partition_records(topic.id, len(topic.partitions)))]
    return [
        PartitionChangeRecord(
            topic_id=topic.id,
            partition_id=draw(st.integers(0, len(topic.partitions) - 1)),
            leader=draw(st.integers(-1, 4)),
            leader_epoch=draw(EPOCHS),
            partition_epoch=draw(EPOCHS),
            replicas=draw(st.none() | ID_LISTS),
            isr=draw(st.none() | ID_LISTS),
            eligible_leader_replicas=draw(st.none() | ID_LISTS),
            adding_replicas=draw(st.none() | ID_LISTS),
            removing_replicas=draw(st.none() | ID_LISTS),
        )
    ]


@st.composite
def histories(draw, max_entries=12):
    """Entries as lists of records, in the order in which they were written."""
    image, entries = EMPTY, []
    for _ in range(draw(st.integers(0, max_entries))):
        records = draw(steps(image))
        if records:
            entries.append(records)
            image, _ = replay(image, records, offset=image.offset + len(records), epoch=len(entries))
    return entries
