"""The records of the metadata log: what can happen to a cluster's metadata, one class for each.

In the log a record's value is its type, its version (both unsigned varints) and its fields in Kafka's flexible
encoding. A type's number is never given to another; a record that changes gets a new version, and a reader that does
not know a type or a version must refuse the log, because it would otherwise forget what was decided.
"""

from __future__ import annotations

from klamm import wire
from klamm.wire.runtime import read_varint, varint
from klamm.wire.schema import (
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
    versions_of,
)

NO_LEADER = -1


class MetadataRecord(Struct):
    """One change of the metadata."""


class Endpoint(Struct):
    """Where one listener of a broker is reached."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: str = string(default="PLAINTEXT")


class SupportedFeature(Struct):
    name: str = string()
    min_level: int = int16()
    max_level: int = int16()


class ControllerRecord(MetadataRecord, versions="0", flexible="0+"):
    """The first record of every controller; the epoch is that of its batch."""

    id: int = int32(default=-1)


class BrokerRecord(MetadataRecord, versions="0", flexible="0+"):
    """A broker registered: a new one, or a new incarnation of one we know."""

    id: int = int32(default=-1)
    epoch: int = int64(default=-1)
    incarnation_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    rack: str | None = string(nullable="0+", default=None)
    features: list[SupportedFeature] = array(SupportedFeature)
    fenced: bool = boolean()


class UnregisterBrokerRecord(MetadataRecord, versions="0", flexible="0+"):
    """A broker will not come back."""

    id: int = int32(default=-1)
    epoch: int = int64(default=-1)


class TopicRecord(MetadataRecord, versions="0", flexible="0+"):
    """A topic without partitions yet; its partition records follow in the same batch."""

    name: str = string()
    topic_id: bytes = uuid()


class RemoveTopicRecord(MetadataRecord, versions="0", flexible="0+"):
    """A topic, its partitions and its configs are gone."""

    topic_id: bytes = uuid()


class PartitionRecord(MetadataRecord, versions="0", flexible="0+"):
    """The whole state of a partition. Partitions of a topic come in ascending order without gaps."""

    topic_id: bytes = uuid()
    partition_id: int = int32()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    leader: int = int32(default=NO_LEADER)
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    eligible_leader_replicas: list[int] = array(int32, tag=0)
    adding_replicas: list[int] = array(int32, tag=1)
    removing_replicas: list[int] = array(int32, tag=2)


class PartitionChangeRecord(MetadataRecord, versions="0", flexible="0+"):
    """What changed of a partition; a list that is null stayed as it was. Leader and epochs are always given."""

    topic_id: bytes = uuid()
    partition_id: int = int32()
    leader: int = int32(default=NO_LEADER)
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    replicas: list[int] | None = array(int32, tag=0, nullable="0+", default=None)
    isr: list[int] | None = array(int32, tag=1, nullable="0+", default=None)
    eligible_leader_replicas: list[int] | None = array(int32, tag=2, nullable="0+", default=None)
    adding_replicas: list[int] | None = array(int32, tag=3, nullable="0+", default=None)
    removing_replicas: list[int] | None = array(int32, tag=4, nullable="0+", default=None)


class ConfigRecord(MetadataRecord, versions="0", flexible="0+"):
    """An option of a topic, a broker, … was set, or removed (null). Resource types are Kafka's numbers."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+", default=None)


class FeatureRecord(MetadataRecord, versions="0", flexible="0+"):
    """The level of a feature that all brokers use from here on; 0 switches it off."""

    name: str = string()
    level: int = int16()


class ProducerIdsRecord(MetadataRecord, versions="0", flexible="0+"):
    """Producer ids below `next_producer_id` have been given out to brokers."""

    broker_id: int = int32(default=-1)
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class AclRecord(MetadataRecord, versions="0", flexible="0+"):
    """An access control entry came, or went. The numbers are Kafka's."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()
    removed: bool = boolean()


class QuotaPart(Struct):
    """One part of whom a quota is for; a null name is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+", default=None)


class ClientQuotaRecord(MetadataRecord, versions="0", flexible="0+"):
    """A quota of some client was set, or removed."""

    entity: list[QuotaPart] = array(QuotaPart)
    key: str = string()
    value: float = float64()
    removed: bool = boolean()


class SnapshotRecord(MetadataRecord, versions="0", flexible="0+"):
    """Opens a snapshot: it stands for the log up to and including `offset`, in `record_count` more records."""

    offset: int = int64()
    epoch: int = int32()
    record_count: int = int64()


RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    1: ControllerRecord,
    2: BrokerRecord,
    3: UnregisterBrokerRecord,
    4: TopicRecord,
    5: RemoveTopicRecord,
    6: PartitionRecord,
    7: PartitionChangeRecord,
    8: ConfigRecord,
    9: FeatureRecord,
    10: ProducerIdsRecord,
    11: SnapshotRecord,
    12: AclRecord,
    13: ClientQuotaRecord,
}

_HEADS = {  # class -> (version it is written in, type and version as bytes)
    record: (versions_of(record)[-1], varint(number) + varint(versions_of(record)[-1]))
    for number, record in RECORD_TYPES.items()
}


class UnreadableRecord(ValueError):
    """A record of a type or version that this Klamm does not know, or that is damaged."""


def encode_record(record: MetadataRecord) -> bytes:
    version, head = _HEADS[type(record)]
    return head + wire.encode(record, version)


def decode_record(data: bytes) -> MetadataRecord:
    try:
        number, pos = read_varint(data, 0)
        version, pos = read_varint(data, pos)
        kind = RECORD_TYPES.get(number)
        if kind is None or version not in versions_of(kind):
            name = kind.__name__ if kind else f"record type {number}"
            raise UnreadableRecord(f"{name} version {version} is from a newer version of Klamm")
        return wire.decode(kind, data, version, pos)
    except (wire.ProtocolError, IndexError) as error:
        raise UnreadableRecord(f"a metadata record is damaged: {error}") from error
