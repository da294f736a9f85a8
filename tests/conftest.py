"""What all tests share: a broker in a process of its own, and the tools that may or may not be on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.process import BrokerProcess
from support.tools import unavailable

# The same examples every time, so that a run says something of the change at hand; new ones come with the long runs.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("default" if "KLAMM_SOAK_SEEDS" in os.environ else "fixed")


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
