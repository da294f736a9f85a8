"""Fetched batches on their way into a table of columns. No I/O, and no Python object for each record.

Compressed batches, aborted transactions and control records are dealt with batch by batch here, all others in one go by
the kernel; what is inside of a batch only it looks at. A batch that does not fit is poured in pieces, so a table never
has more rows than were asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.client.errors import BadRecords
from klamm.client.fetching import Aborted
from klamm.core.env import Buffer
from klamm.core.errors import BrokerError
from klamm.records import batch
from klamm.records.batch import BatchHeader
from klamm.records.compression import decompress

if TYPE_CHECKING:
    from klamm.client.cursor import Rest
    from klamm.records.columnar import Table


class Pouring:
    """What came of one partition at once. `offset` and `epoch` are where it has got to."""

    __slots__ = ("_aborted", "_data", "_left", "_payload", "_pos", "_rest", "_topic", "epoch", "offset")

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._topic = rest.topic.encode()
        self._data = memoryview(rest.data)
        self._aborted = Aborted(rest.aborted) if rest.aborted else None
        self._pos = 0
        self._payload: memoryview | None = None  # of the batch at `_pos`, from the first record on that is not poured
        self._left = 0  # records in it
        self.offset = rest.start
        self.epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        return self._pos >= len(self._data)

    def pour(self, table: Table, max_rows: int, max_bytes: int) -> None:
        """Add records until the table has `max_rows`, or `max_bytes` and a batch at most more. What cannot be read
        raises `BadRecords` when all before it is in the table, and again each time."""
        while not self.is_empty and table.rows < max_rows and table.size < max_bytes:
            if self._payload is None and self._aborted is None and self._pour_plain(table, max_rows, max_bytes):
                continue
            header = batch.read_header(self._data, self._pos)  # it was measured when it came
            try:
                if self._payload is None and not self._open(header):
                    self._pos += header.size
                    continue
                self._add(header, table, max_rows - table.rows)
            except BrokerError as error:
                raise BadRecords(
                    f"{self._rest.topic}-{self._rest.partition}: "
                    f"the batch at offset {header.base_offset} cannot be read: {error}."
                ) from error
        if self.is_empty:
            self.offset = max(self.offset, self._rest.next_offset)

    def _pour_plain(self, table: Table, max_rows: int, max_bytes: int) -> bool:
        """Batches that take no closer look and fit as a whole, many in one call; False if the next one is none."""
        before = self._pos
        self._pos, self.offset, epoch = table.add_fetched(
            self._data,
            before,
            topic=self._topic,
            partition=self._rest.partition,
            start=self.offset,
            max_rows=max_rows,
            max_bytes=max_bytes,
        )
        if epoch >= 0:
            self.epoch = epoch
        return self._pos > before

    def _open(self, header: BatchHeader) -> bool:
        """Make the payload of this batch the one to pour; False if none of its records is to be seen."""
        if self._aborted is not None and self._aborted.hides(header, self._data, self._pos):
            return False
        if header.attributes & batch.CONTROL or header.next_offset <= self.offset:
            return False
        batch.check(self._data, self._pos, header)
        payload: Buffer = self._data[self._pos + batch.header_bytes : self._pos + header.size]
        if header.codec:
            payload = decompress(header.codec, payload)
        self._payload, self._left = memoryview(payload), header.record_count
        return True

    def _add(self, header: BatchHeader, table: Table, limit: int) -> None:
        assert self._payload is not None
        walked, size, next_offset = table.add(
            self._payload,
            self._left,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            topic=self._topic,
            partition=self._rest.partition,
            start=self.offset,
            limit=limit,
        )
        self.epoch = header.leader_epoch
        if walked == self._left:
            self._payload = None
            self._pos += header.size
            self.offset = header.next_offset
        else:
            self._payload, self._left = self._payload[size:], self._left - walked
            self.offset = next_offset
