"""Kafka clients for asyncio.

    from klamm.aio import Producer

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        print(await producer.send("greetings", b"hello"))

They work with Klamm and with Apache Kafka. Each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from klamm.client.admin.admin import Admin
    from klamm.client.consumer import Consumer
    from klamm.client.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOMES: Final = {
    "Admin": "klamm.client.admin.admin",
    "Consumer": "klamm.client.consumer",
    "Producer": "klamm.client.producer",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
