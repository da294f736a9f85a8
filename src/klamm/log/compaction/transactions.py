"""Transactions in a log that is being compacted: whose batches were aborted, and which markers have become pointless.

A marker may go once nothing of its transaction is left: a round that has met none of its batches says so, and it is
always a round from the log's start. Until then consumers need it, and the entry of an aborted one in the transaction
index with it. Pure: headers in, verdicts out, in the order of offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from klamm.core.env import Buffer
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import TRANSACTIONAL, BatchHeader
from klamm.records.record import ControlType, EndMarker, decode_control, decode_records


class Transactions:
    __slots__ = ("_aborted", "_coming", "_committed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted` are all that overlap with the offsets that will be gone through, and none that ended before."""
        self._coming = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}  # under way, by producer; whether a batch was met
        self._committed: set[int] = set()  # producers of whose current transaction a batch was met

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if self._coming:
            self._advance(header.last_offset)
        if not header.attributes & TRANSACTIONAL:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._aborted[producer_id] = self._aborted[producer_id][0], True
            return True
        self._committed.add(producer_id)
        return False

    def end(self, header: BatchHeader, marker: EndMarker) -> tuple[bool, AbortedTxn | None]:
        """Whether a marker is of no use any more, and what belongs into the transaction index."""
        self._advance(header.last_offset)
        if marker.type == ControlType.COMMIT:
            if header.producer_id not in self._committed:
                return True, None
            self._committed.remove(header.producer_id)
            return False, None
        entry, met = self._aborted.pop(header.producer_id, (None, False))
        return (False, entry) if met else (True, None)

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = self._coming.popleft()
            self._aborted.setdefault(entry.producer_id, (entry, False))


def read_marker(header: BatchHeader, batch: Buffer) -> EndMarker | None:
    """What a control batch says; None if it ends no transaction, or if Kafka has left it empty."""
    return decode_control(decode_records(batch)[0]) if header.record_count else None
