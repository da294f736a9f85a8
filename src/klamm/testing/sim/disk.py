"""A disk in memory that forgets what was not synced, with the `Files` and `File` of `core.env` on top.

A `SimDisk` outlives the processes that use it; a `SimFiles` is one process's view of it (`disk.mount()`).
`disk.kill()` is a `kill -9`: the page cache survives whole. `disk.power_loss()` keeps only what `inode.py` says may
survive. Both fence every handle that was open: a dead process must never change the disk again, so each later use of
its handles raises `DeadIncarnation` (closing and unlocking are ignored, since `finally` blocks do them).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.env import Buffer
from klamm.testing.sim.faults import NAME, READ, SYNC, WRITE, DiskFaults
from klamm.testing.sim.inode import PAGE_BYTES, FileNode, FolderNode, Node, change_names, lose_names

_PLENTY_BYTES = 1 << 40


class DeadIncarnation(Exception):
    """Code of a process that was killed tried to touch the world. Nothing happened; nobody may rely on seeing this."""


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)  # OSError picks its own subclass, FileNotFoundError and so on


class SimDisk:
    """`observe(operation, path, data)` is told of every change; `advance(seconds)` moves the clock for slow calls."""

    def __init__(
        self,
        rng: Random | int = 0,
        *,
        observe: Callable[[str, str, Buffer], None] | None = None,
        advance: Callable[[float], None] | None = None,
    ) -> None:
        self.rng = rng if isinstance(rng, Random) else Random(rng)
        self.faults = DiskFaults()
        self.capacity_bytes: int | None = None
        self.root = FolderNode()
        self.locks: dict[int, SimLock] = {}  # by id of the locked FileNode
        self.failed_writes = 0  # how many syncs have found that something could not be written
        self._observe = observe
        self._advance = advance
        self._mounts: list[SimFiles] = []

    def mount(self) -> SimFiles:
        """A new process's view."""
        files = SimFiles(self)
        self._mounts.append(files)
        return files

    def kill(self) -> None:
        for files in self._mounts:
            files.alive = False
        self._mounts.clear()
        self.locks.clear()

    def power_loss(self) -> None:
        self.kill()
        lose_names(self.rng, self._folders())
        self._revert(self.root)
        self.make_cold()

    def make_cold(self, probability: float = 1.0) -> None:
        """Drop pages from the cache."""
        for file in self._all_files(self.root):
            file.make_cold(self.rng, probability)

    def fill(self, free_bytes: int) -> None:
        """Leave only so much room."""
        self.capacity_bytes = self.used_bytes() + free_bytes

    def make_room(self) -> None:
        self.capacity_bytes = None

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.faults = DiskFaults()
        self.make_room()

    def used_bytes(self) -> int:
        return sum(len(file.data) for file in self._all_files(self.root))

    def free_bytes(self) -> int:
        return _PLENTY_BYTES if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())

    def change(self, apply: Callable[[], None], operation: str, path: str) -> None:
        """Do one atomic change, unless a crash is due in the middle of it: then it happened or it did not."""
        crash = self.faults.crash_now()
        if crash is None or self.rng.random() < 0.5:
            apply()
            self.note(operation, path)
        if crash is not None:
            crash()
            raise DeadIncarnation(path)

    def sync_failed(self, node: Node) -> None:
        if isinstance(node, FileNode):
            node.sync_failed(self.rng)
        self.failed_writes += 1

    def note(self, operation: str, path: str, data: Buffer = b"") -> None:
        if self._observe is not None:
            self._observe(operation, path, data)

    def wait(self, seconds: float) -> None:
        if seconds and self._advance is not None:
            self._advance(seconds)

    def _folders(self) -> list[FolderNode]:
        """Every folder that is to be seen now, or would be if the changes since the last sync got lost."""
        found: dict[int, FolderNode] = {}

        def visit(folder: FolderNode) -> None:
            if id(folder) not in found:
                found[id(folder)] = folder
                nodes = [*folder.names.values(), *folder.durable.values()]
                for change in folder.unsynced:
                    for other, _, node in change.entries:
                        nodes += [other] if node is None else [other, node]
                for node in nodes:
                    if isinstance(node, FolderNode):
                        visit(node)

        visit(self.root)
        return list(found.values())

    def _revert(self, folder: FolderNode) -> None:
        folder.names = dict(folder.durable)
        for node in folder.names.values():
            if isinstance(node, FolderNode):
                self._revert(node)
            else:
                node.lose_power(self.rng)

    def _all_files(self, folder: FolderNode) -> list[FileNode]:
        files: list[FileNode] = []
        for node in folder.names.values():
            files += self._all_files(node) if isinstance(node, FolderNode) else [node]
        return files


class SimFile:
    __slots__ = ("_closed", "_disk", "_files", "_node", "_pins", "_position", "_readonly", "path")

    def __init__(self, files: SimFiles, path: str, node: FileNode, readonly: bool) -> None:
        self.path = path
        self._files = files
        self._disk = files.disk
        self._node = node
        self._readonly = readonly
        self._position = len(node.data)  # as with a real descriptor: `append` goes where this handle stands
        self._pins = 0
        self._closed = False

    def pread(self, size: int, offset: int) -> bytes:
        node = self._use()
        self._disk.faults.check(READ, self.path)
        if node.cold_pages:
            self._warm(node, offset, size)
        return bytes(node.data[offset : offset + size])

    def is_cached(self, offset: int, size: int) -> bool:
        node = self._use()
        return not (node.cold_pages and node.cold_pages.intersection(_pages(offset, size)))

    def read_ahead(self, offset: int, size: int) -> None:
        self.pread(size, offset)

    def append(self, data: Buffer) -> None:
        self._write(data, self._position, move=True)

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._write(data, offset, move=False)

    def _write(self, data: Buffer, offset: int, *, move: bool) -> None:
        """Write what is possible, as write(2) does, then raise what made it stop."""
        node, disk = self._use(writing=True), self._disk
        fits, error = len(data), None
        try:
            disk.faults.check(WRITE, self.path)
        except OSError as failure:
            fits, error = disk.rng.randint(0, fits), failure
        if disk.capacity_bytes is not None:
            missing = offset + fits - len(node.data) - disk.free_bytes()
            if missing > 0:
                fits, error = max(0, fits - missing), error or _error(errno.ENOSPC, self.path)
        crash = disk.faults.crash_now()
        if crash is not None:
            fits = disk.rng.randint(0, fits)
        if fits:
            written = memoryview(data)[:fits]
            node.write(written, offset)
            disk.note("write", self.path, written)
        if move:
            self._position += fits
        if crash is not None:
            crash()
            raise DeadIncarnation(self.path)
        disk.wait(disk.faults.write_s)
        if error is not None:
            raise error

    def size(self) -> int:
        return len(self._use().data)

    def truncate(self, size: int) -> None:
        node = self._use(writing=True)
        self._disk.faults.check(WRITE, self.path)
        self._disk.change(lambda: node.truncate(size), "truncate", self.path)
        self._position = size

    def sync(self) -> None:
        node, faults = self._use(), self._disk.faults
        self._disk.wait(faults.sync_s)
        try:
            faults.check(SYNC, self.path)
        except OSError:
            self._disk.sync_failed(node)
            raise
        if node.error is not None:
            error, node.error = node.error, None
            raise error
        if not faults.lying_sync:
            self._disk.change(node.sync, "sync", self.path)

    def fileno(self) -> int | None:
        return None

    def pin(self) -> None:
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1

    def close(self) -> None:
        self._closed = True

    def _use(self, *, writing: bool = False) -> FileNode:
        if not self._files.alive:
            raise DeadIncarnation(self.path)
        if (self._closed and self._pins <= 0) or (writing and self._readonly):
            raise _error(errno.EBADF, self.path)
        return self._node

    def _warm(self, node: FileNode, offset: int, size: int) -> None:
        cold = node.cold_pages.intersection(_pages(offset, size))
        if cold:
            node.cold_pages -= cold
            self._disk.wait(self._disk.faults.cold_read_s)


def _pages(offset: int, size: int) -> range:
    return range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES))


class SimLock:
    __slots__ = ("_files", "_node")

    def __init__(self, files: SimFiles, node: FileNode) -> None:
        self._files = files
        self._node = node  # held, so that its id stays its own

    def release(self) -> None:
        locks = self._files.disk.locks
        if self._files.alive and locks.get(id(self._node)) is self:
            del locks[id(self._node)]


class SimVolume:
    """The whole disk. A sync writes files and names in any order, so a crash in the middle leaves any part of it. What
    could not be written is reported here, and once more to the next one who syncs that file, as Linux does it."""

    __slots__ = ("_disk", "_files", "_seen")

    def __init__(self, files: SimFiles) -> None:
        self._files = files
        self._disk = files.disk
        self._seen = files.disk.failed_writes

    def can_sync(self) -> bool:
        return True

    def holds(self, path: str) -> bool:
        return self._files.exists(path)

    def sync(self) -> None:
        disk = self._disk
        if not self._files.alive:
            raise DeadIncarnation("volume")
        disk.wait(disk.faults.sync_s)
        if not disk.faults.lying_sync:
            nodes = _unsynced("", disk.root)
            disk.rng.shuffle(nodes)
            for path, node in nodes:
                self._write_back(path, node)
        if disk.failed_writes > self._seen:
            self._seen = disk.failed_writes
            raise _error(errno.EIO, "volume")

    def _write_back(self, path: str, node: Node) -> None:
        try:
            self._disk.faults.check(SYNC, path)
        except OSError as error:
            self._disk.sync_failed(node)
            if isinstance(node, FileNode):
                node.error = error
            return
        self._disk.change(node.sync, "sync", path)

    def close(self) -> None:
        pass


def _unsynced(path: str, folder: FolderNode) -> list[tuple[str, Node]]:
    found: list[tuple[str, Node]] = [(path, folder)] if folder.unsynced else []
    for name, node in folder.names.items():
        if isinstance(node, FolderNode):
            found += _unsynced(f"{path}/{name}", node)
        elif node.unsynced:
            found.append((f"{path}/{name}", node))
    return found


class SimFiles:
    """The `Files` of one process. Paths are absolute or relative to the root, which makes no difference here."""

    __slots__ = ("alive", "disk")

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.alive = True

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> SimFile:
        return SimFile(self, path, self._file(path, create=create), readonly)

    def read(self, path: str) -> bytes:
        file = self.open(path, readonly=True)
        return file.pread(file.size(), 0)

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def map(self, path: str) -> Buffer:
        return memoryview(self.read(path))

    def exists(self, path: str) -> bool:
        return self._lookup(path) is not None

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def list(self, path: str) -> list[str]:
        return sorted(self._folder(path).names)

    def make_dirs(self, path: str) -> None:
        folder = self._root()
        for name in _names(path):
            node = folder.names.get(name)
            if node is None:
                node = FolderNode()
                self._rename_all("make_dir", path, (folder, name, node))
            if not isinstance(node, FolderNode):
                raise _error(errno.ENOTDIR, path)
            folder = node

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node, replaced = source.names.get(old_name), target.names.get(new_name)
        if node is None:
            raise _error(errno.ENOENT, old)
        if node is replaced:
            return
        if isinstance(node, FolderNode) and replaced is not None:
            if not isinstance(replaced, FolderNode):
                raise _error(errno.ENOTDIR, new)
            if replaced.names:
                raise _error(errno.ENOTEMPTY, new)
        elif isinstance(replaced, FolderNode):
            raise _error(errno.EISDIR, new)
        self._rename_all("rename", f"{old} {new}", (source, old_name, None), (target, new_name, node))

    def remove(self, path: str) -> None:
        self._file(path)
        folder, name = self._parent(path)
        self._rename_all("remove", path, (folder, name, None))

    def remove_tree(self, path: str) -> None:
        node = self._lookup(path)
        if not isinstance(node, FolderNode):
            return
        for name in self.list(path):
            if isinstance(node.names[name], FolderNode):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        folder, name = self._parent(path)
        self._rename_all("remove_dir", path, (folder, name, None))

    def sync_dir(self, path: str) -> None:
        folder, faults = self._folder(path), self.disk.faults
        self.disk.wait(faults.sync_s)
        faults.check(SYNC, path)
        if not faults.lying_sync:
            self.disk.change(folder.sync, "sync_dir", path)

    def volume(self, path: str) -> SimVolume:
        self._folder(path)
        return SimVolume(self)

    def lock(self, path: str) -> SimLock | None:
        node = self._file(path, create=True)
        if id(node) in self.disk.locks:
            return None
        self.disk.locks[id(node)] = lock = SimLock(self, node)
        return lock

    def free_bytes(self, path: str) -> int:
        self._folder(path)
        return self.disk.free_bytes()

    def total_bytes(self, path: str) -> int:
        self._folder(path)
        return self.disk.used_bytes() + self.disk.free_bytes()

    def _root(self) -> FolderNode:
        if not self.alive:
            raise DeadIncarnation("files")
        return self.disk.root

    def _lookup(self, path: str) -> Node | None:
        node: Node | None = self._root()
        for name in _names(path):
            if not isinstance(node, FolderNode):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: str) -> FolderNode:
        node = self._lookup(path)
        if not isinstance(node, FolderNode):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[FolderNode, str]:
        *folders, name = _names(path)
        return self._folder("/".join(folders)), name

    def _file(self, path: str, *, create: bool = False) -> FileNode:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None and create:
            node = FileNode()
            self._rename_all("create", path, (folder, name, node))
        if not isinstance(node, FileNode):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _rename_all(self, operation: str, path: str, *entries: tuple[FolderNode, str, Node | None]) -> None:
        self.disk.faults.check(NAME, path)
        self.disk.change(lambda: change_names(*entries), operation, path)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
