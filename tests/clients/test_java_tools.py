"""Apache Kafka's own tools, from Maven: what an administrator types, and what they say about this broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 300)


@pytest.fixture
def at(broker: BrokerProcess) -> list[str]:
    return ["--bootstrap-server", broker.bootstrap]


def offsets(kafka_tools: KafkaTools, at: list[str], topic: str, *arguments: str) -> dict[int, int]:
    lines = kafka_tools("kafka-get-offsets", *at, "--topic", topic, *arguments).split()
    return {int(partition): int(offset) for _, partition, offset in (line.rsplit(":", 2) for line in lines)}


# ---- topics and options


def test_topics_from_their_creation_to_their_end(kafka_tools: KafkaTools, at: list[str], topic: str) -> None:
    create = ["--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000"]
    assert f"Created topic {topic}" in kafka_tools("kafka-topics", *at, *create)
    assert "exists" in kafka_tools.refused("kafka-topics", *at, *create)
    kafka_tools("kafka-topics", *at, "--alter", "--topic", topic, "--partitions", "3")
    described = kafka_tools("kafka-topics", *at, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=3600000", described)
    assert re.findall(r"Partition: (\d)\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described) == ["0", "1", "2"]
    assert topic in kafka_tools("kafka-topics", *at, "--list").split()
    assert kafka_tools("kafka-topics", *at, "--describe", "--under-replicated-partitions") == ""
    kafka_tools("kafka-topics", *at, "--delete", "--topic", topic)
    assert "does not exist" in kafka_tools.refused("kafka-topics", *at, "--describe", "--topic", topic)


def test_options_of_a_topic(kafka_tools: KafkaTools, at: list[str], topic: str) -> None:
    kafka_tools("kafka-topics", *at, "--create", "--topic", topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    change = "segment.bytes=2097152,leader.replication.throttled.replicas=[0:1,1:1]"
    kafka_tools("kafka-configs", *at, "--alter", *entity, "--add-config", change)
    described = kafka_tools("kafka-configs", *at, "--describe", *entity)
    assert "segment.bytes=2097152 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2097152" in described
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in described
    assert "leader.replication.throttled.replicas=0:1,1:1 " in described
    kafka_tools("kafka-configs", *at, "--alter", *entity, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in kafka_tools("kafka-configs", *at, "--describe", *entity)
    assert "segment.bytes=1073741824" in kafka_tools("kafka-configs", *at, "--describe", "--all", *entity)
    refused = kafka_tools.refused("kafka-configs", *at, "--alter", *entity, "--add-config", "retention.mss=1")
    assert "InvalidConfigurationException" in refused
    assert "retention.ms" in refused.replace("retention.mss", "")


def test_options_of_brokers_loggers_and_clients(kafka_tools: KafkaTools, at: list[str]) -> None:
    broker = ["--entity-type", "brokers", "--entity-name", "1"]
    kafka_tools("kafka-configs", *at, "--alter", *broker, "--add-config", "log.retention.ms=123456789")
    assert "log.retention.ms=123456789 sensitive=false" in kafka_tools("kafka-configs", *at, "--describe", *broker)
    kafka_tools("kafka-configs", *at, "--alter", *broker, "--delete-config", "log.retention.ms")
    assert "log.retention.ms" not in kafka_tools("kafka-configs", *at, "--describe", *broker)
    loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    assert "klamm.server=" in kafka_tools("kafka-configs", *at, "--describe", *loggers)
    user = ["--entity-type", "users", "--entity-name", "bob"]
    kafka_tools("kafka-configs", *at, "--alter", *user, "--add-config", "producer_byte_rate=1024")
    assert "producer_byte_rate=1024.0" in kafka_tools("kafka-configs", *at, "--describe", *user)
    kafka_tools("kafka-configs", *at, "--alter", *user, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in kafka_tools("kafka-configs", *at, "--describe", *user)


# ---- records


def test_console_producer_and_consumer_with_a_partition(kafka_tools: KafkaTools, at: list[str], topic: str) -> None:
    lines = "".join(f"h:{i}\tk{i}\tvalue {i}\n" for i in range(50))
    parse = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    codec = ["--compression-codec", "zstd"]
    kafka_tools("kafka-console-producer", *at, "--topic", topic, *parse, *codec, stdin=lines)
    names = ["timestamp", "partition", "offset", "headers", "key"]
    show = [word for name in names for word in ("--formatter-property", f"print.{name}=true")]
    consume = ["--topic", topic, "--partition", "0", "--max-messages", "30", "--timeout-ms", "60000"]
    read = kafka_tools("kafka-console-consumer", *at, *consume, "--offset", "20", *show)
    assert [re.sub(r"^CreateTime:\d{13}\t", "", line) for line in read.splitlines()] == [
        f"Partition:0\tOffset:{i}\th:{i}\tk{i}\tvalue {i}" for i in range(20, 50)
    ]


def test_records_are_deleted_and_offsets_tell(
    kafka_tools: KafkaTools, at: list[str], topic: str, tmp_path: Path
) -> None:
    kafka_tools("kafka-console-producer", *at, "--topic", topic, stdin="".join(f"{i}\n" for i in range(100)))
    assert offsets(kafka_tools, at, topic) == {0: 100}
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 40}]}
    (tmp_path / "delete.json").write_text(json.dumps(wanted))
    deleted = kafka_tools("kafka-delete-records", *at, "--offset-json-file", str(tmp_path / "delete.json"))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 40", deleted)
    assert offsets(kafka_tools, at, topic, "--time", "earliest") == {0: 40}
    consume = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "1"]
    assert kafka_tools("kafka-console-consumer", *at, *consume, "--timeout-ms", "60000") == "40\n"


def test_the_verifiable_producer_has_every_record_acknowledged(
    kafka_tools: KafkaTools, at: list[str], topic: str
) -> None:
    said = kafka_tools("kafka-verifiable-producer", *at, "--topic", topic, "--max-messages", "200", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    sent = [(event["value"], event["offset"]) for event in events if event["name"] == "producer_send_success"]
    assert sent == [(str(i), i) for i in range(200)]
    assert [event["acked"] for event in events if event["name"] == "tool_data"] == [200]


def test_dump_log_reads_what_the_perf_test_wrote(
    kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(options={"log.segment.bytes": 1 << 20})
    at = ["--bootstrap-server", broker.bootstrap]
    load = ["--topic", "perf", "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
    said = kafka_tools(
        "kafka-producer-perf-test", *at, *load, "--command-property", "acks=all", "compression.type=none"
    )
    assert "20000 records sent" in said
    assert offsets(kafka_tools, at, "perf") == {0: 20000}
    assert broker.stop() == 0
    files = [str(file) for suffix in ("log", "index", "timeindex") for file in broker.data.glob(f"*/perf-0/*.{suffix}")]
    assert len(files) >= 12
    text = kafka_tools("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    for complaint in ("mismatch", "not found", "out of order", "Corrupt", "isvalid: false", "rror"):
        assert complaint not in text
    assert [int(offset) for offset in sorted(re.findall(r"^\| offset: (\d+)", text, re.M), key=int)] == [*range(20000)]


# ---- the cluster


def test_the_cluster_as_the_tools_see_it(kafka_tools: KafkaTools, at: list[str], broker: BrokerProcess) -> None:
    versions = kafka_tools("kafka-broker-api-versions", *at)
    for line in (
        "Produce(0): 0 to 13 [usable: 13]",
        "Fetch(1): 4 to 18 [usable: 18]",
        "DescribeTopicPartitions(75): 0",
    ):
        assert line in versions
    cluster = re.search(r"Cluster ID: (\S+)", kafka_tools("kafka-cluster", "cluster-id", *at))
    assert cluster
    assert re.search(r"^1\s+127.0.0.1\s", kafka_tools("kafka-cluster", "list-endpoints", *at), re.M)
    quorum = kafka_tools("kafka-metadata-quorum", *at, "describe", "--status")
    assert re.search(rf"ClusterId:\s+{re.escape(cluster[1])}\nLeaderId:\s+1\n", quorum)
    assert re.search(r"^1\s.*\sLeader\s", kafka_tools("kafka-metadata-quorum", *at, "describe", "--replication"), re.M)
    features = kafka_tools("kafka-features", *at, "describe")
    for name, highest in (("group.version", 1), ("transaction.version", 2)):
        levels = rf"{name}\s+SupportedMinVersion: 0\s+SupportedMaxVersion: {highest}\s+FinalizedVersionLevel: {highest}"
        assert re.search(levels, features)


def test_a_feature_goes_down_and_up_again(kafka_tools: KafkaTools, at: list[str]) -> None:
    kafka_tools("kafka-features", *at, "downgrade", "--feature", "transaction.version=1")
    assert re.search(r"transaction.version.*FinalizedVersionLevel: 1", kafka_tools("kafka-features", *at, "describe"))
    kafka_tools("kafka-features", *at, "upgrade", "--feature", "transaction.version=2")
    assert re.search(r"transaction.version.*FinalizedVersionLevel: 2", kafka_tools("kafka-features", *at, "describe"))


def test_log_dirs_and_producers(kafka_tools: KafkaTools, at: list[str], broker: BrokerProcess, topic: str) -> None:
    kafka_tools("kafka-console-producer", *at, "--topic", topic, stdin="a\nb\nc\n")
    described = kafka_tools("kafka-log-dirs", *at, "--describe", "--topic-list", topic)
    (node,) = json.loads(described.splitlines()[-1])["brokers"]
    (folder,) = node["logDirs"]
    assert (node["broker"], folder["logDir"], folder["error"]) == (1, str(broker.data), None)
    assert [(p["partition"], p["size"] > 0) for p in folder["partitions"]] == [(f"{topic}-0", True)]
    producers = kafka_tools("kafka-transactions", *at, "describe-producers", "--topic", topic, "--partition", "0")
    (state,) = producers.splitlines()[1:]
    assert state.split()[1:4] == ["0", "-1", "2"]  # epoch, no coordinator, the last of three sequence numbers


def test_leaders_and_replicas_stay_where_they_are(
    kafka_tools: KafkaTools, at: list[str], topic: str, tmp_path: Path
) -> None:
    kafka_tools("kafka-topics", *at, "--create", "--topic", topic)
    elect = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    assert f"Valid replica already elected for partitions {topic}-0" in kafka_tools(
        "kafka-leader-election", *at, *elect
    )
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    reassign = ["kafka-reassign-partitions", *at, "--reassignment-json-file", str(plan)]
    assert f"Successfully started partition reassignment for {topic}-0" in kafka_tools(*reassign, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in kafka_tools(*reassign, "--verify")
    assert "No partition reassignments found" in kafka_tools("kafka-reassign-partitions", *at, "--list")


def test_acls_are_kept_listed_and_removed(kafka_tools: KafkaTools, at: list[str], topic: str) -> None:
    allow = ["--allow-principal", "User:bob", "--operation", "Read"]
    kafka_tools("kafka-acls", *at, "--add", *allow, "--topic", topic, "--resource-pattern-type", "prefixed")
    entry = "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)"
    listed = kafka_tools("kafka-acls", *at, "--list", "--topic", f"{topic}-1", "--resource-pattern-type", "match")
    assert f"name={topic}, patternType=PREFIXED" in listed
    assert entry in listed
    kafka_tools("kafka-acls", *at, "--remove", "--force", "--topic", topic, "--resource-pattern-type", "prefixed")
    assert entry not in kafka_tools("kafka-acls", *at, "--list")


# ---- groups


def test_a_group_of_javas_consumers(kafka_tools: KafkaTools, at: list[str], topic: str) -> None:
    kafka_tools("kafka-topics", *at, "--create", "--topic", topic, "--partitions", "3")
    perf = ["--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1"]
    kafka_tools("kafka-producer-perf-test", *perf, *at)
    group = ["--topic", topic, "--group", topic]
    read = kafka_tools("kafka-consumer-perf-test", *at, *group, "--num-records", "3000", "--timeout", "60000")
    header, row = (line.split(", ") for line in read.splitlines())
    assert dict(zip(header, row, strict=True))["data.consumed.in.nMsg"] == "3000"
    kafka_tools("kafka-console-producer", *at, "--topic", topic, stdin="one\ntwo\n")
    console = [*group, "--max-messages", "2", "--timeout-ms", "60000"]
    assert sorted(kafka_tools("kafka-console-consumer", *at, *console).split()) == ["one", "two"]
