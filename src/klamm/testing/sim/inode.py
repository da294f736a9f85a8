"""What the simulated disk consists of: files and folders, each as the process sees it and as the platter has it.

`SimDisk` does the paths and the handles. This module knows only which bytes and names survive a power loss. It must
never be more generous than a real disk is allowed to be: what was not synced may be lost, torn or reordered.
"""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; the world makes the instance
from typing import NamedTuple, TypeAlias

from klamm.core.env import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096


class Write(NamedTuple):
    offset: int
    data: bytes


class Truncate(NamedTuple):
    size: int


Change: TypeAlias = Write | Truncate


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, Write):
        if change.offset > len(content):
            content.extend(bytes(change.offset - len(content)))
        content[change.offset : change.offset + len(change.data)] = change.data
    elif change.size < len(content):
        del content[change.size :]
    else:
        content.extend(bytes(change.size - len(content)))


class FileNode:
    """One file: `data` is what reads see, `durable` what is on the disk, `unsynced` the way from there to here."""

    __slots__ = ("cold_pages", "data", "durable", "error", "unsynced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Change] = []
        self.error: OSError | None = None  # of a write that failed, and that nobody who syncs this file was told of
        self.cold_pages: set[int] = set()  # only membership is asked, so its order does not matter

    def write(self, data: Buffer, offset: int) -> None:
        self._change(Write(offset, bytes(data)))

    def truncate(self, size: int) -> None:
        self._change(Truncate(size))

    def _change(self, change: Change) -> None:
        _apply(self.data, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def sync_failed(self, rng: Random) -> None:
        """As Linux does it: the pages count as clean afterwards, so the next sync succeeds without writing them."""
        self.durable = self._survivors(rng)
        self.unsynced.clear()

    def lose_power(self, rng: Random) -> None:
        self.durable = self._survivors(rng)
        self.unsynced.clear()
        self.error = None
        self.data = bytearray(self.durable)

    def make_cold(self, rng: Random, probability: float) -> None:
        pages = range(-(-len(self.data) // PAGE_BYTES))
        self.cold_pages = {page for page in pages if rng.random() < probability}

    def _survivors(self, rng: Random) -> bytearray:
        """One of the contents that the disk may be left with. Sizes are journalled, so a prefix of the changes of
        size survives (the last of them in part); sectors go to the disk in any order, each in any of its versions."""
        content = bytearray(self.durable)
        changes = self.unsynced
        if not changes:
            return content
        luck = rng.random()
        if luck < 0.15:  # nothing made it
            return content
        if luck < 0.3:  # everything did
            sizes_kept, versions = len(changes), None
        elif luck < 0.6:  # an append that stopped somewhere
            sizes_kept, versions = rng.randrange(len(changes)), None
        else:
            sizes_kept = rng.randint(0, len(changes))
            versions = self._versions(rng, rng.choice((0.1, 0.5, 0.9)))
        size = self._surviving_size(rng, sizes_kept)
        for i, change in enumerate(changes):
            if isinstance(change, Truncate):
                if i >= sizes_kept:  # what was written after a truncation that never happened is in no block of ours
                    break
                _apply(content, change)
            elif versions is not None:
                _apply_sectors(content, change, i, versions)
            elif i <= sizes_kept:
                _apply(content, change)
        _apply(content, Truncate(size))
        return content

    def _versions(self, rng: Random, keep: float) -> dict[int, int]:
        """For each sector that was written, the index of the last change that reached it; -1 for none."""
        history: dict[int, list[int]] = {}
        for i, change in enumerate(self.unsynced):
            if isinstance(change, Write):
                first, end = change.offset, change.offset + len(change.data)
                for sector in range(first // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
                    history.setdefault(sector, [-1]).append(i)
        return {
            sector: indexes[-1] if rng.random() < keep else rng.choice(indexes) for sector, indexes in history.items()
        }

    def _surviving_size(self, rng: Random, sizes_kept: int) -> int:
        size = len(self.durable)
        for change in self.unsynced[:sizes_kept]:
            size = change.size if isinstance(change, Truncate) else max(size, change.offset + len(change.data))
        if sizes_kept < len(self.unsynced):
            change = self.unsynced[sizes_kept]
            if isinstance(change, Write):
                size = rng.randint(size, max(size, change.offset + len(change.data)))
        return size


def _apply_sectors(content: bytearray, write: Write, index: int, versions: dict[int, int]) -> None:
    end = write.offset + len(write.data)
    for sector in range(write.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
        if versions[sector] >= index:
            first = max(write.offset, sector * SECTOR_BYTES)
            last = min(end, (sector + 1) * SECTOR_BYTES)
            _apply(content, Write(first, write.data[first - write.offset : last - write.offset]))


Node: TypeAlias = "FileNode | FolderNode"


class NameChange(NamedTuple):
    """One atomic change of names, in one folder or (a rename) in two: what each name stands for afterwards."""

    entries: tuple[tuple[FolderNode, str, FileNode | FolderNode | None], ...]

    def folders(self) -> list[FolderNode]:
        return [folder for folder, _, _ in self.entries]


class FolderNode:
    """One folder: `names` as the process sees it, `durable` as the disk has it, `unsynced` what lies between."""

    __slots__ = ("durable", "names", "unsynced")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.unsynced: list[NameChange] = []

    def sync(self) -> None:
        while self.unsynced:
            _commit(self.unsynced[0])


def change_names(*entries: tuple[FolderNode, str, Node | None]) -> None:
    change = NameChange(entries)
    for folder, name, node in entries:
        _put(folder.names, name, node)
    for folder in _distinct(change.folders()):
        folder.unsynced.append(change)


def lose_names(rng: Random, folders: list[FolderNode]) -> None:
    """A prefix of every folder's changes survives; a change of two folders survives in both or in neither."""
    keep = {id(folder): rng.choice((0, rng.randint(0, n), n)) for folder in folders if (n := len(folder.unsynced))}
    shrunk = True
    while shrunk:
        shrunk = False
        for folder in folders:
            for i, change in enumerate(folder.unsynced[: keep.get(id(folder), 0)]):
                if any(_index(other, change) >= keep.get(id(other), 0) for other in change.folders()):
                    keep[id(folder)] = i
                    shrunk = True
                    break
    for folder in folders:
        del folder.unsynced[keep.get(id(folder), 0) :]
    for folder in folders:
        folder.sync()


def _commit(change: NameChange) -> None:
    """Make a change durable, and what came before it in the folders that it touches."""
    for folder in _distinct(change.folders()):
        while folder.unsynced and folder.unsynced[0] is not change:
            _commit(folder.unsynced[0])
    for folder, name, node in change.entries:
        _put(folder.durable, name, node)
    for folder in _distinct(change.folders()):
        assert folder.unsynced[0] is change
        del folder.unsynced[0]


def _put(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _index(folder: FolderNode, change: NameChange) -> int:
    for i, other in enumerate(folder.unsynced):
        if other is change:
            return i
    raise AssertionError("a change that its folder does not know")


def _distinct(folders: list[FolderNode]) -> list[FolderNode]:
    return folders[:1] if len(folders) == 1 or folders[0] is folders[1] else folders
