"""Durations, counted in buckets that double: bucket n has those below 2**n microseconds, and at least half of that.

Finding the bucket is one bit length, so that the hot path can afford it (`Route.answered` does it in place). The
buckets are exact counts, not samples. Nothing here knows what is measured or who will read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BUCKETS = 64
"""More than any clock can fill: the last one begins at 146,000 years."""
_SHOWN = range(4, 28)
"""What is worth a line each: from 16 us, below which the loop's own noise begins, to 134 s."""


class Histogram:
    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[int(seconds * 1_000_000).bit_length()] += 1
        self.total_s += seconds


def cumulative(counts: Sequence[int]) -> Iterator[tuple[float, int]]:
    """Pairs of an upper bound in seconds and how many durations are below it; without the last, which has them all."""
    below = sum(counts[: _SHOWN.start])
    for n in _SHOWN:
        below += counts[n]
        yield (1 << n) / 1_000_000, below
