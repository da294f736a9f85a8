"""What pytest gets from an installed Klamm: fixtures with a broker. Registered by the package's entry point.

    def test_orders(klamm_broker):
        shop = Shop(kafka=klamm_broker.bootstrap)

Every run of pytest in this environment imports this module, whether it uses a fixture or not: it must import nothing
beyond pytest, and do nothing at all for tests without a broker. `-p no:klamm` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from klamm.testing import AsyncBroker, Broker, Nursery

MARKER = "klamm"

_brokers = pytest.StashKey["list[Broker]"]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(**options): options for the klamm_broker of this test")


@pytest.fixture(scope="session")
def klamm_options() -> dict[str, Any]:
    """Options for all brokers of the fixtures. Define a fixture of this name in your conftest.py to change them."""
    return {}


@pytest.fixture(scope="session")
def klamm_nursery() -> Iterator[Nursery]:
    """What makes a fresh broker for each test cheap."""
    from klamm.testing import Nursery

    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def klamm_brokers(
    request: pytest.FixtureRequest, klamm_nursery: Nursery, klamm_options: dict[str, Any]
) -> Iterator[Callable[..., Broker]]:
    """Start any number of brokers: `klamm_brokers(num_partitions=3)`. They end with the test."""
    import klamm.testing

    started: list[Broker] = []
    request.node.stash[_brokers] = started

    def start(**options: Any) -> Broker:
        broker = klamm.testing.broker(nursery=klamm_nursery, **{**klamm_options, **options})
        broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in reversed(started):
        broker.close()


@pytest.fixture
def klamm_broker(request: pytest.FixtureRequest, klamm_brokers: Callable[..., Broker]) -> Broker:
    """A fresh broker for this test alone. `@pytest.mark.klamm(num_partitions=3)` gives it options."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):  # the nearest one wins
        options.update(marker.kwargs)
    return klamm_brokers(**options)


@pytest.fixture
def klamm_async_broker(klamm_broker: Broker) -> AsyncBroker:
    """`klamm_broker` with coroutines for its methods."""
    from klamm.testing import AsyncBroker

    return AsyncBroker(klamm_broker)


@pytest.fixture(scope="session")
def klamm_session_broker(klamm_nursery: Nursery, klamm_options: dict[str, Any]) -> Iterator[Broker]:
    """One broker for all tests of the session (of each worker, with xdist). Tests share its topics, so give yours
    names of their own; and its faults, so take yours back."""
    import klamm.testing

    with klamm.testing.broker(nursery=klamm_nursery, **klamm_options) as broker:
        yield broker


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """A failed test shows what its brokers have logged."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for broker in item.stash.get(_brokers, []):
            if log := broker.log:
                report.sections.append((f"klamm broker {broker.port} log", log))
