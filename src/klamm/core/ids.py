"""Small types that name what an int, a str or 16 bytes stand for."""

from __future__ import annotations

import base64
from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)  # the 16 raw bytes of a uuid: cheap to decode, compare and hash
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)

ZERO_UUID = bytes(16)
NO_TOPIC_ID = TopicId(ZERO_UUID)
NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(raw: bytes) -> str:
    """A uuid as Kafka's tools print it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text + "==")
    if len(raw) != 16:
        raise ValueError(f"not a uuid: {text!r}")
    return raw
