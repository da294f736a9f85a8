"""KafkaJS: speaks old versions only, none of them flexible."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from support.downloads import FETCH_LIMIT_S, fetched, run_client
from support.process import BrokerProcess
from support.stored import stored_codecs

SOURCE = Path(__file__).parent / "kafkajs"

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 100)


@pytest.fixture(scope="session")
def installed(tool: Callable[[str, str], str]) -> Path:
    version = json.loads((SOURCE / "package.json").read_text())["dependencies"]["kafkajs"]

    def fetch(folder: Path) -> None:
        npm = tool("npm", "Node's package manager, which fetches KafkaJS")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / name, folder)
        run_client("KafkaJS", npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)

    return fetched(f"kafkajs-{version}", fetch)


@pytest.fixture
def kafkajs(
    tool: Callable[[str, str], str], installed: Path, broker: BrokerProcess, topic: str
) -> Callable[[str], dict[str, Any]]:
    node = tool("node", "any Node.js from 18 on")

    def run(verb: str) -> dict[str, Any]:
        command = [node, str(SOURCE / "client.js"), str(installed), broker.bootstrap, topic, verb]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    return run


def test_an_idempotent_producer_sends_plain_and_compressed_batches(
    kafkajs: Callable[[str], dict[str, Any]], broker: BrokerProcess, topic: str
) -> None:
    assert kafkajs("produce") == {"offsets": ["0", "100"]}
    assert stored_codecs(broker.data, topic) == {"none", "gzip"}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(200)]
    consumer.close()
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == [
        (f"k{i}".encode(), f"{codec} {i}".encode(), [("h", str(i).encode())], 1_700_000_000_000 + i)
        for codec in ("none", "gzip")
        for i in range(100)
    ]


def test_a_topics_life_is_administered(kafkajs: Callable[[str], dict[str, Any]]) -> None:
    assert kafkajs("admin") == {
        "created": True,
        "again": False,
        "listed": True,
        "partitions": [[0, 1], [1, 1], [2, 1]],
        "cluster": {"brokers": 1, "controller": 1, "named": True},
        "configs": ["5000", "604800000"],
        "refused": "INVALID_CONFIG",
        "offsets": [["0", "0"], ["4", "10"], ["0", "0"]],
        "acls": [1, 1],
        "moving": [],
        "left": False,
    }


def test_a_group_commits_by_hand_and_is_administered(kafkajs: Callable[[str], dict[str, Any]]) -> None:
    assert kafkajs("commits") == {
        "described": ["Stable", "consumer", "RoundRobinAssigner", 1],
        "listed": True,
        "first": [*range(40)],
        "committed": [["10", "by hand"]] * 4,
        "second": [*range(40, 48)],
        "after": ["12"] * 4,
        "left": False,
    }


def test_two_members_share_and_one_takes_over(kafkajs: Callable[[str], dict[str, Any]]) -> None:
    assert kafkajs("rebalance") == {"shares": [0, 1, 2, 3], "read": [*range(120)]}


def test_transactions_with_offsets_and_a_producer_that_is_fenced(kafkajs: Callable[[str], dict[str, Any]]) -> None:
    assert kafkajs("transactions") == {
        "position": ["4", "-1", "-1", "-1"],
        "fenced": "INVALID_PRODUCER_EPOCH",
        "read": [0, 1, 20, 21, 40, 41, 99],
    }
