"""Administration with other people's clients: confluent-kafka (librdkafka) and kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as KResourceType
from kafka.structs import TopicPartition as Place
from kafka.structs import TopicPartitionReplica

from support.process import BrokerProcess


@pytest.fixture
def rd(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})


@pytest.fixture
def py(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def result(futures: dict[Any, Any]) -> Any:
    """Of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(30)


def code(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as error:
        result(futures)
    return int(error.value.args[0].code())


def make(rd: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    result(rd.create_topics([NewTopic(topic, partitions, config=config)]))


def fill(broker: BrokerProcess, topic: str, count: int, partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(count):
        producer.send(topic, str(number).encode(), partition=partition)
    producer.close()


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=30_000)
    consumer.assign([Place(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer).value for _ in range(count)]
    consumer.close()
    return found


# ---- confluent-kafka


def test_rd_more_partitions(rd: AdminClient, broker: BrokerProcess, topic: str) -> None:
    make(rd, topic)
    result(rd.create_partitions([NewPartitions(topic, 3)], validate_only=True))
    assert len(rd.list_topics(topic, timeout=30).topics[topic].partitions) == 1
    result(rd.create_partitions([NewPartitions(topic, 3)]))
    assert len(rd.list_topics(topic, timeout=30).topics[topic].partitions) == 3
    fill(broker, topic, 2, partition=2)
    assert code(rd.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS


def test_rd_delete_records(rd: AdminClient, broker: BrokerProcess, topic: str) -> None:
    make(rd, topic)
    fill(broker, topic, 10)
    assert result(rd.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    earliest = result(rd.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}))
    assert earliest.offset == 4
    assert values(broker, topic, 6) == [str(n).encode() for n in range(4, 10)]
    assert code(rd.delete_records([TopicPartition(topic, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_rd_describe_cluster_and_topics(rd: AdminClient, topic: str) -> None:
    make(rd, topic, 2)
    cluster = rd.describe_cluster(include_authorized_operations=True).result(30)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    assert AclOperation.ALTER in cluster.authorized_operations
    described = result(rd.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert [p.leader.id for p in described.partitions] == [cluster.controller.id] * 2
    assert AclOperation.READ in described.authorized_operations


def test_rd_elect_leaders(rd: AdminClient, topic: str) -> None:
    make(rd, topic)
    outcome = rd.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(30)
    assert [error.code() for error in outcome.values()] == [KafkaError.ELECTION_NOT_NEEDED]
    assert rd.elect_leaders(ElectionType.PREFERRED).result(30) == {}


def test_rd_acls(rd: AdminClient, topic: str) -> None:
    allow, read, literal, prefixed = (
        AclPermissionType.ALLOW,
        AclOperation.READ,
        ResourcePatternType.LITERAL,
        ResourcePatternType.PREFIXED,
    )
    exact = AclBinding(ResourceType.TOPIC, topic, literal, "User:x", "*", read, allow)
    prefix = AclBinding(ResourceType.TOPIC, topic[:-2], prefixed, "User:x", "*", read, allow)
    for future in rd.create_acls([exact, prefix]).values():
        future.result(30)
    matching = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert set(rd.describe_acls(matching).result(30)) == {exact, prefix}
    assert set(result(rd.delete_acls([matching]))) == {exact, prefix}
    assert rd.describe_acls(matching).result(30) == []


def test_rd_scram_credentials_of_a_user_who_is_not_there(rd: AdminClient) -> None:
    assert code(rd.describe_user_scram_credentials(["nobody"])) == KafkaError.RESOURCE_NOT_FOUND


# ---- kafka-python


def test_py_takes_the_broker_for_kafka_4_3(py: KafkaAdminClient) -> None:
    versions = {int(key): versions for key, versions in py.api_versions().items()}
    assert (versions[35][1], versions[2][1], versions[0][1]) == (5, 11, 13)
    assert py._manager.broker_version == (4, 3)


def test_py_more_partitions(py: KafkaAdminClient, rd: AdminClient, topic: str) -> None:
    make(rd, topic)
    node = py.describe_cluster()["controller_id"]
    py.create_partitions({topic: {"count": 3, "assignments": [[node], [node]]}})
    assert len(py.describe_topics([topic])[0]["partitions"]) == 3
    with pytest.raises(kafka.errors.InvalidReplicationAssignmentError):
        py.create_partitions({topic: {"count": 4, "assignments": [[99]]}})
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        py.create_partitions({topic: 3}, validate_only=True)


def test_py_delete_records(py: KafkaAdminClient, rd: AdminClient, broker: BrokerProcess, topic: str) -> None:
    make(rd, topic, 2)
    fill(broker, topic, 5)
    deleted = py.delete_records({Place(topic, 0): -1, Place(topic, 1): 0})
    assert {tp.partition: found["low_watermark"] for tp, found in deleted.items()} == {0: 5, 1: 0}
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        py.delete_records({Place(topic, 0): 1000})
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        py.delete_records({Place(topic, 9): -1})


def test_py_log_dirs(py: KafkaAdminClient, rd: AdminClient, broker: BrokerProcess, topic: str) -> None:
    make(rd, topic, 2)
    fill(broker, topic, 5)
    (described,) = py.describe_log_dirs({topic: [0, 1]})
    (folder,) = described["log_dirs"]
    assert folder["log_dir"] == str(broker.data)
    sizes = {p["partition_index"]: p["partition_size"] for t in folder["topics"] for p in t["partitions"]}
    assert sizes[0] > 0 == sizes[1]
    replica = TopicPartitionReplica(topic, 0, described["broker"])
    assert py.alter_replica_log_dirs({replica: str(broker.data)}) == {replica: kafka.errors.NoError}
    assert py.alter_replica_log_dirs({replica: "/nowhere"}) == {replica: kafka.errors.LogDirNotFoundError}


def test_py_topic_partitions_page_by_page(py: KafkaAdminClient, rd: AdminClient, topic: str) -> None:
    make(rd, topic, 5)
    found, cursor = [], None
    while True:
        page = py.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        found += [p["partition_index"] for t in page["topics"] for p in t["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [0, 1, 2, 3, 4]


def test_py_producers(py: KafkaAdminClient, rd: AdminClient, broker: BrokerProcess, topic: str) -> None:
    make(rd, topic)
    fill(broker, topic, 3)  # idempotent by default
    (state,) = py.describe_producers([Place(topic, 0)]).values()
    (producer,) = state.active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_py_quorum_features_and_users(py: KafkaAdminClient) -> None:
    (metadata,) = py.describe_metadata_quorum()["topics"]
    (partition,) = metadata["partitions"]
    assert [v["replica_id"] for v in partition["current_voters"]] == [partition["leader_id"]]
    assert "no.such.feature" not in py.describe_features()
    with pytest.raises(kafka.errors.InvalidUpdateVersionError):
        py.update_features({"no.such.feature": 1})
    assert py.describe_user_scram_credentials(["nobody"])["nobody"]["error"]
    assert py.describe_user_scram_credentials() == {}


def test_py_reassignments_and_elections(py: KafkaAdminClient, rd: AdminClient, topic: str) -> None:
    make(rd, topic)
    node = py.describe_cluster()["controller_id"]
    assert py.alter_partition_reassignments({Place(topic, 0): [node]}) == {Place(topic, 0): None}
    assert py.alter_partition_reassignments({Place(topic, 0): None}) == {
        Place(topic, 0): kafka.errors.NoReassignmentInProgressError
    }
    assert py.list_partition_reassignments() == {}
    elected = py.elect_leaders(0, {topic: [0]}, raise_errors=False)
    assert [p[1] for t in elected.replica_election_results for p in t[1]] == [84]


def test_py_acls(py: KafkaAdminClient, topic: str) -> None:
    pattern = ResourcePattern(KResourceType.TOPIC, topic)
    acl = ACL("User:y", "*", ACLOperation.WRITE, ACLPermissionType.DENY, pattern)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    assert len(py.create_acls([acl])["succeeded"]) == 1
    assert py.describe_acls(wanted) == ([acl], kafka.errors.NoError)
    ((_, removed, _),) = py.delete_acls([wanted])
    assert removed == [acl]
    assert py.describe_acls(wanted) == ([], kafka.errors.NoError)
