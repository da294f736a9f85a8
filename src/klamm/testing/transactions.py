"""Whether transactions kept their promise: what clients did, held against what a consumer of committed records read.

Clients write down what they put into each transaction, in order, and how it ended as far as they know. The check then
finds every record that was lost, doubled, out of order, aborted or of nobody, and every transaction that came through
in part. It knows nothing of brokers: anything that can be read may be held against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum


class Fate(Enum):
    ABORTED = "aborted"
    """Nobody ever asked to commit it, or the answer was no: nothing of it may be seen."""
    COMMITTED = "committed"
    """The commit was acknowledged: all of it must be seen."""
    UNKNOWN = "unknown"
    """A commit was asked for and no answer came: all of it is seen, or nothing."""


class Transaction:
    __slots__ = ("fate", "producer", "records")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.records: list[tuple[int, bytes]] = []  # partition and value, which no other record may have
        self.fate = Fate.ABORTED

    def add(self, partition: int, value: bytes) -> None:
        self.records.append((partition, value))


class History:
    """Transactions of one producer are begun one after another; those of several may overlap."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []

    def begin(self, producer: str) -> Transaction:
        transaction = Transaction(producer)
        self.transactions.append(transaction)
        return transaction

    def problems(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        """What is wrong with the values that were read of each partition; nothing, if all is well."""
        return [*self._wrong_places(read), *self._wrong_fates(read), *self._wrong_order(read)]

    def _wrong_places(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        known = {value: partition for one in self.transactions for partition, value in one.records}
        found: list[str] = []
        seen: set[bytes] = set()
        for partition, values in read.items():
            for value in values:
                if known.get(value) != partition:
                    found.append(f"{value!r} was read of partition {partition}, where nobody wrote it")
                elif value in seen:
                    found.append(f"{value!r} was read twice of partition {partition}")
                seen.add(value)
        return found

    def _wrong_fates(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        seen = {value for values in read.values() for value in values}
        found: list[str] = []
        for one in self.transactions:
            there = [value for _, value in one.records if value in seen]
            missing = [value for _, value in one.records if value not in seen]
            if one.fate is Fate.COMMITTED and missing:
                found.append(f"{one.producer}: {missing[0]!r} was committed and is lost ({len(missing)} of them)")
            elif one.fate is Fate.ABORTED and there:
                found.append(f"{one.producer}: {there[0]!r} was not committed and is there ({len(there)} of them)")
            elif one.fate is Fate.UNKNOWN and there and missing:
                found.append(f"{one.producer}: {there[0]!r} is there and {missing[0]!r} of the same transaction is not")
        return found

    def _wrong_order(self, read: Mapping[int, Sequence[bytes]]) -> list[str]:
        order = {
            value: (one.producer, number)
            for number, (one, value) in enumerate((one, value) for one in self.transactions for _, value in one.records)
        }
        found: list[str] = []
        for partition, values in read.items():
            last: dict[str, int] = {}
            for value in values:
                producer, number = order.get(value, ("", 0))
                if number < last.get(producer, 0):
                    found.append(f"{producer}: {value!r} comes too late in partition {partition}")
                last[producer] = number
        return found
