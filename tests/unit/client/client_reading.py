"""Consumers of a fake cluster: filling its logs, and reading them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from client_log import FakeLogs

from klamm.aio import Consumer
from klamm.records.record import Record, encode_batch

Open = Callable[..., Awaitable[Consumer]]


def fill(logs: FakeLogs, partition: int, count: int, *, per_batch: int = 5, time: int = 1000) -> list[bytes]:
    first = len(logs.logs[partition].records)
    values = [b"%d/%d" % (partition, first + number) for number in range(count)]
    for at in range(0, count, per_batch):
        records = [Record(0, time + first + at + n, None, v) for n, v in enumerate(values[at : at + per_batch])]
        logs.logs[partition].append(encode_batch(records))
    return values


async def take(consumer: Consumer, count: int) -> list[bytes]:
    return [(await consumer.getone()).value for _ in range(count)]
