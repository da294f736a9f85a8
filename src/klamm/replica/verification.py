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
    """Of one producer and epoch, in one partition. `adds`: the partition is added to the transaction by the very
    request that brings the batch (transaction version 2), and the epoch is one that no earlier transaction had."""

    __slots__ = ("adds", "epoch", "lowest_sequence", "producer_id", "verified")

    def __init__(self, producer_id: int, epoch: int, sequence: int, adds: bool) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.adds = adds
        self.verified = False


class Verifications:
    """Each epoch has its own: a request under a wrong one, which the coordinator will refuse, is in nobody's way."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Verification] = {}  # by producer id and epoch

    def get(self, producer_id: int, epoch: int) -> Verification | None:
        return self._known.get((producer_id, epoch))

    def begin(self, producer_id: int, epoch: int, sequence: int, adds: bool) -> Verification:
        """A batch has come that is to be the first of its transaction here. Several may have, if one before it is still
        waiting or has failed: the lowest sequence has to be written first, or the producer could never write it."""
        one = self._known.get((producer_id, epoch))
        if one is not None:
            one.lowest_sequence = min(one.lowest_sequence, sequence)
            return one
        one = self._known[producer_id, epoch] = Verification(producer_id, epoch, sequence, adds)
        if len(self._known) > MAX_VERIFICATIONS:
            del self._known[next(iter(self._known))]
        return one

    def appended(self, producer_id: int, epoch: int) -> None:
        """A batch of the transaction is in the log: from now on that says it."""
        self._known.pop((producer_id, epoch), None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """A marker with this epoch is in the log. It is the epoch of the transaction that it ends, or the next one if
        the producer was fenced; in version 2 always the next one, under which a transaction may have begun already. To
        batches of earlier epochs the log itself says no from now on."""
        self._known.pop((producer_id, epoch - 1), None)
        one = self._known.get((producer_id, epoch))
        if one is not None and not one.adds:
            del self._known[producer_id, epoch]
