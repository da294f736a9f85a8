"""Records applied to an image: the only way from one image to the next.

`replay` is deterministic: the same records on the same image give the same image on every broker and after every
restart. A record that does not fit the image (a partition of a topic that is not there) means that the log is not
what a controller wrote, and stops the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from klamm.core.ids import TopicId
from klamm.core.slices import Sliced, at_once
from klamm.metadata.acls import Acl
from klamm.metadata.image import (
    TOPIC_RESOURCE,
    BrokerEndpoint,
    BrokerState,
    ConfigResource,
    Image,
    PartitionState,
    TopicState,
    fold_name,
)
from klamm.metadata.quotas import QuotaEntity, entity
from klamm.metadata.records import (
    AclRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerRecord,
    FeatureRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

RECORDS_PER_SLICE = 1000
"""Records replayed before the loop may have a turn: about 2 ms."""


class InconsistentMetadata(Exception):
    """The metadata log says something that cannot be."""


class TopicChange(NamedTuple):
    old: TopicState
    new: TopicState


class Delta(NamedTuple):
    """What is different between two images. A topic is its id: deleted and created again, it is in both lists."""

    created: tuple[TopicState, ...] = ()
    removed: tuple[TopicState, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    configs: tuple[ConfigResource, ...] = ()
    brokers: tuple[int, ...] = ()
    features: bool = False
    controller: bool = False
    acls: bool = False
    quotas: bool = False


def replay(image: Image, records: Iterable[MetadataRecord], *, offset: int, epoch: int) -> tuple[Image, Delta]:
    """The image after these records, the last of which is at `offset` and written under the controller's `epoch`."""
    return at_once(replaying(image, records, offset=offset, epoch=epoch))


def replaying(
    image: Image, records: Iterable[MetadataRecord], *, offset: int, epoch: int
) -> Sliced[tuple[Image, Delta]]:
    """The same in slices."""
    builder = _Builder(image)
    for count, record in enumerate(records, 1):
        builder.apply(record)
        if count % RECORDS_PER_SLICE == 0:
            yield
    after = builder.build(offset, epoch)
    return after, _delta(image, after, builder.topics_touched, builder.configs_touched, builder.brokers_touched)


def difference(old: Image, new: Image) -> Delta:
    """What changed between any two images, found by looking at everything."""
    return _delta(
        old,
        new,
        {**dict.fromkeys(old.topic_ids), **dict.fromkeys(new.topic_ids)},
        {**dict.fromkeys(old.configs), **dict.fromkeys(new.configs)},
        {**dict.fromkeys(old.brokers), **dict.fromkeys(new.brokers)},
    )


def _delta(
    old: Image, new: Image, topics: Iterable[TopicId], configs: Iterable[ConfigResource], brokers: Iterable[int]
) -> Delta:
    created, removed, changed = [], [], []
    for topic_id in topics:
        before, after = old.topic_ids.get(topic_id), new.topic_ids.get(topic_id)
        if before is None:
            if after is not None:
                created.append(after)
        elif after is None:
            removed.append(before)
        elif before is not after and before != after:
            changed.append(TopicChange(before, after))
    return Delta(
        created=tuple(created),
        removed=tuple(removed),
        changed=tuple(changed),
        configs=tuple(key for key in configs if old.configs.get(key) != new.configs.get(key)),
        brokers=tuple(key for key in brokers if old.brokers.get(key) != new.brokers.get(key)),
        features=old.features is not new.features and old.features != new.features,
        controller=(old.controller_id, old.epoch) != (new.controller_id, new.epoch),
        acls=old.acls is not new.acls and old.acls != new.acls,
        quotas=old.quotas is not new.quotas and old.quotas != new.quotas,
    )


class _Builder:
    """Copies of an image's tables, made when they are first changed. The touched keys keep their order: what follows
    from a delta must not depend on hashes."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.topics_touched: dict[TopicId, None] = {}
        self.configs_touched: dict[ConfigResource, None] = {}
        self.brokers_touched: dict[int, None] = {}
        self._topics: dict[str, TopicState] | None = None
        self._topic_ids: dict[TopicId, TopicState] | None = None
        self._folded: dict[str, str] | None = None
        self._configs: dict[ConfigResource, dict[str, str]] | None = None
        self._brokers: dict[int, BrokerState] | None = None
        self._features: dict[str, int] | None = None
        self._acls: dict[Acl, None] | None = None
        self._quotas: dict[QuotaEntity, dict[str, float]] | None = None
        self._partitions: dict[TopicId, list[PartitionState]] = {}  # of topics in work
        self._controller_id = image.controller_id
        self._next_producer_id = image.next_producer_id

    def apply(self, record: MetadataRecord) -> None:
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise InconsistentMetadata(f"{type(record).__name__} has no place in the log")
        handler(self, record)

    def build(self, offset: int, epoch: int) -> Image:
        for topic_id, partitions in self._partitions.items():
            self._put_topic(self._topic(topic_id)._replace(partitions=tuple(partitions)))
        old = self.image
        return Image(
            offset=offset,
            epoch=epoch,
            controller_id=self._controller_id,
            topics=_or(self._topics, old.topics),
            topic_ids=_or(self._topic_ids, old.topic_ids),
            folded_names=_or(self._folded, old.folded_names),
            brokers=_or(self._brokers, old.brokers),
            configs=_or(self._configs, old.configs),
            features=_or(self._features, old.features),
            next_producer_id=self._next_producer_id,
            acls=_or(self._acls, old.acls),
            quotas=_or(self._quotas, old.quotas),
        )

    # Topics

    def _topic(self, topic_id: bytes) -> TopicState:
        table = self.image.topic_ids if self._topic_ids is None else self._topic_ids
        topic = table.get(TopicId(topic_id))
        if topic is None:
            raise InconsistentMetadata(f"a record for a topic that is not there: {topic_id.hex()}")
        return topic

    def _put_topic(self, topic: TopicState) -> None:
        if self._topics is None or self._topic_ids is None:
            self._topics, self._topic_ids = dict(self.image.topics), dict(self.image.topic_ids)
        self._topics[topic.name] = topic
        self._topic_ids[topic.id] = topic
        self.topics_touched[topic.id] = None

    def add_topic(self, record: TopicRecord) -> None:
        topic = TopicState(record.name, TopicId(record.topic_id), ())
        topics = self.image.topics if self._topics is None else self._topics
        ids = self.image.topic_ids if self._topic_ids is None else self._topic_ids
        if topic.name in topics or topic.id in ids:
            raise InconsistentMetadata(f"topic {topic.name} is created twice")
        self._put_topic(topic)
        self._partitions[topic.id] = []
        folded = fold_name(topic.name)
        if folded is not None:
            self._folded_names()[folded] = topic.name

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        self._put_topic(topic)  # so that the tables are copies
        assert self._topics is not None and self._topic_ids is not None
        del self._topics[topic.name]
        del self._topic_ids[topic.id]
        self._partitions.pop(topic.id, None)
        folded = fold_name(topic.name)
        if folded is not None:
            self._folded_names().pop(folded, None)
        resource = ConfigResource(TOPIC_RESOURCE, topic.name)
        configs = self.image.configs if self._configs is None else self._configs
        if resource in configs:
            del self._config_table()[resource]
            self.configs_touched[resource] = None

    def _folded_names(self) -> dict[str, str]:
        if self._folded is None:
            self._folded = dict(self.image.folded_names)
        return self._folded

    # Partitions

    def _partitions_of(self, topic_id: bytes) -> list[PartitionState]:
        partitions = self._partitions.get(TopicId(topic_id))
        if partitions is None:
            partitions = self._partitions[TopicId(topic_id)] = list(self._topic(topic_id).partitions)
        return partitions

    def put_partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        replicas = tuple(record.replicas)
        isr = tuple(record.isr)
        state = PartitionState(
            replicas,
            replicas if isr == replicas else isr,  # one object for both, as nearly always: memory of many partitions
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.eligible_leader_replicas),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
        )
        index = record.partition_id
        if index == len(partitions):
            partitions.append(state)
        elif 0 <= index < len(partitions):
            partitions[index] = state
        else:
            raise InconsistentMetadata(f"partition {index} of a topic with {len(partitions)}")

    def change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        index = record.partition_id
        if not 0 <= index < len(partitions):
            raise InconsistentMetadata(f"a change of partition {index} of a topic with {len(partitions)}")
        old = partitions[index]
        partitions[index] = PartitionState(
            _changed(old.replicas, record.replicas),
            _changed(old.isr, record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            _changed(old.elr, record.eligible_leader_replicas),
            _changed(old.adding, record.adding_replicas),
            _changed(old.removing, record.removing_replicas),
        )

    # The rest

    def put_controller(self, record: ControllerRecord) -> None:
        self._controller_id = record.id

    def put_broker(self, record: BrokerRecord) -> None:
        self._broker_table()[record.id] = BrokerState(
            record.id,
            record.epoch,
            record.incarnation_id,
            tuple(BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in record.endpoints),
            record.rack,
            tuple((f.name, f.min_level, f.max_level) for f in record.features),
            record.fenced,
        )
        self.brokers_touched[record.id] = None

    def remove_broker(self, record: UnregisterBrokerRecord) -> None:
        if self._broker_table().pop(record.id, None) is None:
            raise InconsistentMetadata(f"broker {record.id} is removed but not there")
        self.brokers_touched[record.id] = None

    def _broker_table(self) -> dict[int, BrokerState]:
        if self._brokers is None:
            self._brokers = dict(self.image.brokers)
        return self._brokers

    def put_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        table = self._config_table()
        configs = dict(table.get(resource, ()))  # the dict of the old image is shared
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            table[resource] = configs
        else:
            table.pop(resource, None)
        self.configs_touched[resource] = None

    def _config_table(self) -> dict[ConfigResource, dict[str, str]]:
        if self._configs is None:
            self._configs = dict(self.image.configs)  # type: ignore[arg-type]
        return self._configs

    def put_feature(self, record: FeatureRecord) -> None:
        if self._features is None:
            self._features = dict(self.image.features)
        if record.level:
            self._features[record.name] = record.level
        else:
            self._features.pop(record.name, None)

    def put_acl(self, record: AclRecord) -> None:
        acl = Acl(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        if self._acls is None:
            self._acls = dict(self.image.acls)
        if not record.removed:
            self._acls[acl] = None
        elif acl in self._acls:
            del self._acls[acl]
        else:
            raise InconsistentMetadata(f"an ACL is removed but not there: {acl}")

    def put_quota(self, record: ClientQuotaRecord) -> None:
        whom = entity((part.entity_type, part.entity_name) for part in record.entity)
        if self._quotas is None:
            self._quotas = dict(self.image.quotas)  # type: ignore[arg-type]
        quotas = dict(self._quotas.get(whom, ()))  # the dict of the old image is shared
        if record.removed:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._quotas[whom] = quotas
        else:
            self._quotas.pop(whom, None)

    def put_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise InconsistentMetadata(f"producer ids go back to {record.next_producer_id}")
        self._next_producer_id = record.next_producer_id


def _or(changed: Any, old: Any) -> Any:
    return old if changed is None else changed


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


_HANDLERS: dict[type[MetadataRecord], Callable[[_Builder, Any], None]] = {
    ControllerRecord: _Builder.put_controller,
    BrokerRecord: _Builder.put_broker,
    UnregisterBrokerRecord: _Builder.remove_broker,
    TopicRecord: _Builder.add_topic,
    RemoveTopicRecord: _Builder.remove_topic,
    PartitionRecord: _Builder.put_partition,
    PartitionChangeRecord: _Builder.change_partition,
    ConfigRecord: _Builder.put_config,
    FeatureRecord: _Builder.put_feature,
    ProducerIdsRecord: _Builder.put_producer_ids,
    AclRecord: _Builder.put_acl,
    ClientQuotaRecord: _Builder.put_quota,
}
