"""`klamm group` against a real broker, with real members."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import klamm.testing
from klamm.cli import main

Run = Callable[..., str]
PARTITIONS = 3
RECORDS = 10  # in each partition


@pytest.fixture(scope="module")
def broker() -> Iterator[klamm.testing.Broker]:
    with klamm.testing.broker(group_initial_rebalance_delay_ms=0) as started:
        yield started


@pytest.fixture(autouse=True)
def surroundings(
    broker: klamm.testing.Broker, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def klamm_group(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; its output. `code` is the exit code that it must have, and then it is what it said instead."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["group", *arguments]) == code, capsys.readouterr()
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: klamm.testing.Broker) -> str:
    """A topic of its own for each test, with records whose offsets stand for their times: `at(offset)`."""
    name = f"t-{request.node.name[:60]}".translate(str.maketrans("[]", "--"))
    broker.create_topic(name, partitions=PARTITIONS)
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for offset in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(name, b"%d" % offset, partition=partition, timestamp=at(offset))
    assert producer.flush(20) == 0
    return name


def at(offset: int) -> int:
    """When the record of this offset was written, in milliseconds."""
    return 1_700_000_000_000 + offset * 60_000


def commit(broker: klamm.testing.Broker, group: str, topic: str, *offsets: int) -> None:
    """Without being a member."""
    consumer = Consumer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index, offset, metadata="note") for index, offset in enumerate(offsets)]
    for place in consumer.commit(offsets=places, asynchronous=False):
        assert place.error is None
    consumer.close()


@contextmanager
def member(broker: klamm.testing.Broker, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A consumer that has its partitions."""
    consumer = Consumer(
        {
            "log_level": 0,
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "jane",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < PARTITIONS:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def offsets(klamm_group: Run, group: str) -> dict[int, int]:
    rows = json.loads(klamm_group("offsets", group, "-o", "json"))
    return {row["partition"]: row["current_offset"] for row in rows}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_listed_and_described(
    klamm_group: Run, broker: klamm.testing.Broker, topic: str, protocol: str
) -> None:
    group = f"members-{protocol}"
    with member(broker, group, topic, protocol) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, RECORDS)], asynchronous=False)
        (listed,) = json.loads(klamm_group("list", group, "-o", "json"))
        expected = {"group": group, "type": protocol, "protocol_type": "consumer", "state": "Stable", "coordinator": 1}
        assert listed == expected
        (described,) = json.loads(klamm_group("describe", group, "-o", "json"))
        assert (described["state"], described["lag"]) == ("Stable", 6)
        (who,) = described["members"]
        assert (who["client"], who["host"]) == ("jane", "/127.0.0.1")
        assert len(who["partitions"]) == PARTITIONS
        rows = described["partitions"]
        assert [(row["current_offset"], row["log_end_offset"], row["lag"]) for row in rows] == [
            (4, RECORDS, 6),
            (RECORDS, RECORDS, 0),
            (None, RECORDS, None),
        ]
        assert {row["member"] for row in rows} == {who["member"]}
        age_s = time.time() - at(4) / 1000
        assert age_s - 60 < rows[0]["lag_seconds"] < age_s + 60
        assert [row["lag_seconds"] for row in rows[1:]] == [0, None]
        shown = klamm_group("describe", group)
        assert "TOPIC" in shown and "LAG SECONDS" in shown and who["member"] in shown
        assert f"{topic}:0,1,2" in klamm_group("describe", group, "--members")


def test_the_age_of_what_was_not_read_is_found_in_batches_of_any_size(
    klamm_group: Run, broker: klamm.testing.Broker
) -> None:
    broker.create_topic("large", partitions=PARTITIONS)
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):  # more than one look asks for
        producer.produce("large", bytes(300_000), partition=partition, timestamp=at(0))
    assert producer.flush(20) == 0
    commit(broker, "slow", "large", 0, 0, 0)
    (described,) = json.loads(klamm_group("describe", "slow", "-o", "json"))
    age_s = time.time() - at(0) / 1000
    assert all(abs(row["lag_seconds"] - age_s) < 60 for row in described["partitions"])


def test_lists_by_state_type_and_pattern(klamm_group: Run, broker: klamm.testing.Broker, topic: str) -> None:
    commit(broker, "web-1", topic, 1)
    commit(broker, "web-2", topic, 1)
    assert klamm_group("list", "web-*", "-o", "name") == "web-1\nweb-2\n"
    assert klamm_group("list", "web-*", "--state", "Empty", "--type", "classic", "-o", "name") == "web-1\nweb-2\n"
    assert klamm_group("list", "web-*", "--state", "stable", "-o", "name") == ""
    assert "no group matches" in klamm_group("list", "nothing-*", code=1)
    said = klamm_group("describe", "wbe-1", code=1)
    assert "there is no group 'wbe-1'" in said and "'web-1'" in said


def test_a_reset_is_shown_first_and_done_when_told(klamm_group: Run, broker: klamm.testing.Broker, topic: str) -> None:
    commit(broker, "resets", topic, 4, 5)
    shown = klamm_group("reset-offsets", "resets", "--to", "earliest")
    assert [line.split()[1:] for line in shown.splitlines()[1:]] == [["0", "4", "0", "-4"], ["1", "5", "0", "-5"]]
    assert offsets(klamm_group, "resets") == {0: 4, 1: 5}
    klamm_group("reset-offsets", "resets", "--to", "earliest", "--execute")
    assert offsets(klamm_group, "resets") == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (("--to", "latest"), {0: 10, 1: 10}),
        (("--to", "7"), {0: 7, 1: 7}),
        (("--to", "-3"), {0: 7, 1: 7}),
        (("--to", f"@{at(6)}"), {0: 6, 1: 6}),
        (("--to", f"@{at(6) + 1}"), {0: 7, 1: 7}),
        (("--to", "1h"), {0: 10, 1: 10}),  # nothing is that new
        (("--shift", "-2"), {0: 2, 1: 3}),
        (("--shift", "100"), {0: 10, 1: 10}),
        (("--to", "earliest", "--topic", "TOPIC:1"), {0: 4, 1: 0}),
        (("--to", "3", "--topic", "TOPIC"), {0: 3, 1: 3, 2: 3}),
    ],
)
def test_where_a_group_can_be_sent(
    klamm_group: Run, broker: klamm.testing.Broker, topic: str, way: tuple[str, ...], expected: dict[int, int]
) -> None:
    group = f"g-{topic}"
    commit(broker, group, topic, 4, 5)
    klamm_group("reset-offsets", group, *(word.replace("TOPIC", topic) for word in way), "--execute")
    assert offsets(klamm_group, group) == expected


def test_offsets_go_to_a_file_and_come_back(
    klamm_group: Run, broker: klamm.testing.Broker, topic: str, tmp_path: Path
) -> None:
    commit(broker, "saved", topic, 4, 5, 6)
    file = tmp_path / "saved.csv"
    file.write_text(klamm_group("offsets", "saved", "-o", "csv"))
    assert file.read_text() == f"{topic},0,4\n{topic},1,5\n{topic},2,6\n"
    klamm_group("reset-offsets", "saved", "--to", "latest", "--execute")
    planned = json.loads(klamm_group("reset-offsets", "saved", "--file", str(file), "--execute", "-o", "json"))
    assert planned["executed"] and [p["current_offset"] for p in planned["partitions"]] == [10, 10, 10]
    assert offsets(klamm_group, "saved") == {0: 4, 1: 5, 2: 6}
    file.write_text("elsewhere,0,1\n")
    assert "elsewhere, partition 0, which does not exist" in klamm_group(
        "reset-offsets", "saved", "--file", str(file), code=1
    )


def test_a_group_that_is_not_there_can_be_given_a_beginning(klamm_group: Run, topic: str) -> None:
    assert "there is no group 'unborn'" in klamm_group("reset-offsets", "unborn", "--to", "latest", code=1)
    klamm_group("reset-offsets", "unborn", "--to", "latest", "--topic", f"{topic}:0,2", "--execute")
    assert offsets(klamm_group, "unborn") == {0: 10, 2: 10}


def test_members_keep_their_offsets_and_their_group(klamm_group: Run, broker: klamm.testing.Broker, topic: str) -> None:
    with member(broker, "active", topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        said = klamm_group("reset-offsets", "active", "--to", "earliest", "--execute", code=1)
        assert "1 active member (jane)" in said and "Stop them first" in said
        assert "NON_EMPTY_GROUP" in klamm_group("delete", "active", "--yes", code=1)
        said = klamm_group("delete", "active", "--topic", topic, "--yes", code=1)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in said
        assert offsets(klamm_group, "active") == {0: 4}
    assert klamm_group("delete", "active", "--topic", topic, "--yes") == "Deleted 1 offset of active.\n"
    assert offsets(klamm_group, "active") == {}
    assert klamm_group("delete", "active", "--yes") == "Deleted active.\n"
    assert "active" not in klamm_group("list", "-o", "name").split()


def test_deleting_asks_first(klamm_group: Run, broker: klamm.testing.Broker, topic: str) -> None:
    commit(broker, "precious", topic, 1)
    assert "this would delete 1 group with all offsets (precious); add --yes" in klamm_group(
        "delete", "precious", code=2
    )
    assert offsets(klamm_group, "precious") == {0: 1}


def test_shells_complete_names_of_groups(
    broker: klamm.testing.Broker, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAMM_COMPLETION_MS", "60000")  # however busy this machine is
    commit(broker, "completed", topic, 1)
    assert main(["__complete", "zsh", "group", "describe", "comp"]) == 0
    assert capsys.readouterr().out == "completed\tEmpty\n"
