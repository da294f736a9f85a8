"""Reading in a group with Klamm's own client."""

from __future__ import annotations

from collections.abc import Iterator

from common import BATCH, NUMBERS

from klamm import Consumer, ConsumerRecord


def member(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member of a group that commits only when it is told to."""
    return Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,  # so long the group waits for the worker that was killed
        heartbeat_interval_ms=2000,
    )


def batches(consumer: Consumer) -> Iterator[list[ConsumerRecord]]:
    """Ten records at a time, until the last number has come."""
    last = -1
    while last < NUMBERS - 1:
        found = consumer.getmany(BATCH, timeout_ms=30_000)
        assert found, "nothing came for 30 s"
        (records,) = found.values()  # the topic has one partition
        last = int(records[-1].value)
        yield records
