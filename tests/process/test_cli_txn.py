"""`klamm txn` against a real broker."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from klamm import blocking
from klamm.cli import main
from support.committed import LIMIT_S, read_all
from support.hanging import UNVERIFIED, write_late
from support.process import BrokerProcess

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(
        tmp_path_factory.mktemp("broker") / "data",
        options={"num.partitions": 2, **UNVERIFIED},
    )
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def surroundings(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def klamm(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; its output. `code` is the exit code that it must have; 2, or 1 without output: what it said."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(list(arguments)) == code, capsys.readouterr()
        shown = capsys.readouterr()
        return shown.out or shown.err

    return run


def begin(broker: BrokerProcess, name: str) -> Producer:
    """A producer with an open transaction in partition 0 of the topic of its name."""
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    producer.flush(LIMIT_S)
    return producer


def test_transactions_are_listed_by_state_pattern_and_duration(broker: BrokerProcess, klamm: Run) -> None:
    first, second = begin(broker, "list-1"), begin(broker, "list-2")
    second.commit_transaction(LIMIT_S)
    lines = klamm("txn", "list").splitlines()
    assert lines[0].split() == ["TRANSACTIONAL", "ID", "STATE", "PRODUCER", "COORDINATOR"]
    assert [line.split()[:2] for line in lines if line.startswith("list-")] == [
        ["list-1", "Ongoing"],
        ["list-2", "CompleteCommit"],
    ]
    found = json.loads(klamm("txn", "list", "--pattern", "list-.*", "--state", "CompleteCommit", "-o", "json"))
    assert [one["transactional_id"] for one in found] == ["list-2"]
    assert klamm("txn", "list", "--longer-than", "1h") == "There are no such transactions.\n"
    assert "there is no state Wrong" in klamm("txn", "list", "--state", "Wrong", code=1)
    first.abort_transaction(LIMIT_S)


def test_a_transaction_is_described_with_its_partitions(broker: BrokerProcess, klamm: Run) -> None:
    producer = begin(broker, "describe-1")
    shown = klamm("txn", "describe", "describe-1")
    assert "state:        Ongoing" in shown and "time limit:   1m" in shown and "open for:" in shown
    assert shown.splitlines()[-2:] == ["TOPIC       PARTITION", "describe-1          0"]
    document = json.loads(klamm("txn", "describe", "describe-1", "-o", "json"))
    assert document["partitions"] == [{"topic": "describe-1", "partition": 0}]
    assert document["duration_ms"] >= 0
    assert "there is no transactional id 'nobody'" in klamm("txn", "describe", "nobody", code=1)
    producer.abort_transaction(LIMIT_S)


def test_a_two_phase_transaction_has_no_time_limit(broker: BrokerProcess, klamm: Run) -> None:
    options = {"transactional.id": "two-phases", "transaction.two.phase.commit.enable": True}
    with blocking.Producer(bootstrap_servers=broker.bootstrap, config=options) as producer:
        producer.begin()
        producer.send("two-phases", b"x")
        producer.flush()
        assert "time limit:   none (two phases)" in klamm("txn", "describe", "two-phases")
        producer.abort()


def test_shells_complete_transactional_ids(broker: BrokerProcess, klamm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAMM_COMPLETION_MS", "60000")  # however busy this machine is
    begin(broker, "complete-1").commit_transaction(LIMIT_S)
    assert klamm("__complete", "zsh", "txn", "describe", "complete-") == "complete-1\tCompleteCommit\n"


def test_a_transaction_is_aborted_by_its_id_and_its_producer_fenced(broker: BrokerProcess, klamm: Run) -> None:
    producer = begin(broker, "abort-1")
    assert "add --yes" in klamm("txn", "abort", "abort-1", code=2)
    assert klamm("txn", "abort", "abort-1", "--yes") == "Aborted the transaction of abort-1.\n"
    assert read_all(broker.bootstrap, "abort-1") == {0: []}
    with pytest.raises(KafkaException):
        producer.commit_transaction(LIMIT_S)
    assert "has no open transaction" in klamm("txn", "abort", "abort-1", "--yes", code=1)


@pytest.mark.parametrize("committed", [True, False])
def test_consume_reads_to_the_end_over_markers_and_open_transactions(
    broker: BrokerProcess, klamm: Run, committed: bool
) -> None:
    topic = f"read-{committed}"
    producer = begin(broker, topic)
    producer.commit_transaction(LIMIT_S)
    for value in (b"aborted", b"open"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(LIMIT_S)
        if value == b"aborted":
            producer.abort_transaction(LIMIT_S)
    level = "read_committed" if committed else "read_uncommitted"
    consume = ("consume", topic, "--from", "beginning", "--exit-at-end", "-X", f"isolation.level={level}")
    assert klamm(*consume).split() == (["x"] if committed else ["x", "aborted", "open"])
    producer.abort_transaction(LIMIT_S)
    assert klamm(*consume).split() == (["x"] if committed else ["x", "aborted", "open"])  # and markers come last


def test_a_hanging_transaction_is_found_and_ended(broker: BrokerProcess, klamm: Run) -> None:
    """As a broker of old let it happen: a batch that came after the end of its transaction."""
    begin(broker, "hang-1").commit_transaction(LIMIT_S)
    write_late(broker.bootstrap, "hang-1")
    begin(broker, "hang-2")
    assert klamm("txn", "find-hanging", "hang-*") == "No transaction hangs.\n"  # it may well be on its way
    found = json.loads(klamm("txn", "find-hanging", "hang-*", "--silent-for", "1ms", "-o", "json", code=1))
    assert [(one["topic"], one["partition"], one["start_offset"]) for one in found] == [("hang-1", 0, 2)]
    shown = klamm("txn", "find-hanging", "hang-*", "--open").splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["hang-1", "hang-2"]
    assert shown[2].endswith("hang-2")
    where = ("--topic", "hang-1", "--partition", "0")
    assert "no such transaction" in klamm("txn", "abort", *where, "--producer", "999999", "--yes", code=1)
    assert "name the --producer" in klamm("txn", "abort", *where, code=2)
    assert "Aborted the transaction of producer" in klamm("txn", "abort", *where, "--start-offset", "2", "--yes")
    assert klamm("txn", "find-hanging", "hang-*", "--silent-for", "1ms") == "No transaction hangs.\n"
    other = ("--topic", "hang-2", "--partition", "0", "--start-offset", "0", "--yes")
    assert "hang-2 has it open" in klamm("txn", "abort", *other, code=1)
