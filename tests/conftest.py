"""What all tests share: a broker in a process of its own, and the tools that may or may not be on this machine."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.apache_kafka import ApacheKafka
from support.java import KafkaTools
from support.process import BrokerProcess
from support.scheduling import SPARK, ByModule, rank
from support.tools import unavailable

# The same examples every time, so that a run says something of the change at hand; new ones come with the long runs.
# No deadline either way: no test depends on speed.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if "KLAMM_SOAK_SEEDS" in os.environ else "fixed")

# Tests interrupt programs as Ctrl-C does. What a shell starts in the background ignores that, and so do its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.nodeid))
    for item in items:
        if item.nodeid.startswith(SPARK) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))  # virtual machines start slowly where others want the cores, too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Instead of the one that xdist calls loadfile, which sorts modules by the number of their tests."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.fixture(scope="session")
def tool() -> Callable[[str, str], str]:
    """`tool("kcat", "Debian's kcat")` is the program's path."""

    def find(program: str, where: str) -> str:
        path = shutil.which(program)
        if path is None:
            unavailable(f"{program} is not installed ({where})")
        return path

    return find


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended is written when the call returns: a machine that stood still for a moment is no slow disk."""
    monkeypatch.setattr("klamm.log.appending.SLOW_WRITE_S", math.inf)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers that are gone when the test is over."""
    started: list[BrokerProcess] = []

    def start(data: Path | None = None, **kwargs: object) -> BrokerProcess:
        broker = BrokerProcess(data or tmp_path / "data", **kwargs)  # type: ignore[arg-type]
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture(scope="session")
def apache_kafka(tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests that only need some Kafka: nobody stops it, everybody has topics of their own."""
    kafka = ApacheKafka(KafkaTools(tool), tmp_path_factory.mktemp("apache-kafka"))
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.fixture
def start_apache_kafka(tool: Callable[[str, str], str], tmp_path: Path) -> Iterator[Callable[..., ApacheKafka]]:
    """Start one that the test may kill and start again, with options and listeners of its own; see `ApacheKafka`."""
    started: list[ApacheKafka] = []

    def start(**kwargs: object) -> ApacheKafka:
        kafka = ApacheKafka(KafkaTools(tool), tmp_path / f"kafka-{len(started)}", **kwargs)  # type: ignore[arg-type]
        started.append(kafka)
        kafka.start()
        return kafka

    yield start
    for kafka in started:
        kafka.kill()
