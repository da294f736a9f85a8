"""Klamm: a Kafka-compatible event-streaming platform.

    from klamm import Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        print(producer.send("greetings", b"hello"))

`klamm.aio` has the same clients for asyncio, `klamm.errors` what they raise, `klamm.testing` a broker for tests. Each
is imported when it is first asked for: a broker needs none of it, and starts in a fraction of a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from klamm.blocking.admin import Admin
    from klamm.blocking.consumer import Consumer
    from klamm.blocking.outgoing import Delivery
    from klamm.blocking.producer import Producer
    from klamm.client.delivery import RecordMetadata
    from klamm.client.membership import Offset
    from klamm.client.sasl.tokens import OAuthToken
    from klamm.core.ids import TopicPartition
    from klamm.records.consuming import ConsumerRecord

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "OAuthToken",
    "Offset",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_HOMES: Final = {
    "Admin": "klamm.blocking.admin",
    "Consumer": "klamm.blocking.consumer",
    "ConsumerRecord": "klamm.records.consuming",
    "Delivery": "klamm.blocking.outgoing",
    "OAuthToken": "klamm.client.sasl.tokens",
    "Offset": "klamm.client.membership",
    "Producer": "klamm.blocking.producer",
    "RecordMetadata": "klamm.client.delivery",
    "TopicPartition": "klamm.core.ids",
}


def __getattr__(name: str) -> Any:
    if name in ("admin", "aio", "errors"):
        return import_module(f"klamm.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
