"""The operating system behind the seams. Linux first; macOS works with the fallbacks marked below."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar, cast

from klamm.core.env import Buffer, Env, Lock
from klamm.core.env.children import RealProcesses
from klamm.core.env.sockets import RealNetwork
from klamm.core.env.volume import RealVolume

T = TypeVar("T")

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)  # Linux only
_PROBE_STEP_BYTES = 128 * 1024  # the kernel's default read-ahead window: what is missing is missing in such pieces
_READ_CHUNK_BYTES = 1024 * 1024


class RealClock:
    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # asked several times for each request: no frame of Python in between


class RealFile:
    __slots__ = ("_closing", "_fd", "_pins", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._pins = 0
        self._closing = False

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # a short read happens on signals and on some file systems, not only at the end
        got = len(data)
        while got < size and (more := os.pread(self._fd, size - got, offset + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def is_cached(self, offset: int, size: int) -> bool:
        if _RWF_NOWAIT is None:
            return True
        last = offset + size - 1
        probe = bytearray(1)
        try:
            for at in range(offset, last, _PROBE_STEP_BYTES):
                os.preadv(self._fd, (probe,), at, _RWF_NOWAIT)
            os.preadv(self._fd, (probe,), last, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno == errno.EOPNOTSUPP  # tmpfs and some network file systems cannot tell
        return True

    def read_ahead(self, offset: int, size: int) -> None:
        end = offset + size
        while offset < end and (got := len(os.pread(self._fd, min(_READ_CHUNK_BYTES, end - offset), offset))):
            offset += got

    def append(self, data: Buffer) -> None:
        written = os.write(self._fd, data)
        if written != len(data):
            view = memoryview(data)
            while written < len(data):
                written += os.write(self._fd, view[written:])

    def pwrite(self, data: Buffer, offset: int) -> None:
        # O_APPEND would make Linux ignore the offset, so `append` relies on the file position instead (see open).
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            view = memoryview(data)
            while written < len(data):
                written += os.pwrite(self._fd, view[written:], offset + written)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def sync(self) -> None:
        getattr(os, "fdatasync", os.fsync)(self._fd)  # macOS has no fdatasync

    def fileno(self) -> int | None:
        return self._fd

    def pin(self) -> None:
        self._pins += 1

    def unpin(self) -> None:
        self._pins -= 1
        if self._closing and not self._pins:
            self._close_now()

    def close(self) -> None:
        self._closing = True
        if not self._pins:
            self._close_now()

    def _close_now(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealFiles:
    __slots__ = ()

    file_type: ClassVar[type[RealFile]] = RealFile

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> RealFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if readonly else os.O_RDWR) | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        if not readonly:
            os.lseek(fd, 0, os.SEEK_END)
        return self.file_type(path, fd)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def map(self, path: str) -> Buffer:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""  # mmap refuses an empty file
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        try:
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def volume(self, path: str) -> RealVolume:
        return RealVolume(path)

    def lock(self, path: str) -> Lock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return RealLock(fd)

    def free_bytes(self, path: str) -> int:
        vfs = os.statvfs(path)
        return vfs.f_bavail * vfs.f_frsize

    def total_bytes(self, path: str) -> int:
        vfs = os.statvfs(path)
        return vfs.f_blocks * vfs.f_frsize


class ThreadExecutor:
    __slots__ = ("_pool", "_workers")

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None  # made at first use: start-up time is a feature

    def submit(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="klamm-io")
        return cast("asyncio.Future[T]", asyncio.get_running_loop().run_in_executor(self._pool, fn, *args))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def real_env(*, seed: int | None = None, io_threads: int = 4) -> Env:
    executor = ThreadExecutor(io_threads)
    return Env(
        clock=RealClock(),
        rng=random.SystemRandom() if seed is None else random.Random(seed),
        files=RealFiles(),
        executor=executor,
        network=RealNetwork(executor),
        processes=RealProcesses(),
    )
