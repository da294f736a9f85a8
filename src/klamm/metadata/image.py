"""The metadata as it stands after some record of the log: the `Image`. It never changes; `replay` makes the next one.

Topics, partitions and brokers are NamedTuples, shared between images. The tables are dicts that `replay` copies when
it must change them: at 10,000 topics a copy costs some 50 us (measured), and nearly every access is a read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klamm.core.ids import TopicId
from klamm.metadata.acls import Acl
from klamm.metadata.quotas import QuotaEntity
from klamm.metadata.records import (
    NO_LEADER,
    AclRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerRecord,
    Endpoint,
    FeatureRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaPart,
    SupportedFeature,
    TopicRecord,
)

TOPIC_RESOURCE = 2  # Kafka's numbers of config resource types
BROKER_RESOURCE = 4

_NO_CONFIGS: Mapping[str, str] = {}


class PartitionState(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicState(NamedTuple):
    name: str
    id: TopicId
    partitions: tuple[PartitionState, ...]


class BrokerEndpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerState(NamedTuple):
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    features: tuple[tuple[str, int, int], ...]  # name, lowest and highest level
    fenced: bool

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where clients of this listener reach the broker; None if it has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


class ConfigResource(NamedTuple):
    type: int
    name: str


class Image:
    """Read only. `offset` is that of the last record that is in it (-1: none), `epoch` its controller's."""

    __slots__ = (
        "acls",
        "brokers",
        "configs",
        "controller_id",
        "epoch",
        "features",
        "folded_names",
        "next_producer_id",
        "offset",
        "quotas",
        "topic_ids",
        "topics",
    )

    def __init__(
        self,
        *,
        offset: int = -1,
        epoch: int = -1,
        controller_id: int = -1,
        topics: dict[str, TopicState] | None = None,
        topic_ids: dict[TopicId, TopicState] | None = None,
        folded_names: dict[str, str] | None = None,
        brokers: dict[int, BrokerState] | None = None,
        configs: dict[ConfigResource, dict[str, str]] | None = None,
        features: dict[str, int] | None = None,
        next_producer_id: int = 0,
        acls: dict[Acl, None] | None = None,
        quotas: dict[QuotaEntity, dict[str, float]] | None = None,
    ) -> None:
        self.offset = offset
        self.epoch = epoch
        self.controller_id = controller_id
        self.topics: Mapping[str, TopicState] = topics or {}
        self.topic_ids: Mapping[TopicId, TopicState] = topic_ids or {}
        self.folded_names: Mapping[str, str] = folded_names or {}
        self.brokers: Mapping[int, BrokerState] = brokers or {}
        self.configs: Mapping[ConfigResource, Mapping[str, str]] = configs or {}
        self.features: Mapping[str, int] = features or {}
        self.next_producer_id = next_producer_id
        self.acls: Mapping[Acl, None] = acls or {}  # a set that keeps its order
        self.quotas: Mapping[QuotaEntity, Mapping[str, float]] = quotas or {}

    def topic(self, name: str) -> TopicState | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicState | None:
        return self.topic_ids.get(TopicId(topic_id))

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        if state is None or not 0 <= index < len(state.partitions):
            return None
        return state.partitions[index]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """What was set for this topic, as text; without what the broker's options say."""
        return self.configs.get(ConfigResource(TOPIC_RESOURCE, name), _NO_CONFIGS)

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """What was set for a broker; None: for all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get(ConfigResource(BROKER_RESOURCE, name), _NO_CONFIGS)

    def live_brokers(self) -> list[BrokerState]:
        """Brokers that may lead, by id."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Image.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Image(offset={self.offset}, epoch={self.epoch}, {len(self.topics)} topics, {len(self.brokers)} brokers)"
        )


EMPTY = Image()


def fold_name(name: str) -> str | None:
    """What two topic names have in common that metrics would confuse, because `.` becomes `_` there; None for a name
    without either, which cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def to_records(image: Image) -> Iterator[MetadataRecord]:
    """The shortest log that makes this image, but for its offset and epoch."""
    if image.controller_id != -1:
        yield ControllerRecord(id=image.controller_id)
    for feature, level in image.features.items():
        yield FeatureRecord(name=feature, level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in enumerate(topic.partitions):
            yield partition_record(topic.id, index, partition)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
    for acl in image.acls:
        yield acl_record(acl)
    for entity, quotas in image.quotas.items():
        for key, limit in quotas.items():
            yield quota_record(entity, key, limit)


def broker_record(broker: BrokerState) -> BrokerRecord:
    return BrokerRecord(
        id=broker.id,
        epoch=broker.epoch,
        incarnation_id=broker.incarnation_id,
        endpoints=[
            Endpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        rack=broker.rack,
        features=[SupportedFeature(name=name, min_level=low, max_level=high) for name, low, high in broker.features],
        fenced=broker.fenced,
    )


def acl_record(acl: Acl, *, removed: bool = False) -> AclRecord:
    return AclRecord(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
        removed=removed,
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """None removes it."""
    parts = [QuotaPart(entity_type=kind, entity_name=name) for kind, name in entity]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, removed=value is None)


def partition_record(topic_id: bytes, index: int, partition: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        eligible_leader_replicas=list(partition.elr),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )


__all__ = [
    "BROKER_RESOURCE",
    "EMPTY",
    "NO_LEADER",
    "TOPIC_RESOURCE",
    "BrokerEndpoint",
    "BrokerState",
    "ConfigResource",
    "Image",
    "PartitionState",
    "TopicState",
    "acl_record",
    "broker_record",
    "fold_name",
    "partition_record",
    "quota_record",
    "to_records",
]
