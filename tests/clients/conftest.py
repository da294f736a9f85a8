"""One broker for all tests of third-party clients, and topic names that no other test has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from support.java import KafkaTools
from support.process import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options: dict[str, object] = {
        "num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
    }
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options=options)
    yield process
    assert process.stop() == 0
    assert not [line for line in process.errors if "Traceback" in line], "".join(process.errors)


@pytest.fixture
def topic(request: pytest.FixtureRequest, _topic_numbers: Callable[[], int]) -> str:
    return f"t{_topic_numbers()}-{request.node.originalname}"[:200]


@pytest.fixture(scope="session")
def _topic_numbers() -> Callable[[], int]:
    numbers = itertools.count()
    return lambda: next(numbers)


@pytest.fixture(scope="session")
def kafka_tools(tool: Callable[[str, str], str]) -> KafkaTools:
    return KafkaTools(tool)
