"""Times and sizes as people write and read them: `retention.ms=7d` in, `604800000 (7d)` out.

Kafka's options take plain milliseconds and bytes. What ends in `.ms` or `.bytes` may be given with a unit here, and is
sent as the number that it stands for. A text without a unit is never changed.
"""

from __future__ import annotations

import re
from typing import Final

from klamm.cli.parsing import UsageError

_TIMES: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHOWN_TIMES: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHOWN_SIZES: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)", re.IGNORECASE)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(?:iB)?", re.IGNORECASE)
_NO_LIMIT: Final = 2**63 - 1


def duration_ms(text: str) -> int | None:
    """`7d`, `1.5h`, `200ms` in milliseconds; None if it is nothing of that kind."""
    found = _TIME.fullmatch(text.strip())
    return round(float(found[1]) * _TIMES[found[2].lower()]) if found else None


def size_bytes(text: str) -> int | None:
    """`10MiB`, `10M`, `1.5g` in bytes, by powers of 1024; None if it is nothing of that kind."""
    found = _SIZE.fullmatch(text.strip())
    return round(float(found[1]) * _SIZES[found[2].lower()]) if found else None


def plain_value(name: str, text: str) -> str:
    """An option's value as Kafka takes it. UsageError for a time or a size that is none."""
    if name.endswith(".ms"):
        number, examples = duration_ms(text), "milliseconds, or a time such as 500ms, 30s, 5m, 12h, 7d"
    elif name.endswith(".bytes"):
        number, examples = size_bytes(text), "bytes, or a size such as 64K, 10M, 1G"
    else:
        return text
    if number is not None:
        return str(number)
    try:
        int(text)
    except ValueError:
        raise UsageError(f"{name}={text}: write {examples}") from None
    return text


def explained(name: str, value: str) -> str:
    """An option's value with the time or size that it stands for beside it, where that is easier to read."""
    if not value.isdecimal() or int(value) >= _NO_LIMIT:
        return value
    if name.endswith(".ms") and int(value) >= 1000:
        return f"{value} ({show_duration(int(value))})"
    if name.endswith(".bytes") and int(value) >= 1024:
        return f"{value} ({show_size(int(value))})"
    return value


def show_duration(ms: int) -> str:
    """At most two units: `7d`, `1h 30m`, `450ms`."""
    parts = []
    rest = ms
    for unit, worth in _SHOWN_TIMES:
        if rest >= worth:
            parts.append(f"{rest // worth}{unit}")
            rest %= worth
    return " ".join(parts[:2]) or f"{ms}ms"


def show_size(size: float) -> str:
    """Three digits and a binary unit: `1.05 MiB`, `12 B`."""
    for unit, worth in _SHOWN_SIZES:
        if size >= worth:
            number = size / worth
            digits = f"{number:.{_decimals(number)}f}"
            return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} {unit}"
    return f"{size:.0f} B"


def show_count(count: float) -> str:
    """Whole and grouped below a million (`123,456`), shortened above (`12.3M`)."""
    if count < 1_000_000:
        return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"
    for unit, worth in (("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if count >= worth:
            return f"{count / worth:.{_decimals(count / worth)}f}{unit}"
    raise AssertionError("a count of a million or more has a unit")


def _decimals(number: float) -> int:
    return 2 if number < 10 else 1 if number < 100 else 0
