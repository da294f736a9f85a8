"""Metadata answers in their encoded form, kept until the image changes, or a log goes offline or comes back.

Many clients ask the same, again and again: for all topics, which with ten thousand partitions takes tens of
milliseconds to put together, or for the few that they use. As long as nothing is authorized or throttled the answer
depends on the image, the logs that are offline, the version, the listener and the bytes of the request alone; so these
bytes are the key.
"""

from __future__ import annotations

from typing import TypeAlias

from klamm.metadata.image import EMPTY, Image

MAX_BYTES = 8 * 1024 * 1024
"""Of answers and requests together; beyond that, all are forgotten."""
MAX_REQUEST_BYTES = 4096
"""Longer requests are not worth keeping."""

Key: TypeAlias = tuple[int, str, bytes]
"""Version, listener, body of the request."""


class MetadataCache:
    __slots__ = ("_answers", "_bytes", "_offline_version", "image")

    def __init__(self) -> None:
        self.image: Image = EMPTY  # the one that the answers are of
        self._offline_version = 0
        self._answers: dict[Key, bytes] = {}
        self._bytes = 0

    def get(self, image: Image, offline_version: int, key: Key) -> bytes | None:
        if image is not self.image or offline_version != self._offline_version:
            self.image = image
            self._offline_version = offline_version
            self._forget()
        return self._answers.get(key)

    def put(self, key: Key, answer: bytes) -> None:
        """An answer of what `get` was just called with."""
        size = len(key[2]) + len(answer)
        if self._bytes + size > MAX_BYTES:
            self._forget()
        if size <= MAX_BYTES:
            self._answers[key] = answer
            self._bytes += size

    def _forget(self) -> None:
        self._answers.clear()
        self._bytes = 0
