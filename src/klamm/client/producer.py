"""Sending records.

    async with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
        where = await producer.send("greetings", b"hello", key=b"you")   # waits until it is written
        delivery = await producer.send_soon("greetings", b"hello")       # waits for room only
        await producer.send_many("greetings", [b"one", b"two"])          # bulk: nothing is made for each record
        await producer.flush()
        print(where.offset, (await delivery).offset)

A producer belongs to one event loop. Everything that takes part in keeping records single and in order is in `sender`
and `batches`; this is the face.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.client.cluster import Cluster
from klamm.client.config import ClientConfig
from klamm.client.errors import Closed

if TYPE_CHECKING:
    from klamm.client.delivery import Delivery, RecordMetadata
    from klamm.client.sender import Sender
    from klamm.core.env import Env
    from klamm.records.record import Headers


class Producer:
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    def __init__(self, *, config: Mapping[str, object] | None = None, env: Env | None = None, **options: Any) -> None:
        self.config = ClientConfig.from_options(config, options)
        self._own_env = env is None
        self._env = env
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(abort=kind is not None)

    async def start(self) -> None:
        """Connect. `NotReachable` if there is no broker to be found."""
        if self._env is None:
            from klamm.core.env.real import real_env

            self._env = real_env()
        self._cluster = await Cluster.connect(self.config, self._env)
        self._sender = self._cluster.sender()

    async def close(self, *, abort: bool = False) -> None:
        """Write what is there, then end; with `abort`, give it up."""
        if self._sender is not None:
            await self._sender.close(abort=abort)
        if self._cluster is not None:
            await self._cluster.close()
        if self._own_env and self._env is not None:
            self._env.executor.close()
        self._sender = self._cluster = None

    def _ready(self) -> Sender:
        if self._sender is None:
            raise Closed("This producer is not open.", "Use it in an `async with` block, or call `start` first.")
        return self._sender

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is written."""
        delivery = await self.send_soon(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery.result()

    async def send_soon(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send one record; waits only while buffer.memory is used up. Await what comes back to know the outcome."""
        return await self._ready().put(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )

    async def flush(self) -> None:
        """Wait until all that was sent so far is written or has failed."""
        await self._ready().flush()
