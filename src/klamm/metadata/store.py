"""What a metadata store is: the one interface behind which the metadata log is kept.

Today there is one, `local.LocalStore` (a file; the only node is the controller). A cluster adds another (ZooKeeper,
later perhaps a built-in quorum) and changes nothing above this line: controller and publisher know only `Store`.

The rules that every store keeps:

- entries have consecutive offsets; a follower sees each once, in order, and only when it can no longer be lost;
- an append is accepted only under the epoch that this node was last elected with, and only at the end of the log;
- an append that fails with `StoreError` may still be there after a restart, if it was not refused at once: the image
  is then made from what is in the log, never from what somebody believes to have written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import Image
from klamm.metadata.records import MetadataRecord

MAX_ENTRY_RECORDS = 200_000
"""Records in one entry. A controller keeps far below it; it bounds the work of one append."""


class Entry(NamedTuple):
    """Records that take effect together, or not at all."""

    base_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]
    encoded: Sequence[bytes] = ()
    """The records as bytes, if somebody has done that already."""

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1


class StoreError(BrokerError):
    """The store cannot take an entry; the code is for whoever asked for the change."""


class Fenced(StoreError):
    """Another controller was elected since: this node's epoch is over."""

    def __init__(self, message: str = "another controller has been elected") -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, message)


class MetadataCorrupt(Exception):
    """What is stored is damaged where it was safe once. Nothing has been changed; the message says what to do."""


class Store(Protocol):
    async def load(self) -> Image:
        """The latest image; called once, first. MetadataCorrupt if there is something that cannot be read."""

    def follow(self, replay: Callable[[Entry], None], reset: Callable[[Image], None]) -> None:
        """From now on call `replay` with every entry after the loaded image, on the loop, also those appended here.
        `reset` takes its place when entries were dropped in favour of a snapshot before this node had read them."""

    async def elect(self, node_id: int) -> int | None:
        """Try to become the controller: the new controller epoch, or None while another node is it."""

    def append(self, entry: Entry) -> asyncio.Future[None]:
        """Write an entry; done once it is durable and has been replayed. Never replays before it returns. Raises
        StoreError if the entry was refused at once, with nothing written."""

    async def register(self, node_id: int, incarnation_id: bytes, next_offset: int) -> int:
        """Announce this broker: its broker epoch, larger than that of every earlier incarnation. `next_offset` is the
        end of the log as this node knows it, which a store without sessions uses as the epoch."""

    def watch_members(self, changed: Callable[[frozenset[int]], None]) -> None:
        """Call back with the ids of the brokers that are there, now and after every change."""

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log has grown so long that a snapshot should take the place of its beginning."""

    async def snapshot(self, image: Image) -> None:
        """Keep this image and drop the entries that are in it. Appends go on meanwhile."""

    async def close(self) -> None:
        """Finish what was appended, then let go."""
