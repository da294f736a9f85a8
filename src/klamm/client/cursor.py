"""What was fetched of one partition at once, and how much of it the application has taken. No I/O.

The bytes stay as the broker sent them, compressed, and are decoded batch by batch when they are asked for. Taking
records moves the partition's position; behind the last one it goes to where the next fetch began, over whatever an
application never sees: control records, records of aborted transactions, gaps that compaction left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.client.deserializing import Deserializing
from klamm.client.errors import BadRecords, ClientError
from klamm.client.fetching import Aborted, Answer
from klamm.client.subscription import PartitionState
from klamm.core.env import Buffer
from klamm.core.errors import BrokerError
from klamm.core.ids import TopicPartition
from klamm.records import batch
from klamm.records.batch import BatchHeader
from klamm.records.compression import decompress
from klamm.records.consuming import ConsumerRecord
from klamm.records.kernel import decode_consumed, decode_fetched, measure_fetched

if TYPE_CHECKING:
    from klamm.client.pouring import Pouring
    from klamm.records.columnar import Table

AHEAD: Final = 100
"""How many records are decoded at least when one is asked for."""


class Extent(NamedTuple):
    """How far fetched bytes go: where in them whole batches end, the offset behind those, the last batch's epoch."""

    size: int
    next_offset: int
    epoch: int


def measure(place: TopicPartition, records: Buffer, offset: int) -> Extent:
    """The same offset if there is no whole batch. `BadRecords` if these are no batches at all."""
    if len(records) > batch.magic_offset and records[batch.magic_offset] != batch.MAGIC:
        raise BadRecords(f"{place} has records in message format v{records[batch.magic_offset]}; only v2 can be read.")
    try:
        return Extent(*measure_fetched(records, offset))
    except BrokerError as error:
        raise BadRecords(f"{place}: what the broker sent is no batch: {error}.") from error


class Rest(NamedTuple):
    """Fetched bytes that nobody has decoded: whole batches, the offset to begin with, and what to leave out."""

    topic: str
    partition: int
    data: Buffer
    start: int
    next_offset: int
    high_watermark: int
    aborted: tuple[tuple[int, int], ...]
    """Of producers whose transactions were aborted: id and first offset. Empty unless only committed ones are read."""


class Cursor:
    __slots__ = (
        "_aborted",
        "_at",
        "_data",
        "_deserializing",
        "_error",
        "_extent",
        "_pos",
        "_pouring",
        "_quick",
        "_raw",
        "_records",
        "answer",
        "decoded",
        "is_prepared",
        "size",
        "state",
        "turn",
    )

    def __init__(
        self,
        state: PartitionState,
        answer: Answer,
        extent: Extent,
        *,
        read_committed: bool,
        deserializing: Deserializing | None = None,
    ) -> None:
        self.state = state
        self.turn = state.turn
        self.answer = answer
        self.size = len(answer.records)
        self.decoded = 0  # records
        self._data = memoryview(answer.records)
        self._extent = extent
        self._pos = 0
        self._aborted = Aborted(answer.aborted) if read_committed else None
        self._quick = not read_committed or not answer.aborted  # no batch has to be looked at for whose it is
        self._deserializing = deserializing
        self.is_prepared = deserializing is None or not deserializing.has_to_prepare
        self._raw: list[ConsumerRecord] | None = None  # until they are deserialized
        self._records: list[ConsumerRecord] = []
        self._at = 0  # how many of `_records` were taken
        self._error: ClientError | None = None  # of the record behind `_records`
        self._pouring: Pouring | None = None

    @property
    def is_stale(self) -> bool:
        """The partition was sought, or taken away: this is of no use any more."""
        return self.turn != self.state.turn

    def detach(self) -> None:
        """It will wait for long: let it not keep a whole answer in memory for its own part."""
        held = self._data.obj
        if len(held) > 2 * len(self._data):  # type: ignore[arg-type]
            self._data = memoryview(bytes(self._data))
            self.answer = self.answer._replace(records=self._data)
            self._pouring = None

    def take(self, limit: int) -> list[ConsumerRecord]:
        """The next records, `limit` at most; none: there are no more. An error is raised once all before it are taken,
        and again each time."""
        found: list[ConsumerRecord] = []
        while len(found) < limit:
            if self._at == len(self._records):
                try:
                    if not self._load(limit - len(found)):
                        break
                except ClientError:
                    if not found:
                        raise
                    break
            end = self._at + limit - len(found)
            if not found and self._at == 0 and end >= len(self._records):
                found, self._records = self._records, []  # as in most cases: the list as it is
            else:
                found += self._records[self._at : end]
                self._at = min(end, len(self._records))
        self._move(found)
        return found

    def take_one(self) -> ConsumerRecord | None:
        """The next record, as `take(1)` gives it, with less ado."""
        if self._at == len(self._records) and not self._load(AHEAD):
            self._move(())
            return None
        record = self._records[self._at]
        self._at += 1
        state = self.state
        state.offset = record[2] + 1
        state.epoch = record[8]
        return record

    def all_raw(self) -> list[ConsumerRecord]:
        """All records, not deserialized, for a deserializer that has to prepare for them. Damage ends them. The same
        again until `give_back`, should preparing have failed."""
        assert not self.is_prepared
        if self._raw is not None:
            return self._raw
        found: list[ConsumerRecord] = []
        try:
            while self._load(self.size):
                found += self._records
                self._at = len(self._records)
        except BadRecords as error:
            self._error = error
        self._records, self._at = [], 0
        self._raw = found
        return found

    def give_back(self, records: list[ConsumerRecord], error: ClientError | None) -> None:
        """The same records, deserialized, up to the first that could not be."""
        self._records, self._at = records, 0
        self._error = error or self._error
        self._pos = self._extent.size
        self._raw = None
        self.is_prepared = True

    def take_rest(self) -> Rest:
        """All that is left, undecoded. Records that were decoded already and not taken are decoded again."""
        rest = self._rest()
        self._finish()
        return rest

    def _rest(self) -> Rest:
        extent, answer = self._extent, self.answer
        listed = answer.aborted if self._aborted is not None else ()
        return Rest(*self.state.place, self._data[: extent.size], self.state.offset, extent.next_offset,
                    answer.high_watermark, listed)  # fmt: skip

    def _finish(self) -> None:
        self._pos, self._records, self._at = self._extent.size, [], 0
        self._move(())

    def pour(self, table: Table, max_rows: int, max_bytes: int) -> None:
        """Take the next records as columns; see `pouring`."""
        from klamm.client.pouring import Pouring

        state, pouring = self.state, self._pouring
        if pouring is None or pouring.offset != state.offset:  # records were taken in between
            pouring = self._pouring = Pouring(self._rest())
        before = table.rows
        try:
            pouring.pour(table, max_rows, max_bytes)
        finally:
            self.decoded += table.rows - before
            if pouring.is_empty:
                self._finish()
            else:
                state.offset = pouring.offset
                state.epoch = state.epoch if pouring.epoch is None else pouring.epoch
                while self._at < len(self._records) and self._records[self._at].offset < state.offset:
                    self._at += 1
                self._move(())

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._records) and self._pos >= self._extent.size and self._error is None

    def _move(self, taken: list[ConsumerRecord] | tuple[()]) -> None:
        state = self.state
        if self.is_finished:
            state.offset, state.epoch = self._extent.next_offset, self._extent.epoch
        elif taken:
            state.offset, state.epoch = taken[-1].offset + 1, taken[-1].leader_epoch

    def _load(self, limit: int) -> bool:
        """Decode the batches that the next `limit` records are in, or some of them; False at the end."""
        if self._error is not None:
            raise self._error
        while self._pos < self._extent.size:
            records = self._decode_plain(limit) or self._decode_next()
            if records:
                self.decoded += len(records)
                if self._deserializing is not None and self.is_prepared:
                    records, self._error = self._deserializing(records)
                    if not records and self._error is not None:
                        raise self._error
                self._records, self._at = records, 0
                return True
        return False

    def _decode_plain(self, limit: int) -> list[ConsumerRecord]:
        """Batches that take no closer look, many at a time."""
        if not self._quick:
            return []
        topic, partition = self.state.place
        records, self._pos = decode_fetched(
            self._data, self._pos, topic=topic, partition=partition, start=self.state.offset, limit=limit
        )
        return records

    def _decode_next(self) -> list[ConsumerRecord]:
        """One batch, of whichever kind."""
        if self._pos >= self._extent.size:
            return []
        header = batch.read_header(self._data, self._pos)
        try:
            records = self._decode(self._pos, header)
        except BrokerError as error:
            raise BadRecords(
                f"{self.state.place}: the batch at offset {header.base_offset} cannot be read: {error}."
            ) from error
        self._pos += header.size
        return records

    def _decode(self, pos: int, header: BatchHeader) -> list[ConsumerRecord]:
        state = self.state
        if self._aborted is not None and self._aborted.hides(header, self._data, pos):
            return []
        if header.attributes & batch.CONTROL or header.next_offset <= state.offset:
            return []
        batch.check(self._data, pos, header)
        payload: Buffer = self._data[pos + batch.header_bytes : pos + header.size]
        if header.codec:
            payload = decompress(header.codec, payload)
        topic, partition = state.place
        return decode_consumed(
            payload,
            header.record_count,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            topic=topic,
            partition=partition,
            leader_epoch=header.leader_epoch,
            start=state.offset,
        )
