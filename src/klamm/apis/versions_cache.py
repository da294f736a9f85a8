"""ApiVersions answers in their encoded form, kept until the image changes.

Every connection begins with this request, and all clients of one kind send the same bytes: a group of a hundred members
opens two hundred connections at once, and to list all APIs anew for each took a third of the time that the group needed
to come together. The answer depends on the image, the version and the bytes of the request alone.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.metadata.image import EMPTY, Image

MAX_ANSWERS = 64
"""Kinds of clients whose answers are kept, of a kilobyte each; beyond that, all are forgotten."""
MAX_REQUEST_BYTES = 256
"""Longer requests are not worth keeping."""


class Greeting(NamedTuple):
    """What one kind of client said of itself, and the answer to it."""

    software_name: str
    software_version: str
    answer: bytes


class VersionsCache:
    __slots__ = ("_greetings", "_image")

    def __init__(self) -> None:
        self._image: Image = EMPTY  # the one that the answers are of
        self._greetings: dict[tuple[int, bytes], Greeting] = {}

    def get(self, image: Image, version: int, request: bytes) -> Greeting | None:
        if image is not self._image:
            self._image = image
            self._greetings.clear()
        return self._greetings.get((version, request))

    def put(self, version: int, request: bytes, greeting: Greeting) -> None:
        """An answer of the image that `get` was just called with."""
        if len(self._greetings) >= MAX_ANSWERS:
            self._greetings.clear()
        self._greetings[version, request] = greeting
