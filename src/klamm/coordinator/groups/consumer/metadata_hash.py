"""One number for everything of the topics of a group that an assignment depends on (KIP-1101).

It is kept in the group's record; where it differs from what the topics give now, there is something new to assign. Only
we compare it with what we wrote, so it need not be Kafka's function: 64 bits of BLAKE2b, which the standard library
has. Racks are not part of it, because no assignor looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.metadata.image import Image

NOTHING_HASH = 0
_FORMAT = b"\x01"
"""Another one when what is hashed changes."""


def metadata_hash(topics: Iterable[str], image: Image) -> int:
    """Topics that do not exist do not count."""
    states = [state for name in sorted(topics) if (state := image.topic(name)) is not None]
    if not states:
        return NOTHING_HASH
    digest = blake2b(_FORMAT, digest_size=8)
    for state in states:
        name = state.name.encode()
        digest.update(state.id)
        digest.update(len(state.partitions).to_bytes(4, "big"))
        digest.update(len(name).to_bytes(4, "big"))
        digest.update(name)
    return int.from_bytes(digest.digest(), "big", signed=True)
