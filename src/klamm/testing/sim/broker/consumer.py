"""A consumer that follows a few partitions, with an incremental fetch session or without, and checks all it gets."""

from __future__ import annotations

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import reading
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Lab, Link, error_code, pause
from klamm.testing.sim.broker.model import PartitionModel, Violation
from klamm.wire.messages.k01_fetch import FetchRequest, FetchResponse, PartitionData

_SESSION_GONE = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class Consumer:
    def __init__(self, lab: Lab, name: str, partitions: list[PartitionModel]) -> None:
        self.name = name
        self._lab = lab
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._version = self._rng.choice(reading.FETCH_VERSIONS)
        self._in_session = self._version >= reading.FIRST_WITH_SESSIONS and self._rng.random() < 0.7
        self._positions = dict.fromkeys(partitions, 0)
        self._cuts_seen = {partition: len(partition.cuts) for partition in partitions}
        self._behind: set[PartitionModel] = set()  # only asked for membership: a set has no order
        self._high_watermarks: dict[PartitionModel, int] = {}
        self._changed = list(partitions)  # what the session does not know yet
        self._session_id = 0
        self._epoch = 0 if self._in_session else -1

    async def run(self) -> None:
        while not self._lab.is_over():
            try:
                await self._fetch(await self._link.client())
            except Lost as lost:
                self._lab.note(self.name, "lost", str(lost))
                self._link.drop()
                self._forget_session()
                await pause(self._rng, 0.2)

    def _forget_session(self) -> None:
        self._session_id = 0
        self._epoch = 0 if self._in_session else -1
        self._changed = list(self._positions)

    async def _fetch(self, client: Client) -> None:
        self._step_back()
        request = FetchRequest(
            max_wait_ms=self._rng.choice((0, 50, 300)),
            min_bytes=self._rng.choice((0, 1, 1, 5000)),
            max_bytes=self._rng.choice((1, 10_000, 1_000_000)),
            isolation_level=self._rng.choice((0, 1)),
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=reading.fetch_topics(
                self._version, [(p, self._positions[p]) for p in self._changed], self._rng.choice((1, 500, 1_000_000))
            ),
        )
        answer = await client.call(request, self._version)
        code = error_code(answer.error_code)
        if code in _SESSION_GONE:
            self._forget_session()
        elif code is not ErrorCode.NONE:
            raise Violation(f"{self.name}: fetch failed with {code.name}")
        else:
            self._read(answer)
        for partition in [partition for partition in self._positions if partition in self._behind]:
            await self._catch_up(client, partition)
        await pause(self._rng, 0.02)

    async def _catch_up(self, client: Client, partition: PartitionModel) -> None:
        """The records at our position are deleted: go on with the first that is left."""
        code, start = await reading.offset_for(client, partition, reading.EARLIEST)
        if code in TRY_AGAIN:
            return
        if code is not ErrorCode.NONE:
            raise Violation(f"{self.name}: no start offset for {partition}: {code.name}")
        self._positions[partition] = max(self._positions[partition], start)
        self._behind.discard(partition)
        if partition not in self._changed:
            self._changed.append(partition)

    def _step_back(self) -> None:
        """After a power loss the log may end before our position: go back to where it was cut."""
        for partition, seen in self._cuts_seen.items():
            if partition.cuts[seen:]:
                cut = min(partition.cuts[seen:])
                if cut < self._positions[partition]:
                    self._positions[partition] = cut
                self._cuts_seen[partition] = len(partition.cuts)
                self._high_watermarks.pop(partition, None)
                self._forget_session()

    def _read(self, answer: FetchResponse) -> None:
        self._changed = [] if self._in_session else list(self._positions)
        for partition in self._positions:
            data = _data_of(answer, partition)
            if data is not None:
                self._take(partition, data)
        if self._in_session:
            self._session_id = answer.session_id
            self._epoch = self._epoch + 1 if answer.session_id else 0
            if not answer.session_id:
                self._changed = list(self._positions)

    def _take(self, partition: PartitionModel, data: PartitionData) -> None:
        code = error_code(data.error_code)
        if code in TRY_AGAIN:
            self._lab.note(self.name, code.name, str(partition))
            return
        position = self._positions[partition]
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and partition.topic.shrinks:
            self._behind.add(partition)
            return
        if code is not ErrorCode.NONE:
            raise Violation(f"{self.name}: {partition} at {position}: {code.name}")
        if data.high_watermark < self._high_watermarks.get(partition, 0):
            raise Violation(f"{self.name}: the high watermark of {partition} went back to {data.high_watermark}")
        self._high_watermarks[partition] = data.high_watermark
        partition.saw_high_watermark(data.high_watermark)
        partition.saw_start(max(0, data.log_start_offset))
        assert not isinstance(data.records, FileRange)
        entries = reading.read_entries(partition, data.records, position, data.high_watermark)
        for i, entry in enumerate(entries):
            partition.learn(position + i, entry)
        if entries:
            self._positions[partition] = position + len(entries)
            if partition not in self._changed:
                self._changed.append(partition)


def _data_of(answer: FetchResponse, partition: PartitionModel) -> PartitionData | None:
    for topic in answer.responses:
        if topic.topic_id == partition.topic.id or topic.topic == partition.topic.name:
            for data in topic.partitions:
                if data.partition_index == partition.index:
                    return data
    return None
