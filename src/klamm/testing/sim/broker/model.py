"""What the clients know about the broker's logs, and what must therefore be true of them.

Pure: it is told what was sent, acknowledged and read, and raises `Violation` when two of these cannot both be true.
`verify.py` does the asking after a restart.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Violation(AssertionError):
    """The broker broke a promise."""


class TopicState(Enum):
    CREATING = "creating"  # asked for, the outcome is not known yet
    EXISTS = "exists"
    DELETING = "deleting"
    DELETED = "deleted"


class Tag(NamedTuple):
    """Which batch of which producer's session a record belongs to. It is in the record's key."""

    producer: str
    session: int
    number: int
    idempotent: bool

    def encode(self) -> bytes:
        return f"{self.producer}/{self.session}/{self.number}/{int(self.idempotent)}".encode()

    @classmethod
    def decode(cls, key: bytes) -> Tag:
        producer, session, number, idempotent = key.decode().split("/")
        return cls(producer, int(session), int(number), idempotent == "1")


class Entry(NamedTuple):
    """One record as it was sent or read."""

    key: bytes
    value: bytes
    timestamp: int


class PartitionModel:
    def __init__(self, topic: TopicModel, index: int) -> None:
        self.topic = topic
        self.index = index
        self.known: dict[int, Entry] = {}  # by offset: acknowledged, or read by a consumer
        self.sent: dict[bytes, tuple[Entry, int]] = {}  # by key: the record, and how often it may be in the log
        self.acked_end = 0  # behind the last record that was acknowledged
        self.start = 0  # the log start offset, as far as it is known to have moved
        self.durable_start = 0  # where records were deleted up to, which no power loss may undo
        self.durable_end = 0  # behind the last record that no power loss may take
        self.high_watermark = 0
        self.cuts: list[int] = []  # where the log ended after each power loss

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def sending(self, entry: Entry, *, idempotent: bool) -> None:
        """The record goes out, for the first time or again."""
        _, times = self.sent.get(entry.key, (entry, 0))
        self.sent[entry.key] = (entry, 1 if idempotent else times + 1)

    def acknowledged(self, base_offset: int, entries: list[Entry]) -> None:
        for i, entry in enumerate(entries):
            self.learn(base_offset + i, entry)
        end = base_offset + len(entries)
        self.acked_end = max(self.acked_end, end)
        if self.topic.flushed:
            self.durable_end = max(self.durable_end, end)

    def learn(self, offset: int, entry: Entry) -> None:
        known = self.known.setdefault(offset, entry)
        if known != entry:
            raise Violation(f"{self}: offset {offset} was {known.key!r} and is now {entry.key!r}")
        if entry.key not in self.sent:
            raise Violation(f"{self}: nobody ever sent {entry.key!r}, which is at offset {offset}")
        if self.sent[entry.key][0] != entry:
            raise Violation(f"{self}: {entry.key!r} at offset {offset} is not as it was sent")

    def saw_high_watermark(self, high_watermark: int) -> None:
        """A consumer was told so; others may have been told more, since answers overtake each other."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        if self.topic.flushed:  # seen means flushed as well
            self.durable_end = max(self.durable_end, high_watermark)

    def lost_since(self, cuts_seen: int, offset: int) -> bool:
        """Whether a power loss after the first `cuts_seen` ones took the record at `offset`."""
        return any(cut <= offset for cut in self.cuts[cuts_seen:])

    def everything_is_durable(self) -> None:
        """A clean stop wrote it all to the disk."""
        self.durable_end = max(self.durable_end, self.acked_end, *[offset + 1 for offset in self.known], 0)

    def saw_start(self, start: int) -> None:
        if start and not self.topic.shrinks:
            raise Violation(f"{self}: the log starts at {start}, and nothing may be deleted from it")
        self.start = max(self.start, start)

    def deleted_below(self, start: int) -> None:
        """Somebody asked for it and was told that it is done; what was there was flushed for it."""
        self.saw_start(start)
        self.durable_start = max(self.durable_start, start)
        self.durable_end = max(self.durable_end, start)

    def check_log(self, start: int, entries: list[Entry], *, power_lost: bool) -> None:
        """Hold the whole log against what is known."""
        end = start + len(entries)
        if power_lost:
            self._cut(end)
            self.start = self.durable_start  # what retention has deleted may be back
        if start < self.start:
            raise Violation(f"{self}: the log start went from {self.start} back to {start}")
        if not power_lost:
            missing = [offset for offset in self.known if offset >= end]
            if missing:
                raise Violation(f"{self}: the log ends at {end}; offset {min(missing)} was there before the kill")
            if end < self.high_watermark:
                raise Violation(f"{self}: the high watermark went from {self.high_watermark} back to {end}")
        self.saw_start(start)
        for offset, entry in enumerate(entries, start):
            self.learn(offset, entry)
        self._check_copies(start, entries)

    def _cut(self, end: int) -> None:
        if end < self.durable_end:
            raise Violation(f"{self}: the log ends at {end} after a power loss; {self.durable_end} was flushed")
        self.cuts.append(end)
        self.known = {offset: entry for offset, entry in self.known.items() if offset < end}
        self.acked_end = min(self.acked_end, end)
        self.high_watermark = min(self.high_watermark, end)
        self.durable_end = end  # what survived a power loss survives the next one

    def _check_copies(self, start: int, entries: list[Entry]) -> None:
        copies: dict[bytes, int] = {}
        last: dict[tuple[str, int], int] = {}
        for offset, entry in enumerate(entries, start):
            copies[entry.key] = copies.get(entry.key, 0) + 1
            if copies[entry.key] > self.sent[entry.key][1]:
                raise Violation(f"{self}: {entry.key!r} is in the log once too often, at offset {offset}")
            tag = Tag.decode(entry.key)
            if tag.idempotent:
                session = (tag.producer, tag.session)
                before = last.get(session, tag.number - 1 if start else -1)
                if tag.number != before + 1:
                    raise Violation(f"{self}: {entry.key!r} at offset {offset} follows number {before}")
                last[session] = tag.number


class TopicModel:
    def __init__(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        self.name = name
        self.id = b""
        self.configs = configs
        self.state = TopicState.CREATING
        self.trimmed = False  # somebody deletes records
        self.partitions = [PartitionModel(self, index) for index in range(partitions)]

    @property
    def flushed(self) -> bool:
        """Whether what is acknowledged has been flushed."""
        return self.configs.get("flush.messages") == "1"

    @property
    def shrinks(self) -> bool:
        """Whether old records are deleted."""
        return self.trimmed or "retention.bytes" in self.configs


class Model:
    def __init__(self) -> None:
        self.topics: list[TopicModel] = []  # one name may be there several times, with different ids
        self._cluster_id: str | None = None
        self._producer_ids: set[int] = set()

    def saw_cluster_id(self, cluster_id: str | None) -> None:
        self._cluster_id = self._cluster_id or cluster_id
        if cluster_id is None or cluster_id != self._cluster_id:
            raise Violation(f"the cluster {self._cluster_id} calls itself {cluster_id}")

    def got_producer_id(self, producer_id: int) -> None:
        """No crash may let two producers have the same id."""
        if producer_id < 0 or producer_id in self._producer_ids:
            raise Violation(f"the producer id {producer_id} was given out twice, or is none")
        self._producer_ids.add(producer_id)

    def everything_is_durable(self) -> None:
        for topic in self.topics:
            for partition in topic.partitions:
                partition.everything_is_durable()

    def check_topics(self, listed: dict[str, tuple[bytes, int]]) -> None:
        """Hold what Metadata says (name: id and number of partitions) against what was acknowledged."""
        for topic in self.topics:
            there = listed.get(topic.name)
            same = there is not None and there[0] == topic.id
            if topic.state is TopicState.EXISTS and (not same or there != (topic.id, len(topic.partitions))):
                raise Violation(f"topic {topic.name} was created as {topic.id.hex()}, and now there is {there}")
            if topic.state is TopicState.DELETED and same:
                raise Violation(f"topic {topic.name} was deleted and is there again")
        asked_for = {topic.name for topic in self.topics if topic.state is not TopicState.DELETED}
        for name in listed:
            if name not in asked_for:
                raise Violation(f"nobody asked for the topic {name}, or it should be gone")
