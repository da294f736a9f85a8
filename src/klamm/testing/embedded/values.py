"""What a test gives and gets: option values, error names, records."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from klamm.core.errors import ErrorCode

OptionValue: TypeAlias = str | int | float | Sequence[str]
"""What an option may be given as; True and False too."""


class StoredRecord(NamedTuple):
    """One record as the broker keeps it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def from_json(
        cls,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: str | None,
        value: str | None,
        headers: list[tuple[str, str | None]],
    ) -> StoredRecord:
        named = tuple((name, _bytes(content)) for name, content in headers)
        return cls(partition, offset, timestamp_ms, _bytes(key), _bytes(value), named)


def dotted(name: str) -> str:
    return name.replace("_", ".")


def option_text(value: OptionValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(value)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def error_code(error: ErrorCode | str | int) -> int:
    if not isinstance(error, str):
        return int(error)
    try:
        return ErrorCode[error.upper()]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(error.upper(), ErrorCode.__members__, n=1)
        raise ValueError(f"{error} is no error of Kafka's" + (f"; did you mean {near[0]}?" if near else "")) from None
