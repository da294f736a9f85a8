"""What the actors of a scenario share: the world, the model, and the gate that is shut while the broker is down."""

from __future__ import annotations

import asyncio
from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.model import Entry, Model, PartitionModel, Tag, TopicModel
from klamm.testing.sim.world import World

BROKER = "broker"
PORT = 9092
_HEADER_BYTES = 200  # of a batch, with what a codec may add to bytes that it cannot compress
_RECORD_BYTES = 30  # of a record, besides its key and value

TRY_AGAIN = frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
"""Errors that a client of a broker with a bad disk may get, and that say nothing about what was written."""


class Lab:
    def __init__(self, world: World) -> None:
        self.world = world
        self.model = Model()
        self.gate = asyncio.Event()
        self._over = False

    def is_over(self) -> bool:
        """Whether the actors should come to an end."""
        return self._over

    def end(self) -> None:
        self._over = True

    def random(self, purpose: str) -> Random:
        return self.world.random(f"lab/{purpose}")

    def note(self, actor: str, kind: str, detail: str = "") -> None:
        self.world.trace.note(actor, kind, detail)

    def time_ms(self) -> int:
        return self.world.machine(BROKER).clock.time_ms()

    async def connect(self, name: str) -> Client:
        return await Client.connect(self.world.network.view(name), name, BROKER, PORT)


class Link:
    """An actor's connection, made again when it is lost."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab = lab
        self._name = name
        self._client: Client | None = None

    async def client(self) -> Client:
        """A connection that looked good a moment ago. `Lost` if there is none to be had now."""
        if self._client is None or self._client.lost is not None:
            await self._lab.gate.wait()
            self._client = await self._lab.connect(self._name)
        return self._client

    def drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Batch:
    def __init__(self, entries: list[Entry], base_sequence: int) -> None:
        self.entries = entries
        self.base_sequence = base_sequence


class Source:
    """Makes the records of one producer for one partition, each of them unique."""

    def __init__(self, lab: Lab, name: str, partition: PartitionModel, rng: Random, *, idempotent: bool) -> None:
        self.partition = partition
        self.session = 0
        self._lab = lab
        self._name = name
        self._rng = rng
        self._idempotent = idempotent
        self._next = 0

    def new_session(self) -> None:
        self.session += 1
        self._next = 0

    def batch(self) -> Batch:
        rng = self._rng
        first = self._next
        entries: list[Entry] = []
        room = int(self.partition.topic.configs.get("segment.bytes", 100_000)) - _HEADER_BYTES
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            key = Tag(self._name, self.session, self._next, self._idempotent).encode()
            size = rng.choice((0, 10, 100, 100, 1000)) if rng.random() < 0.97 else 8000
            size = min(size, room - len(key) - _RECORD_BYTES)
            if size < 0:  # a batch must fit into a segment
                break
            room -= size + len(key) + _RECORD_BYTES
            entries.append(Entry(key, rng.randbytes(size), self._timestamp()))
            self._next += 1
        return Batch(entries, first)

    def _timestamp(self) -> int:
        if append_time(self.partition.topic):
            return -1
        return self._lab.time_ms() + self._rng.choice((0, 0, 0, -5, 7, 1000))


def error_code(number: int) -> ErrorCode:
    return ErrorCode(number)  # type: ignore[call-arg]  # the lookup by value, which mypy takes for the constructor


def append_time(topic: TopicModel) -> bool:
    return topic.configs.get("message.timestamp.type") == "LogAppendTime"


async def pause(rng: Random, at_most_s: float) -> None:
    await asyncio.sleep(rng.random() * at_most_s)


__all__ = [
    "BROKER",
    "PORT",
    "TRY_AGAIN",
    "Batch",
    "Lab",
    "Link",
    "Lost",
    "Source",
    "append_time",
    "error_code",
    "pause",
]
