"""`klamm start` as a person meets it: the ready line, the mistakes, the goodbye."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from support.process import BrokerProcess


def klamm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "klamm", *arguments], capture_output=True, text=True, timeout=60)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_one_line_says_address_folder_and_time(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data")
    assert f"127.0.0.1:{broker.port}" in broker.ready_line
    assert str(tmp_path / "data") in broker.ready_line
    assert broker.ready_line.rstrip().endswith(" s")
    assert broker.stop() == 0
    assert broker.errors == []


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = klamm("start", "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
    assert_one_sentence(done, str(port), "in use")


def test_a_locked_folder_is_one_sentence(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    start_broker(tmp_path / "data")
    done = klamm("start", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert_one_sentence(done, str(tmp_path / "data"), "another broker")


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = klamm("start", "--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0")
    assert_one_sentence(done, str(tmp_path / "file" / "data"))


def test_a_newer_format_is_refused(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    start_broker(tmp_path / "data").stop()
    marker = tmp_path / "data" / "klamm.json"
    content = json.loads(marker.read_text())
    key = next(name for name in content if "format" in name)
    content[key] += 1
    marker.write_text(json.dumps(content))
    assert_one_sentence(klamm("start", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"), "newer")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--set", "log.segment.byte=1"], "log.segment.bytes"),
        (["--set", "log.segment.bytes=many"], "log.segment.bytes"),
        (["--set", "nonsense"], "name=value"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--config", "no-such-file.properties"], "no-such-file.properties"),
    ],
)
def test_a_wrong_argument_is_one_sentence(tmp_path: Path, arguments: list[str], word: str) -> None:
    assert_one_sentence(klamm("start", "--data", str(tmp_path / "data"), *arguments), word)


def test_a_properties_file_is_read(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("# Kafka's file\nnum.partitions=7\nsome.plugin.option=1\n")
    broker = start_broker(tmp_path / "data", arguments=["--config", str(tmp_path / "server.properties")])
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    producer.produce("seven", b"x")
    assert producer.flush(30) == 0
    assert len(producer.list_topics("seven", timeout=30).topics["seven"].partitions) == 7
    broker.stop()
    assert any("some.plugin.option" in line for line in broker.errors)


def test_kafkas_own_file_is_read_and_what_has_no_effect_is_one_line(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\nsocket.send.buffer.bytes=102400\noffsets.topic.replication.factor=1\n"
    )
    broker = start_broker(tmp_path / "data", arguments=["--config", str(tmp_path / "server.properties")])
    assert broker_id(AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap}).list_topics(timeout=30)) == 7
    assert broker.stop() == 0
    (line,) = broker.errors
    assert "without effect" in line and "process.roles" in line and "socket.send.buffer.bytes" in line


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_the_next_start_skips_recovery(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, how: signal.Signals
) -> None:
    broker = start_broker(tmp_path / "data")
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "acks": "all"})
    for i in range(1000):
        producer.produce("t", str(i).encode())
    assert producer.flush(30) == 0
    os.kill(broker.process.pid, how)
    assert broker.stop() == 0
    again = start_broker(tmp_path / "data")
    again.stop()
    assert not any("recover" in line for line in again.errors), again.errors


def test_each_listener_advertises_its_own_address(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as two:  # two free ports that this test knows
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        inside, outside = one.getsockname()[1], two.getsockname()[1]
    broker = start_broker(
        tmp_path / "data",
        options={
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            "advertised.listeners": f"OUTSIDE://localhost:{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        },
    )
    assert f"127.0.0.1:{inside}, 127.0.0.1:{outside}" in broker.ready_line

    def advertised(port: int) -> set[tuple[str, int]]:
        cluster = Producer({"log_level": 0, "bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30)
        return {(node.host, node.port) for node in cluster.brokers.values()}

    assert advertised(inside) == {("127.0.0.1", inside)}
    assert advertised(outside) == {("localhost", outside)}


def test_the_log_can_be_json_lines_in_a_file(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    (tmp_path / "server.properties").write_text("no.such.option=1\n")
    broker = start_broker(
        tmp_path / "data",
        arguments=["--log-json", "--log-file", str(log), "--config", str(tmp_path / "server.properties")],
    )
    assert broker.stop() == 0
    assert broker.errors == []
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("no.such.option" in entry["message"] for entry in entries), entries


def test_more_partitions_than_open_files_are_no_trouble(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    partitions = 300
    broker = start_broker(tmp_path / "data", options={"num.partitions": partitions}, max_files=200)
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "acks": "all"})
    failed: list[object] = []
    for _ in range(2):
        for partition in range(partitions):
            producer.produce(
                "wide", b"x", partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        assert producer.flush(60) == 0
    assert failed == []
    assert broker.stop() == 0
    assert broker.errors == []


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = klamm("start", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert_one_sentence(done, "notes.txt", "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_option_of_set_wins_over_data(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data", options={"log.dirs": tmp_path / "other"})
    assert str(tmp_path / "other") in broker.ready_line
    assert not (tmp_path / "data").exists()


def broker_id(cluster: ClusterMetadata) -> int:
    (node,) = cluster.brokers
    return node


def test_a_damaged_partition_does_not_stop_the_others(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", options={"num.partitions": 2})
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for partition in (0, 1) * 50:
        producer.produce("t", b"x" * 100, partition=partition)
        producer.flush(30)
    broker.stop()
    (segment,) = (tmp_path / "data/topics/t-0").glob("*.log")
    os.truncate(segment, 100)

    broker = start_broker(tmp_path / "data")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000, "log_level": 0})
    results: dict[int, object] = {}
    for partition in (0, 1):
        producer.produce("t", b"x", partition=partition, on_delivery=lambda e, m: results.update({m.partition(): e}))
    producer.flush(30)
    assert results[0] is not None and results[1] is None
    for topics in (producer.list_topics(timeout=30), producer.list_topics("t", timeout=30)):
        partitions = topics.topics["t"].partitions
        assert (partitions[0].leader, partitions[1].leader) == (-1, broker_id(topics))
        assert partitions[0].error.code() == KafkaError.LEADER_NOT_AVAILABLE and partitions[1].error is None
    assert broker.stop() == 0
    assert any("klamm log repair" in line and "t-0" in line for line in broker.errors), broker.errors
