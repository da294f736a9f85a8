"""An embedded broker for tests: no Docker, no JVM, nothing left behind.

    import klamm.testing

    with klamm.testing.broker(num_partitions=3) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The broker is the real one, in a child process that ends with this one. It can be paused, made unreachable, slow or
faulty on demand. pytest gets fixtures from the installed package: `klamm_broker` and others. docs/testing.md has
recipes. (`klamm.testing.sim` is for the project's own tests: a whole simulated world around the broker.)

pytest imports this module in every run, so it imports nothing before somebody asks for a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from klamm.core.errors import ErrorCode
    from klamm.testing.embedded.aio import AsyncBroker
    from klamm.testing.embedded.broker import Broker, BrokerStartError
    from klamm.testing.embedded.channel import BrokerGone
    from klamm.testing.embedded.nursery import Nursery
    from klamm.testing.embedded.values import OptionValue, StoredRecord

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerGone",
    "BrokerStartError",
    "ErrorCode",
    "Nursery",
    "OptionValue",
    "StoredRecord",
    "async_broker",
    "broker",
]

_HOMES = {
    "AsyncBroker": "klamm.testing.embedded.aio",
    "BrokerGone": "klamm.testing.embedded.channel",
    "ErrorCode": "klamm.core.errors",
    "Nursery": "klamm.testing.embedded.nursery",
    "OptionValue": "klamm.testing.embedded.values",
    "StoredRecord": "klamm.testing.embedded.values",
}


def broker(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    data: str | os.PathLike[str] | None = None,
    log_level: str = "warning",
    start_timeout: float = 30.0,
    nursery: Nursery | None = None,
    **options: OptionValue,
) -> Broker:
    """A broker for a `with` block.

    Options are the broker's own, by Kafka's names with underscores for dots: `num_partitions=3`. Port 0 is a free
    one. The data is in a temporary folder that is removed at the end, unless `data` names a folder of yours. With a
    `nursery`, the second and every later broker starts ten times as fast.
    """
    from klamm.testing.embedded.broker import Broker

    return Broker(
        host=host,
        port=port,
        data=data,
        log_level=log_level,
        start_timeout=start_timeout,
        nursery=nursery,
        options=options,
    )


def async_broker(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    data: str | os.PathLike[str] | None = None,
    log_level: str = "warning",
    start_timeout: float = 30.0,
    nursery: Nursery | None = None,
    **options: OptionValue,
) -> AsyncBroker:
    """The same for an `async with` block: nothing it does holds up the loop."""
    from klamm.testing.embedded.aio import AsyncBroker
    from klamm.testing.embedded.broker import Broker

    return AsyncBroker(
        Broker(
            host=host,
            port=port,
            data=data,
            log_level=log_level,
            start_timeout=start_timeout,
            nursery=nursery,
            options=options,
        )
    )


if not TYPE_CHECKING:  # a checker would take it for a promise that every name is there

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'klamm.testing' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_HOMES.get(name, "klamm.testing.embedded.broker")), name)
