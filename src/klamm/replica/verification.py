"""First batches of transactions that wait for their coordinator's word (KIP-890).

A batch that is written after its transaction has ended would belong to nobody: no marker comes for it, and the last
stable offset stays where it is for good. So the first batch of a transaction in a partition is appended only once the
coordinator has confirmed that it knows the partition to be part of it; the later ones find the transaction under way.

A confirmation may be overtaken by the marker that ends the transaction. That is why a verification is an object: the
marker takes it away, and a confirmation for one that is gone counts for nothing. This module must never ask anybody
anything; what it holds is gone with the process, and nothing is lost by that.
"""

from __future__ import annotations

from typing import Final

MAX_VERIFICATIONS: Final = 10_000
"""In one partition. Beyond that the oldest is forgotten, and its producer has to try again."""


class Verification:
    """One producer's, in one partition. `adds`: the partition is added to the transaction by the very request that
    brings the batch (transaction version 2), and the epoch is one that no earlier transaction had."""

    __slots__ = ("adds", "epoch", "lowest_sequence", "producer_id", "verified")

    def __init__(self, producer_id: int, epoch: int, sequence: int, adds: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.adds = adds
        self.verified = False


class Verifications:
    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def get(self, producer_id: int) -> Verification | None:
        return self._by_producer.get(producer_id)

    def begin(self, producer_id: int, epoch: int, sequence: int, adds: bool) -> Verification:
        """A batch has come that is to be the first of its transaction here. Several may have, if one before it is still
        waiting or has failed: the lowest sequence has to be written first, or the producer could never write it."""
        one = self._by_producer.get(producer_id)
        if one is not None and one.epoch >= epoch:
            if one.epoch == epoch and sequence < one.lowest_sequence:
                one.lowest_sequence = sequence
            return one
        one = self._by_producer[producer_id] = Verification(producer_id, epoch, sequence, adds)
        if len(self._by_producer) > MAX_VERIFICATIONS:
            del self._by_producer[next(iter(self._by_producer))]
        return one

    def appended(self, producer_id: int) -> None:
        """A batch of the transaction is in the log: from now on that says it."""
        self._by_producer.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """A marker with this epoch is in the log. In version 2 it carries the epoch of the next transaction, which may
        have been begun already."""
        one = self._by_producer.get(producer_id)
        if one is not None and not (one.adds and one.epoch == epoch):
            del self._by_producer[producer_id]
