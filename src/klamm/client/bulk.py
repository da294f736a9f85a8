"""Many records at once, as a caller gives them: checked, and made into columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from klamm.client.accumulator import MAX_TIMESTAMP_MS, Columns, Tell
from klamm.client.errors import ClientError
from klamm.records.record import Headers


def columns(
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    partition: int | None,
    headers: Sequence[Headers | Mapping[str, bytes | None]] | None,
    timestamps_ms: Sequence[int] | int | None,
    now_ms: int,
    tell: Tell,
) -> Columns:
    if isinstance(values, (bytes, bytearray, memoryview, str)):
        raise ClientError("send_many takes a list of values, not a single one.", "There is `send` for that.")
    listed = _listed(values)
    count = len(listed)
    times = now_ms if timestamps_ms is None else timestamps_ms
    if not isinstance(times, int):
        times = _listed(times)
    for time in (times,) if isinstance(times, int) else (min(times, default=0), max(times, default=0)):
        if not 0 <= time <= MAX_TIMESTAMP_MS:
            raise ClientError(f"A timestamp of {time} ms cannot be: they go from 0 to {MAX_TIMESTAMP_MS}.")
    found = Columns(
        listed,
        None if keys is None else _listed(keys),
        times,
        None if headers is None else [tuple(each.items()) if isinstance(each, Mapping) else each for each in headers],
        None if partition is None else [partition] * count,
        tell,
    )
    for name, column in (("keys", found.keys), ("headers", found.headers), ("timestamps_ms", times)):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ClientError(f"There are {count} values, and {len(column)} {name}.")
    return found


def _listed(column: Sequence[Any]) -> Sequence[Any]:
    """The kernel reads lists and tuples."""
    return column if isinstance(column, (list, tuple)) else list(column)
