"""The only door to everything that is not the same twice.

Clocks, randomness, files, threads, child processes and sockets come in through an `Env`, so that a test can put a
simulated one in its place and replay a failure from its seed. `real.py` is the operating system; `klamm.testing.sim` is
the other one. A lint rule bans the direct calls everywhere else. This module must never do I/O itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random  # noqa: TID251 - the type; instances are made by the environments
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    def time_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""


class File(Protocol):
    """One open file. Every call may raise OSError; a failed `append` may have written a part of its data."""

    path: str

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""

    def is_cached(self, offset: int, size: int) -> bool:
        """Whether reading the range would not wait for the disk, as far as one can tell cheaply."""

    def read_ahead(self, offset: int, size: int) -> None:
        """Bring the range into the page cache. Blocks: call it through the executor."""

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end."""

    def pwrite(self, data: Buffer, offset: int) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Data and size are on the disk when this returns. Blocks: call it through the executor."""

    def fileno(self) -> int | None:
        """The descriptor for sendfile, or None where there is none (simulation)."""

    def pin(self) -> None:
        """Keep the descriptor open for a queued send, over a `close()` that comes in between."""

    def unpin(self) -> None: ...

    def close(self) -> None:
        """Closes now, or when the last pin is gone. Closing twice is fine."""


class FileRange(NamedTuple):
    """Bytes of a file that a response carries without copying them. Whoever queues one pins the file."""

    file: File
    offset: int
    size: int


Part: TypeAlias = Buffer | FileRange
"""A piece of a response on its way out."""


class Lock(Protocol):
    def release(self) -> None: ...


class Volume(Protocol):
    """The file system that a folder is on, watched from the moment this was made."""

    def can_sync(self) -> bool:
        """Whether `sync` is there, and can be relied on. May block for a moment."""

    def holds(self, path: str) -> bool:
        """Whether this file or folder is on it: a link may lead elsewhere."""

    def sync(self) -> None:
        """All that was written and all names that were changed before this call, in whatever file and by whomever, are
        on the disk when it returns. OSError if a write to any file has failed since the volume was made or last synced:
        syncing single files tells which. Blocks."""

    def close(self) -> None: ...


class Files(Protocol):
    """Paths are plain strings. A new, renamed or removed name is durable only after `sync_dir` of its folder."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        """FileNotFoundError unless `create`. An existing file keeps its content."""

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replace the file by one with this content: after a crash it is the old or the new one, whole and durable."""

    def map(self, path: str) -> Buffer:
        """The file's content as a read-only buffer (mmap where there is one). Drop all references to unmap."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def make_dirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove one file. FileNotFoundError if it is not there."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all below it; one that is not there is fine."""

    def sync_dir(self, path: str) -> None: ...

    def volume(self, path: str) -> Volume:
        """The file system of this folder."""

    def lock(self, path: str) -> Lock | None:
        """Take the exclusive lock of this file (created if needed), or None if another process holds it.
        A lock dies with its process."""

    def free_bytes(self, path: str) -> int: ...
    def total_bytes(self, path: str) -> int:
        """The size of the file system that the path is on."""


class Executor(Protocol):
    def submit(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a blocking function off the loop. The future belongs to the running loop."""

    def close(self) -> None: ...


class ChildFailed(Exception):
    """A child process ended before its work did, or its work raised. The text is for people; `errno` is that of the
    OSError it was, if it was one."""

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno


class Child(Protocol):
    """Work that was handed to a child process: a generator, which goes on whenever somebody asks for its next item."""

    async def next(self) -> Any:
        """The next item; None at the end (the work itself must not yield None). ChildFailed if there is none to come,
        because it was stopped for one. One call at a time."""

    async def stop(self) -> None:
        """End it wherever it is, as a kill would: what it has done stays done. Stopping twice is fine."""


class Processes(Protocol):
    async def start(self, work: Callable[..., Iterator[Any]], *args: Any) -> Child:
        """Have a module's generator function run in a process of its own, with another core and another interpreter.
        Arguments and items are pickled. Nothing runs before the first `next`."""


class Sender(Protocol):
    """The sending side of one connection, with a queue of its own. All calls on the loop."""

    def send(self, parts: Sequence[Part]) -> None:
        """Send, or queue, the parts in order. Buffers must not change afterwards; files are pinned while queued."""

    @property
    def queued_bytes(self) -> int:
        """What the peer has not taken yet."""

    def close(self) -> None:
        """Drop what is queued and let go of the socket."""


class Tls(NamedTuple):
    """How a connection is protected: keys and rules, and the name that the peer's certificate should have."""

    context: SSLContext
    server_name: str


class Listener(Protocol):
    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting; open connections go on."""


class Network(Protocol):
    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, backlog: int = 1024
    ) -> Listener:
        """Accept connections; port 0 takes a free one."""

    async def resolve(self, host: str, *, canonical: bool = False) -> list[str]:
        """The addresses of a host, or with `canonical` the full names that these have. OSError if there are none."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, tls: Tls | None = None
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        """OSError (of which `ssl.SSLError` is one) if it cannot be done."""

    def sender(
        self, transport: asyncio.Transport, on_progress: Callable[[], None], on_error: Callable[[OSError], None]
    ) -> Sender:
        """The fastest way to send on this connection. `on_progress` is called whenever queued bytes have left;
        `on_error` once, when the peer is gone."""


class Env:
    """One node's environment. Plain attributes: nothing here changes after it is made."""

    __slots__ = ("clock", "executor", "files", "network", "processes", "rng")

    def __init__(
        self,
        clock: Clock,
        rng: Random,
        files: Files,
        executor: Executor,
        network: Network,
        processes: Processes | None = None,
    ) -> None:
        """Without `processes`, what would be a child's work is the executor's, an item at a time: in a simulation,
        where processes would not be the same twice."""
        self.clock = clock
        self.rng = rng
        self.files = files
        self.executor = executor
        self.network = network
        self.processes = processes or _NoProcesses(executor)

    def uuid(self) -> bytes:
        """A random (version 4) uuid as its 16 bytes."""
        raw = bytearray(self.rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)


class _NoProcesses:
    __slots__ = ("_executor",)

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def start(self, work: Callable[..., Iterator[Any]], *args: Any) -> Child:
        return _Steps(self._executor, work(*args))


class _Steps:
    """A generator that runs in the executor, from item to item."""

    __slots__ = ("_executor", "_job", "_stopped", "_work")

    def __init__(self, executor: Executor, work: Iterator[Any]) -> None:
        self._executor = executor
        self._work = work
        self._job: asyncio.Future[Any] | None = None
        self._stopped = False

    async def next(self) -> Any:
        if self._stopped:
            raise ChildFailed("stopped")
        self._job = self._executor.submit(next, self._work, None)
        try:
            return await self._job
        except OSError as error:
            raise ChildFailed(str(error), error.errno) from error
        finally:
            self._job = None

    async def stop(self) -> None:
        """It cannot be killed in mid-step, so that step is waited for."""
        self._stopped = True
        if self._job is not None:
            await asyncio.wait([self._job])
