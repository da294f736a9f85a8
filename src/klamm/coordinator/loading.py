"""Reading a partition of an internal topic from its start into a machine, without holding up the loop.

Bytes are read in a thread, a megabyte at a time; batches are decoded and replayed on the loop, a hundred records and
then somebody else's turn. Memory is bounded by one read and one batch, whatever the size of the log. Offsets may have
gaps: compaction leaves them.

This module must never write, and never decide what a failed load means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from klamm.coordinator.machine import Machine, Producer
from klamm.core.env import Executor, FileRange
from klamm.core.errors import BrokerError
from klamm.core.slices import Sliced, in_slices
from klamm.log.results import Rejected
from klamm.records.batch import CorruptBatch, iter_batches
from klamm.records.record import ControlType, decode_control, decode_records
from klamm.records.record import Record as Stored

if TYPE_CHECKING:
    from klamm.coordinator.records import RecordFormat
    from klamm.log.log import Log

READ_BYTES: Final = 1 << 20
"""Read at a time; a batch that is larger is read whole."""
RECORDS_PER_SLICE: Final = 100
"""Replayed before the loop has its turn: about 2 ms."""


class Turns:
    """Who may load: a few at a time, in the order in which they came, but those first that somebody asks for."""

    __slots__ = ("_free", "_others", "_wanted")

    def __init__(self, at_a_time: int) -> None:
        self._free = at_a_time
        self._wanted: dict[int, asyncio.Future[None]] = {}  # by partition
        self._others: dict[int, asyncio.Future[None]] = {}

    async def take(self, partition: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn = self._others[partition] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            self._others.pop(partition, None)
            self._wanted.pop(partition, None)
            if turn.done() and not turn.cancelled():
                self.give_back()  # it had come all the same
            raise

    def hurry(self, partition: int) -> None:
        """Somebody asks for this one."""
        turn = self._others.pop(partition, None)
        if turn is not None:
            self._wanted[partition] = turn

    def give_back(self) -> None:
        """Somebody has had its turn."""
        while waiting := self._wanted or self._others:
            turn = waiting.pop(next(iter(waiting)))
            if not turn.done():  # else it was called off, and has not noticed yet
                turn.set_result(None)
                return
        self._free += 1


class Loaded:
    """What a load has gone through, for the log."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0


async def load(
    log: Log,
    machine: Machine,
    known: RecordFormat,
    executor: Executor,
    progress: Callable[[], Awaitable[None]],
) -> Loaded:
    """Replay the whole log, up to its end at the moment this returns: nobody else may have a turn between that and the
    first write. Records that are still on their way to the disk are waited for with `progress()`, which returns when
    the log has moved.

    BrokerError (CorruptBatch among them), ProtocolError or OSError: the log cannot be read, or what is in it not
    understood."""
    loaded = Loaded()
    offset = log.start_offset
    while True:
        offset = max(offset, log.start_offset)
        if offset < log.end_offset:
            found = log.read(offset, READ_BYTES, limit=log.end_offset)
            if isinstance(found, Rejected):
                raise BrokerError(found.code, found.message)
            if found is None:
                raise CorruptBatch(f"{log.name} ends at {log.end_offset}, and has nothing from {offset} on")
            data = await _read(found, executor)
            offset = await in_slices(_replaying(data, offset, machine, known, loaded))
            loaded.size_bytes += len(data)
        elif offset < log.next_offset:
            await progress()
        else:
            return loaded


async def _read(found: FileRange, executor: Executor) -> bytes:
    file, position, size = found
    file.pin()
    reading = executor.submit(file.pread, size, position)
    # Not in a `finally` of ours: should this task be cancelled, the thread reads on.
    reading.add_done_callback(lambda _: file.unpin())
    return await asyncio.shield(reading)


def _replaying(data: bytes, offset: int, machine: Machine, known: RecordFormat, loaded: Loaded) -> Sliced[int]:
    """Replay the whole batches in these bytes; the offset that comes after them."""
    begin = offset
    left = RECORDS_PER_SLICE
    for position, header in iter_batches(data):
        if header.last_offset < begin:
            continue  # the log starts within this read
        left -= 1  # a batch without records takes its time as well
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in decode_records(data, position):
            if left <= 0:
                left = RECORDS_PER_SLICE
                yield
            left -= 1
            if header.is_control:
                _replay_marker(record, producer, machine)
            elif (decoded := known.decode(record.key, record.value)) is not None:
                machine.replay(decoded, producer)
        loaded.records += header.record_count
        offset = header.next_offset
    if offset == begin:
        raise CorruptBatch(f"no whole batch at offset {begin}")
    return offset


def _replay_marker(record: Stored, producer: Producer | None, machine: Machine) -> None:
    marker = decode_control(record)
    if marker is not None and producer is not None:
        machine.replay_end(producer, marker.type == ControlType.COMMIT)
