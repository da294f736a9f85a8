"""Where to begin in a partition that has no position: `auto.offset.reset`, parsed. Pure.

`earliest`, `latest`, `none`, or `by_duration:` with an ISO 8601 duration (KIP-1106), as in
`by_duration:P7D` or `by_duration:PT1H30M`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from klamm.client.errors import ConfigError

_BY_DURATION: Final = "by_duration:"
_MAX_MS: Final = (1 << 63) - 1
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE)


class ResetTo(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "by_duration"
    NOTHING = "none"


class ResetPolicy(NamedTuple):
    to: ResetTo
    duration_ms: int = 0
    """How far back from now, for TIME."""

    @classmethod
    def parse(cls, text: str) -> ResetPolicy:
        """`ConfigError` if it is none."""
        lower = text.strip().lower()
        if lower.startswith(_BY_DURATION):
            return cls(ResetTo.TIME, _duration_ms(lower.removeprefix(_BY_DURATION)))
        try:
            to = ResetTo(lower)
        except ValueError:
            to = ResetTo.TIME  # without a duration it is no policy either
        if to is ResetTo.TIME:
            raise ConfigError(
                f"auto.offset.reset={text} is not known.", "It is earliest, latest, none or by_duration:PT1H, say."
            )
        return cls(to)


EARLIEST_RESET: Final = ResetPolicy(ResetTo.EARLIEST)
LATEST_RESET: Final = ResetPolicy(ResetTo.LATEST)


def _duration_ms(text: str) -> int:
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ConfigError(
            f"auto.offset.reset: {text!r} is no duration.", "Write one as ISO 8601 does: PT10M, PT1H30M, P7D."
        )
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    fraction_ms = int((found[5] or "0").ljust(9, "0")) // 1_000_000
    duration_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    if duration_ms > _MAX_MS:
        raise ConfigError(f"auto.offset.reset: {text!r} is too long ago for anybody.")
    return duration_ms
