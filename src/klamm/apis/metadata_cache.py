"""The full Metadata answer, encoded once for all who ask.

Many clients ask for all topics, and with ten thousand partitions one such answer takes tens of milliseconds to build.
It depends on the image, the version and the listener alone, as long as nothing is authorized, throttled or asked for
beside it; so it is kept until the image changes.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.apis.api import Encoded
from klamm.metadata.image import Image

MAX_ENTRIES = 64  # versions in use times listeners; more than that means somebody plays with versions


class MetadataCache:
    __slots__ = ("_answers", "_image")

    def __init__(self) -> None:
        self._image: Image | None = None
        self._answers: dict[tuple[int, str], Encoded] = {}

    def get(self, image: Image, version: int, listener: str, encode: Callable[[], bytes]) -> Encoded:
        """The answer for this image, made by `encode` the first time."""
        if image is not self._image:
            self._image = image
            self._answers.clear()
        key = (version, listener)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= MAX_ENTRIES:
                self._answers.clear()
            answer = self._answers[key] = Encoded(encode())
        return answer
