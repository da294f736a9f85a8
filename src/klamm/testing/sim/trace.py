"""What happened, as a running hash and, if somebody wants to read it, as a list of lines.

Two runs of a seed must have the same hash. Nothing may go in that differs between two processes: no `id()`, no `hash()`
of a string, no order of a set.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

from klamm.core.env import Buffer


class Trace:
    def __init__(self, time: Callable[[], float], *, lines: list[str] | None = None) -> None:
        self.events = 0
        self.lines = lines
        self._time = time
        self._hash = hashlib.blake2b(digest_size=16)

    def note(self, node: str, kind: str, detail: str, data: Buffer = b"") -> None:
        line = f"{self._time():.9f} {node} {kind} {detail} {len(data)}:{zlib.crc32(data):08x}"
        self.events += 1
        self._hash.update(line.encode() + b"\n")
        if self.lines is not None:
            self.lines.append(line)

    def remark(self, text: str) -> None:
        """For readers only: not a part of the hash."""
        if self.lines is not None:
            self.lines.append(f"{self._time():.9f}   # {text}")

    def digest(self) -> str:
        return self._hash.hexdigest()
