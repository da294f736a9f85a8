"""`klamm txn` on Apache Kafka."""

from __future__ import annotations

import io
import json

import pytest
from confluent_kafka import KafkaException, Producer

from klamm.cli import main
from support.apache_kafka import ApacheKafka
from support.committed import LIMIT_S, read_all
from support.downloads import FETCH_LIMIT_S


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_a_transaction_is_found_described_and_aborted(
    apache_kafka: ApacheKafka, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", apache_kafka.bootstrap)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def klamm(*arguments: str) -> str:
        assert main(list(arguments)) == 0, capsys.readouterr()
        return capsys.readouterr().out

    producer = Producer({"log_level": 0, "bootstrap.servers": apache_kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(LIMIT_S)
    listed = json.loads(klamm("txn", "list", "--state", "Ongoing", "--pattern", f"{topic}.*", "-o", "json"))
    assert [one["transactional_id"] for one in listed] == [topic]
    described = json.loads(klamm("txn", "describe", topic, "-o", "json"))
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    (found,) = json.loads(klamm("txn", "find-hanging", topic, "--open", "-o", "json"))
    assert (found["start_offset"], found["transactional_id"]) == (0, topic)
    assert klamm("txn", "abort", topic, "--yes") == f"Aborted the transaction of {topic}.\n"
    assert read_all(apache_kafka.bootstrap, topic) == {0: []}
    with pytest.raises(KafkaException):
        producer.commit_transaction(LIMIT_S)
