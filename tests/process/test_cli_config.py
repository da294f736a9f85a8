"""`klamm config get` and `set`, and `klamm topic alter --set`, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm.cli import main
from support.process import BrokerProcess

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options={"num.partitions": 2})
    yield started
    started.kill()


@pytest.fixture
def klamm(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.setenv("KLAMM_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str, code: int = 0) -> str:
        assert main(list(arguments)) == code, capsys.readouterr()
        shown = capsys.readouterr()
        return shown.out if code == 0 else shown.err

    return run


def test_what_is_set_on_a_topic_is_shown_and_can_be_taken_back(klamm: Run) -> None:
    klamm("topic", "create", "orders")
    assert klamm("config", "get", "topic", "orders") == ""
    assert klamm("config", "set", "topic", "orders", "retention.ms=3d", "max.message.bytes=2M") == (
        "topic orders: retention.ms=259200000 (3d)\ntopic orders: max.message.bytes=2097152 (2 MiB)\n"
    )
    assert klamm("config", "get", "topic", "orders") == (
        "OPTION             VALUE            FROM\n"
        "max.message.bytes  2097152 (2 MiB)  topic\n"
        "retention.ms       259200000 (3d)   topic\n"
    )
    assert klamm("config", "get", "topic", "orders", "retention.ms", "-o", "value") == "259200000\n"
    assert "configs:     max.message.bytes=2097152 (2 MiB)" in klamm("topic", "describe", "orders")
    klamm("config", "set", "topic", "orders", "--unset", "retention.ms", "--unset", "max.message.bytes")
    assert klamm("config", "get", "topic", "orders") == ""
    assert "configs:     all defaults" in klamm("topic", "describe", "orders")


def test_all_options_come_with_where_their_value_is_from(klamm: Run) -> None:
    klamm("topic", "create", "sources", "-c", "segment.bytes=1M")
    found = {one["name"]: one for one in json.loads(klamm("config", "get", "topic", "sources", "--all", "-o", "json"))}
    assert found["segment.bytes"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["retention.ms"]["source"] == "DEFAULT_CONFIG" and found["retention.ms"]["type"] == "long"
    patterns = klamm("config", "get", "topic", "sources", "retention.*", "-o", "json")
    assert [one["name"] for one in json.loads(patterns)] == ["retention.bytes", "retention.ms"]


def test_lists_can_be_added_to_and_taken_from(klamm: Run) -> None:
    klamm("topic", "create", "lists")
    klamm("config", "set", "topic", "lists", "--append", "cleanup.policy=compact")
    assert klamm("config", "get", "topic", "lists", "cleanup.policy", "-o", "value") == "delete,compact\n"
    klamm("config", "set", "topic", "lists", "--subtract", "cleanup.policy=delete")
    assert klamm("config", "get", "topic", "lists", "cleanup.policy", "-o", "value") == "compact\n"


def test_brokers_and_their_common_defaults_have_options_too(klamm: Run) -> None:
    assert "num.partitions" in klamm("config", "get", "broker", "1")
    klamm("config", "set", "cluster", "log.retention.ms=1d")
    assert klamm("config", "get", "broker", "1", "log.retention.ms", "-o", "value") == "86400000\n"
    assert "all brokers, dynamic" in klamm("config", "get", "cluster")
    klamm("config", "set", "cluster", "--unset", "log.retention.ms")
    assert "deleted" in klamm("config", "get", "broker", "1", "log.retention.ms", "--docs")


def test_a_dry_run_changes_nothing(klamm: Run) -> None:
    klamm("topic", "create", "imagined")
    assert "checked only" in klamm("config", "set", "topic", "imagined", "retention.ms=1d", "--dry-run")
    assert "checked only" in klamm("topic", "alter", "imagined", "--set", "retention.ms=1d", "--dry-run")
    assert klamm("config", "get", "topic", "imagined") == ""
    assert "INVALID_CONFIG" in klamm("topic", "alter", "imagined", "-c", "flush.messages=never", "--dry-run", code=1)


def test_topics_are_altered_by_pattern(klamm: Run) -> None:
    klamm("topic", "create", "many-1", "many-2")
    assert klamm("topic", "alter", "many-*", "--set", "flush.ms=1000").count("flush.ms=1000 (1s)") == 2


@pytest.mark.parametrize(
    ("arguments", "word", "code"),
    [
        (["get", "topic"], "its name", 2),
        (["get", "broker"], "its id", 2),
        (["get", "broker", "one"], "klamm cluster info", 2),
        (["get", "broker", "9"], "The brokers are: 1", 1),
        (["get", "topic", "mistaks"], "mistakes", 1),
        (["get", "topic", "mistakes", "retension.ms"], "retention.ms", 1),
        (["set", "topic", "mistakes"], "OPTION=VALUE", 2),
        (["set", "topic", "mistakes", "retention.ms"], "NAME=VALUE", 2),
        (["set", "topic", "mistakes", "flush.ms=1", "--unset", "flush.ms"], "twice", 2),
        (["set", "topic", "mistakes", "retension.ms=1"], "retention.ms", 1),
        (["set", "broker", "1", "node.id=7"], "node.id", 1),
    ],
)
def test_a_mistake_says_what_to_do(klamm: Run, arguments: list[str], word: str, code: int) -> None:
    klamm("topic", "create", "mistakes", "--if-not-exists")
    said = klamm("config", *arguments, code=code)
    assert word in said and "Traceback" not in said
