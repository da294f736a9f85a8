"""Reading in a group with confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator

from common import BATCH, NUMBERS
from confluent_kafka import Consumer, Message


def subscribed(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member of a group that commits only when it is told to."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,  # so long the group waits for the worker that was killed
        }
    )
    consumer.subscribe([topic])
    return consumer


def batches(consumer: Consumer) -> Iterator[list[Message]]:
    """Ten messages at a time, until the last number has come."""
    last = -1
    while last < NUMBERS - 1:
        messages = consumer.consume(BATCH, timeout=30)
        assert messages, "nothing came for 30 s"
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
        last = int(messages[-1].value())
        yield messages
