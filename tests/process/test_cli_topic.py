"""`klamm topic` and `klamm cluster` against a real broker."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from klamm.cli import main
from support.process import BrokerProcess

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options={"num.partitions": 2})
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
    """Run the command; its output. `code` is the exit code that it must have, and then it is what it said instead."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(list(arguments)) == code, capsys.readouterr()
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    return run


def test_a_topic_is_made_shown_grown_and_deleted(klamm: Run) -> None:
    assert klamm("topic", "create", "life", "-p", "3", "-c", "retention.ms=7d") == (
        "Created life: 3 partitions, replication factor 1.\n"
    )
    assert "life" in klamm("topic", "list", "-o", "name").split()
    shown = klamm("topic", "describe", "life")
    assert "partitions:  3, replication factor 1" in shown
    assert "PARTITION  LEADER  REPLICAS  IN SYNC  START  END" in shown
    assert klamm("topic", "alter", "life", "--partitions", "5") == "life has 5 partitions.\n"
    (described,) = json.loads(klamm("topic", "describe", "life", "-o", "json"))
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
    assert klamm("topic", "delete", "life", "--yes") == "Deleted life.\n"
    assert "there is no topic 'life'" in klamm("topic", "describe", "life", code=1)


def test_numbers_that_are_left_out_are_the_clusters(klamm: Run) -> None:
    (made,) = json.loads(klamm("topic", "create", "defaults", "-o", "json"))
    assert (made["partitions"], made["replication_factor"], made["created"]) == (2, 1, True)
    assert len(made["id"]) == 22


def test_an_assignment_says_which_brokers(klamm: Run) -> None:
    assert "2 partitions" in klamm("topic", "create", "assigned", "--assign", "1", "--assign", "1")
    assert "INVALID_REPLICA_ASSIGNMENT" in klamm("topic", "create", "elsewhere", "--assign", "7", code=1)


def test_a_dry_run_creates_nothing(klamm: Run) -> None:
    assert klamm("topic", "create", "imagined", "-p", "4", "--dry-run").startswith(
        "Would create imagined: 4 partitions"
    )
    assert "imagined" not in klamm("topic", "list")


def test_one_topic_that_is_refused_does_not_hide_the_others(klamm: Run, capsys: pytest.CaptureFixture[str]) -> None:
    klamm("topic", "create", "there")
    assert main(["topic", "create", "there", "not/a/name", "new"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("Created new: ")
    assert "TOPIC_ALREADY_EXISTS" in shown.err and "--if-not-exists" in shown.err
    assert "INVALID_TOPIC_EXCEPTION" in shown.err
    assert klamm("topic", "create", "there", "--if-not-exists") == "there is there already.\n"


def test_too_many_replicas_are_refused_with_the_number_of_brokers(klamm: Run) -> None:
    assert "the cluster has 1 broker" in klamm("topic", "create", "wide", "-r", "3", code=1)


def test_a_mistyped_name_is_told_with_the_nearest(klamm: Run) -> None:
    klamm("topic", "create", "payments")
    for verb in (["describe"], ["list"], ["delete", "--yes"], ["alter", "-p", "9"]):
        said = klamm("topic", verb[0], "paymnets", *verb[1:], code=1)
        assert "there is no topic 'paymnets'" in said and "'payments'" in said


def test_patterns_choose_topics(klamm: Run) -> None:
    klamm("topic", "create", "web-1", "web-2", "app-1")
    assert klamm("topic", "list", "web-*", "-o", "name") == "web-1\nweb-2\n"
    assert "no topic matches 'nothing-*'" in klamm("topic", "list", "nothing-*", code=1)
    assert klamm("topic", "delete", "web-?", "nothing-*", "--yes", "--if-exists") == "Deleted web-1.\nDeleted web-2.\n"
    assert "app-1" in klamm("topic", "list")


def test_deleting_asks_first(klamm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    klamm("topic", "create", "precious")
    assert "--yes" in klamm("topic", "delete", "precious", code=2)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert "nothing was deleted" in klamm("topic", "delete", "precious", code=1)
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert "Deleted precious." in klamm("topic", "delete", "precious")


def test_altering_nothing_is_a_mistake_and_fewer_partitions_are_refused(klamm: Run) -> None:
    klamm("topic", "create", "small", "-p", "3")
    assert "--partitions" in klamm("topic", "alter", "small", code=2)
    assert "INVALID_PARTITIONS" in klamm("topic", "alter", "small", "--partitions", "2", code=1)


def test_records_and_sizes_are_shown(klamm: Run, broker: BrokerProcess) -> None:
    klamm("topic", "create", "filled", "-p", "1")
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for _ in range(100):
        producer.produce("filled", b"x" * 100, partition=0)
    assert producer.flush(30) == 0
    (row,) = json.loads(klamm("topic", "list", "filled", "--long", "-o", "json"))
    assert row["records"] == 100 and row["size_bytes"] > 10_000
    (described,) = json.loads(klamm("topic", "describe", "filled", "-o", "json"))
    (partition,) = described["partitions"]
    assert (partition["start_offset"], partition["end_offset"], partition["leader"]) == (0, 100, 1)


def test_a_healthy_cluster_has_no_problems(klamm: Run) -> None:
    assert klamm("topic", "describe", "--problems") == ""
    shown = klamm("cluster", "info", "--check")
    assert "problems:  none" in shown


def test_the_cluster_shows_its_brokers_and_what_they_can_do(klamm: Run, broker: BrokerProcess) -> None:
    found = json.loads(klamm("cluster", "info", "-o", "json"))
    (one,) = found["brokers"]
    assert f"{one['host']}:{one['port']}" == broker.bootstrap
    assert one["leads"] == one["replicas"] == found["partitions"]
    assert found["controller"] == one["id"] == 1
    shown = klamm("cluster", "info", "--long")
    assert found["cluster_id"] in shown and broker.bootstrap in shown and str(broker.data) in shown
    apis = {api["name"]: api for api in json.loads(klamm("cluster", "apis", "-o", "json"))}
    assert apis["Fetch"]["lowest"] == 4
    assert "there is no broker 9" in klamm("cluster", "apis", "--broker", "9", code=1)


def test_a_cluster_that_is_not_there_is_told_with_the_next_step(klamm: Run) -> None:
    said = klamm("topic", "list", "--bootstrap", "127.0.0.1:1", code=1)
    assert "127.0.0.1:1" in said and "klamm start" in said and "--bootstrap" in said


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--bootstrap", "nonsense:port"], "bootstrap"),
        (["-X", "security.protocol=SASL_SSL"], "sasl.mechanism"),
        (["--command-config", "no-such-file"], "no-such-file"),
        (["--profile", "unheard-of"], "profiles.toml"),
    ],
)
def test_a_mistake_in_naming_the_cluster_is_one_sentence(klamm: Run, arguments: list[str], word: str) -> None:
    said = klamm("topic", "list", *arguments, code=2)
    assert word in said and len(said.splitlines()) == 1


def test_an_option_that_the_client_does_not_know_is_a_warning(klamm: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-X", "request.timeout.mss=1"]) == 0
    assert "request.timeout.ms?" in capsys.readouterr().err
