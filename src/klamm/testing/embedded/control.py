"""What a test can ask of its broker, on the broker's side: faults, time, topics, records.

Every command is a method with JSON for arguments and answer. A ValueError tells the test that it asked for something
that cannot be. Nothing here goes over the network, so all of it works on a broker that is paused or refuses clients.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from threading import Lock
from typing import Any

from klamm.controller import NewTopic
from klamm.core.env import FileRange
from klamm.core.env.real import RealClock
from klamm.core.env.unsynced import UnsyncedFiles
from klamm.core.options import Options
from klamm.log.housekeeping import DEFAULT_INTERVALS, Housekeeping
from klamm.log.log import Log
from klamm.records.batch import iter_batches
from klamm.records.record import Record, decode_records
from klamm.server.faults import Faults
from klamm.server.node import Node
from klamm.testing.embedded.channel import Order

READ_BYTES = 1024 * 1024
"""What is read of a log at a time."""
MAX_RECORDS_BYTES = 32 * 1024 * 1024
"""Keys, values and headers that one answer carries."""


class ShiftedClock(RealClock):
    """The system's clock, moved forward by as much as a test has asked for. Timers go on as ever."""

    __slots__ = ("shift_ms",)

    def __init__(self) -> None:
        self.shift_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.shift_ms


class GuardedFiles(UnsyncedFiles):
    """No folder is made while, or after, the guard removes the one that all is in."""

    __slots__ = ("_making",)

    def __init__(self, making: Lock) -> None:
        self._making = making

    def make_dirs(self, path: str) -> None:
        with self._making:
            super().make_dirs(path)


FOR_TESTS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 1,
    "group.consumer.min.session.timeout.ms": 1,
}
"""Where a test wants something else than a cluster does: no waiting for members that it does not start, or for the next
heartbeat of those that it did; and sessions as short as it likes."""


def options_of(order: Order) -> Options:
    """The options that the test gave, on the address that was chosen for it. OptionError if there is a mistake."""
    where = f"[{order.host}]" if ":" in order.host else order.host
    return Options.from_mapping({**FOR_TESTS, "listeners": f"PLAINTEXT://{where}:{order.port}", **order.options})


class Control:
    def __init__(self, node: Node, clock: ShiftedClock) -> None:
        running = node.running
        assert running is not None, "not started"
        self._broker = running.broker
        self._logs = running.logs
        self._clock = clock
        self.faults = Faults(running.server, running.dispatcher.routes)

    async def do(self, command: str, arguments: dict[str, Any]) -> Any:
        method = getattr(self, f"do_{command}", None)
        if method is None:
            raise ValueError(f"there is no command {command}")
        answer = method(**arguments)
        return await answer if asyncio.iscoroutine(answer) else answer

    # -- faults

    def do_pause(self) -> None:
        self.faults.pause()

    def do_resume(self) -> None:
        self.faults.resume()

    def do_refuse_connections(self) -> None:
        self.faults.refuse_connections()

    async def do_accept_connections(self) -> None:
        await self.faults.accept_connections()

    def do_drop_connections(self) -> int:
        return self.faults.drop_connections()

    def do_delay(self, seconds: float, api: str | int | None) -> None:
        self.faults.delay(seconds, api)

    def do_fail(self, api: str | int, code: int, times: int | None) -> None:
        self.faults.fail(api, code, times)

    def do_hang_up_after(self, api: str | int, times: int | None) -> None:
        self.faults.hang_up_after(api, times)

    async def do_clear_faults(self) -> None:
        await self.faults.clear()

    def do_requests(self, api: str | int) -> int:
        return self.faults.requests(api)

    def do_faults_left(self, api: str | int) -> int:
        return self.faults.left(api)

    # -- time

    async def do_advance_time(self, ms: int) -> None:
        """Move the clock, and do at once what is due by it."""
        if ms < 0:
            raise ValueError("time goes forward only")
        self._clock.shift_ms += ms
        house = Housekeeping(self._logs, DEFAULT_INTERVALS)
        await house.retain()
        # Retention finishes an expired active segment, and deletes it in its next round, once it is flushed.
        await asyncio.gather(*(log.flush() for log in self._logs.logs()))
        await house.retain()
        await house.expire()

    # -- topics and records

    async def do_create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        (created,) = await self._broker.controller.create_topics(
            [NewTopic(name, partitions, configs=list(configs.items()))]
        )
        if created.error:
            raise ValueError(f"{created.error.name}: {created.message or created.error.text}")

    def do_topics(self) -> dict[str, int]:
        """The number of partitions of each."""
        return {name: len(topic.partitions) for name, topic in self._broker.image.topics.items()}

    async def do_records(self, topic: str, partition: int | None) -> list[list[Any]]:
        """Partition, offset, timestamp, key, value and headers of every record; bytes as base64."""
        state = self._broker.image.topics.get(topic)
        if state is None:
            raise ValueError(f"there is no topic {topic}")
        if partition is not None and not 0 <= partition < len(state.partitions):
            raise ValueError(
                f"{topic} has {len(state.partitions)} partitions, so there is none with number {partition}"
            )
        found: list[list[Any]] = []
        left = MAX_RECORDS_BYTES
        for index in range(len(state.partitions)) if partition is None else [partition]:
            found_here = self._broker.replicas.find(topic, index)
            log = None if found_here is None else found_here.log
            for record in _records(log) if log is not None else ():
                left -= _size(record)
                if left < 0:
                    raise ValueError(f"{topic} holds more than {MAX_RECORDS_BYTES} bytes; read it with a client")
                found.append([index, record.offset, record.timestamp, *_as_json(record)])
        return found


def _records(log: Log) -> Iterator[Record]:
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, READ_BYTES, limit=log.end_offset)
        if not isinstance(part, FileRange):
            raise ValueError(f"{log.name} cannot be read: {part}")
        data = part.file.pread(part.size, part.offset)
        for position, header in iter_batches(data):
            if not header.is_control:
                yield from (record for record in decode_records(data, position) if record.offset >= offset)
            offset = header.next_offset


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _as_json(record: Record) -> tuple[str | None, str | None, list[list[str | None]]]:
    return _text(record.key), _text(record.value), [[name, _text(value)] for name, value in record.headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
