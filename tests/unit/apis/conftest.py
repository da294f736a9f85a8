"""A whole broker below the server: real files, real metadata, requests and answers through the wire format."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from klamm import wire
from klamm.apis import registry, txn_markers
from klamm.apis.api import Answer, Api, Broker, Context, Operation, Peer, Pending, ResourceType
from klamm.apis.fetch_targets import FetchTargets
from klamm.apis.metadata_cache import MetadataCache
from klamm.apis.produce_targets import ProduceTargets
from klamm.apis.versions_cache import VersionsCache
from klamm.controller import BrokerRegistration, Controller, NewTopic
from klamm.coordinator.services import group_coordinator, transaction_coordinator
from klamm.core.env import Env, FileRange
from klamm.core.env.real import real_env
from klamm.core.options import Options
from klamm.log.folder import DataFolder
from klamm.log.manager import LogManager
from klamm.metadata import features
from klamm.metadata.image import BrokerEndpoint
from klamm.metadata.live_options import LiveOptions
from klamm.metadata.local import LocalStore
from klamm.metadata.publisher import Publisher
from klamm.metadata.topic_config import log_config
from klamm.records.record import Record, decode_records, encode_batch
from klamm.replica.manager import ReplicaManager
from klamm.replica.partition import Partition
from klamm.replica.producer_ids import ProducerIds
from klamm.replica.purgatory import Purgatory
from klamm.replica.sessions import FetchSessions
from klamm.wire.messages import response_type

NODE = 1
M = TypeVar("M")


class Harness:
    """`call` is what a client does; the rest are short cuts to the state behind it."""

    def __init__(self, env: Env, path: Path, options: Options, shortcuts: bool = True) -> None:
        self.shortcuts = shortcuts
        self.env = env
        self.path = path
        self.options = options
        self.apis = registry.load(self.options)
        self.peer = Peer(1, "PLAINTEXT", "127.0.0.1")

    async def start(self) -> None:
        env, options = self.env, self.options
        self.folder = DataFolder.open(env, str(self.path), node_id=NODE)
        self.store = LocalStore(env, f"{self.path}/metadata")
        self.publisher = Publisher(await self.store.load())
        self.store.follow(self.publisher.replay, self.publisher.reset)
        live = LiveOptions(NODE, options)
        self.publisher.subscribe(live.apply)
        self.controller = Controller(env, self.store, self.publisher, live.current)
        await self.controller.start(NODE)
        endpoints = [BrokerEndpoint("PLAINTEXT", "localhost", 9092), BrokerEndpoint("OTHER", "outside", 9093)]
        await self.controller.register_broker(
            BrokerRegistration(NODE, env.uuid(), endpoints, rack="r1", features=features.SUPPORTED)
        )
        self.logs = await LogManager.open(
            env,
            self.folder,
            config_for=lambda topic: log_config(self.publisher.image, topic, live.current),
            topic_id_for=self._topic_id,
        )
        replicas = ReplicaManager(NODE, self.logs, options)
        self.publisher.subscribe(replicas.apply)
        producer_ids = ProducerIds(lambda: self.controller.allocate_producer_ids(NODE))
        coordinated = (env, lambda: live.current, replicas, self.controller, self.publisher)
        self.broker = Broker(
            env=env,
            node_id=NODE,
            cluster_id=self.folder.cluster_id,
            options=options,
            metadata=self.publisher,
            controller=self.controller,
            replicas=replicas,
            purgatory=Purgatory(asyncio.get_running_loop()),
            sessions=FetchSessions(lambda: env.rng.randrange(1, 2**31), slots=10),
            producer_ids=producer_ids,
            apis=self.apis,
            metadata_cache=MetadataCache(),
            versions_cache=VersionsCache(),
            produce_targets=ProduceTargets(replicas),
            groups=group_coordinator(*coordinated),
            transactions=transaction_coordinator(*coordinated, producer_ids),
            fetch_targets=FetchTargets(replicas),
        )

        def changed(options: Options) -> None:
            self.controller.options = self.broker.options = options
            replicas.reconfigure(options)

        live.follow(changed)
        txn_markers.connect(self.broker)
        self.broker.groups.start()
        self.broker.transactions.start()

    def _topic_id(self, topic: str, index: int) -> bytes | None:
        state = self.publisher.image.topics.get(topic)
        return state.id if state is not None and index < len(state.partitions) else None

    async def stop(self) -> None:
        self.broker.groups.close()
        self.broker.transactions.close()
        await self.controller.close()
        await self.store.close()
        await self.logs.close()
        self.folder.close()
        self.env.executor.close()

    def context(self, version: int, listener: str = "PLAINTEXT") -> Context:
        peer = self.peer if listener == self.peer.listener else Peer(2, listener, "127.0.0.1")
        return Context(self.broker, peer, version, "tester")

    def api(self, request: wire.Struct) -> Api:
        api = self.apis.get(request.__api_key__)
        assert api is not None
        return api

    def begin(self, request: wire.Struct, version: int, listener: str = "PLAINTEXT") -> Answer:
        """What the handler returns for a request as it comes off the wire (in a writable frame)."""
        api = self.api(request)
        frame = memoryview(bytearray(wire.encode(request, version)))
        context = self.context(version, listener)
        if self.shortcuts and api.shortcut is not None and (answer := api.shortcut(context, frame, 0)) is not None:
            return answer
        return api.handle(context, wire.decode(type(request), frame, version))

    async def call(self, request: wire.Struct, version: int, listener: str = "PLAINTEXT") -> Any:
        """The response as a client decodes it; None if there is none."""
        return self.decoded(request, version, await finished(self.begin(request, version, listener)))

    def decoded(self, request: wire.Struct, version: int, response: Any) -> Any:
        if response is None:
            return None
        if isinstance(response, bytes):
            body = response
        else:
            body = joined(response if isinstance(response, list) else wire.encode_parts(response, version))
        return wire.decode(response_type(request.__api_key__), body, version)

    async def create(self, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
        new = NewTopic(name, partitions, configs=[(k.replace("_", "."), v) for k, v in configs.items()])
        (created,) = await self.controller.create_topics([new])
        assert not created.error, created
        return created.topic_id

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        partition = self.broker.replicas.find(topic, index)
        assert partition is not None
        return partition

    def append(self, *values: bytes, key: bytes | None = None, topic: str = "t", index: int = 0) -> None:
        """One batch, appended below the API."""
        partition = self.partition(topic, index)
        result = partition.append(bytearray(batch(*values, key=key)), -1)
        assert not hasattr(result, "code"), result
        partition.wake()


async def finished(answer: Answer) -> Any:
    if isinstance(answer, Pending):
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.then(future.set_result)
        return await asyncio.wait_for(future, 20)
    return await answer if inspect.isawaitable(answer) else answer


def joined(parts: list[Any]) -> bytes:
    return b"".join(p.file.pread(p.size, p.offset) if isinstance(p, FileRange) else bytes(p) for p in parts)


def batch(*values: bytes, key: bytes | None = None, timestamp: int | None = None, **options: Any) -> bytes:
    stamp = real_env().clock.time_ms() if timestamp is None else timestamp
    return encode_batch([Record(i, stamp, key, value) for i, value in enumerate(values)], **options)


def values_of(records: Any) -> list[bytes | None]:
    """The values in the whole batches of a fetched partition."""
    from klamm.records.batch import iter_batches

    data = bytes(records)
    return [record.value for pos, _ in iter_batches(data) for record in decode_records(data, pos)]


class Deny:
    """An authorizer that forbids some operations."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = set(denied)

    def allows(self, ctx: Context, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) not in self.denied


class Tools:
    """What tests of handlers need beside the broker (test modules cannot import from a conftest)."""

    batch = staticmethod(batch)
    values_of = staticmethod(values_of)
    finished = staticmethod(finished)
    deny = Deny


@pytest.fixture(autouse=True)
def on_a_quick_disk(quick_disk: None) -> None:
    """`Harness.append` waits for nothing."""


@pytest.fixture
def tools() -> type[Tools]:
    return Tools


@pytest.fixture(params=[True, False], ids=["", "decoded"])
def shortcuts(request: pytest.FixtureRequest) -> bool:
    """Every test of a handler runs with and without the API's shortcut: nobody may see a difference."""
    return bool(request.param)


@pytest.fixture
async def start(tmp_path: Path, shortcuts: bool) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Harness]]]:
    """`await start(option="value", ...)` is a broker with these options (underscores for dots)."""
    running: list[Harness] = []

    async def begin(**given: str) -> Harness:
        options = Options.from_mapping({name.replace("_", "."): value for name, value in given.items()})
        harness = Harness(real_env(seed=1), tmp_path / f"data{len(running)}", options, shortcuts)
        await harness.start()
        running.append(harness)
        return harness

    yield begin
    for harness in running:
        await harness.stop()


@pytest.fixture
async def node(start: Callable[..., Coroutine[Any, Any, Harness]]) -> Harness:
    return await start()
