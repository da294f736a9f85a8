"""Where `klamm consume` begins to read: `--from` as the user wrote it, and the offsets that it means.

beginning, end, an offset, -N for the last N of each partition, or a time: 2026-01-31, 2026-01-31T12:30 (with Z or an
offset from UTC, else local), 2h for two hours ago, @1767225600 for seconds or milliseconds since 1970.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.cli.units import duration_ms

if TYPE_CHECKING:
    from klamm.client import Cluster

_MILLISECONDS_FROM: Final = 100_000_000_000  # smaller numbers are seconds, until the year 5138


class Start(NamedTuple):
    """One of: a time (`at_ms`), a time before now (`ago_ms`), or an offset from one end (`tail`: from the end)."""

    offset: int | None = None
    tail: int | None = None
    at_ms: int | None = None
    ago_ms: int | None = None


BEGINNING: Final = Start(offset=0)
END: Final = Start(tail=0)


def parse_start(text: str) -> Start:
    """An argument type."""
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return BEGINNING
    if word in ("end", "latest"):
        return END
    if word.isascii() and word.isdigit():
        return Start(offset=int(word))
    if word[:1] == "-" and word[1:].isascii() and word[1:].isdigit():
        return Start(tail=int(word[1:]))
    if word[:1] == "@" and word[1:].isascii() and word[1:].isdigit():
        number = int(word[1:])
        return Start(at_ms=number if number >= _MILLISECONDS_FROM else number * 1000)
    ago = duration_ms(word)
    if ago is not None:
        return Start(ago_ms=ago)
    try:
        return Start(at_ms=round(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither beginning, end, an offset, -N, nor a time as 2026-01-31T12:30, 2h (ago), @1767225600"
        ) from None


class Plan(NamedTuple):
    """Where each partition is read from, where it ends now, and what a person should know."""

    start: dict[tuple[str, int], int]
    end: dict[tuple[str, int], int]
    remarks: list[str]


async def find_start(
    cluster: Cluster, places: Iterable[tuple[str, int]], wanted: Start, now_ms: int, *, read_committed: bool
) -> Plan:
    from klamm.client import EARLIEST, LATEST

    places = list(places)
    first: dict[tuple[str, int], int] = {
        p: o.offset for p, o in (await cluster.offsets(dict.fromkeys(places, EARLIEST))).items()
    }
    latest = await cluster.offsets(dict.fromkeys(places, LATEST), read_committed=read_committed)
    last: dict[tuple[str, int], int] = {p: o.offset for p, o in latest.items()}
    at_ms = wanted.at_ms if wanted.ago_ms is None else now_ms - wanted.ago_ms
    if at_ms is not None:
        found = await cluster.offsets(dict.fromkeys(places, max(0, at_ms)))
        start: dict[tuple[str, int], int] = {p: last[p] if at.offset < 0 else at.offset for p, at in found.items()}
        return Plan(start, last, [])
    return offsets_for(wanted, first, last)


def offsets_for(wanted: Start, first: Mapping[tuple[str, int], int], last: Mapping[tuple[str, int], int]) -> Plan:
    """A start that is no time, within what each partition has."""
    start, remarks = {}, []
    for place in first:
        at = last[place] - wanted.tail if wanted.tail is not None else wanted.offset or 0
        start[place] = min(max(at, first[place]), max(first[place], last[place]))
        if wanted.offset and start[place] != at:
            there = (
                f"has offsets from {first[place]} to {last[place] - 1}" if last[place] > first[place] else "is empty"
            )
            remarks.append(f"{place[0]}, partition {place[1]}, {there}: reading from {start[place]}, not {at}.")
    return Plan(start, dict(last), remarks)
