"""Child processes: a generator function of ours that runs in an interpreter of its own, item by item.

The parent writes down a pipe what to run and then a byte for each item it wants; the child answers each with one
pickled message. So nothing runs ahead of the parent, which can slow its child down, or end it, between any two items.
A child dies with its parent (on Linux at once, elsewhere at its next item) and gives way to it: it is the one to wait
where both want a core. Python's own `multiprocessing` would fork a process with threads in it, or start another server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from struct import Struct
from typing import Any, BinaryIO, Final

from klamm.core.env import Child, ChildFailed

MAX_MESSAGE_BYTES: Final = 256 << 20
NICENESS: Final = 10  # how far behind the broker a child stands in the line for a core

_length = Struct(">Q")
_GO_ON: Final = b"+"
_PR_SET_PDEATHSIG: Final = 1


class RealProcesses:
    __slots__ = ()

    async def start(self, work: Callable[..., Iterator[Any]], *args: Any) -> Child:
        import pickle  # here and below: a broker that compacts nothing need not have it

        command = pickle.dumps((work.__module__, work.__qualname__, args))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, str(os.getpid()), stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ChildFailed(f"no child process can be started: {error}", error.errno) from error
        assert process.stdin is not None
        process.stdin.write(_length.pack(len(command)) + command)
        return _RealChild(process)


class _RealChild:
    __slots__ = ("_process",)

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def next(self) -> Any:
        import pickle

        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(_GO_ON)
            await process.stdin.drain()
            (length,) = _length.unpack(await process.stdout.readexactly(_length.size))
            if length > MAX_MESSAGE_BYTES:
                raise ChildFailed(f"a child process answered with {length} bytes")
            kind, content = pickle.loads(await process.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):  # the last one if its pipe is closed
            await process.wait()
            raise ChildFailed(f"a child process ended with status {process.returncode}") from None
        if kind == "failed":
            raise ChildFailed(*content)
        return content

    async def stop(self) -> None:
        process = self._process
        if process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                pass
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """The child."""
    import pickle

    os.nice(NICENESS)
    _die_with(int(sys.argv[1]))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get among the messages
    module, name, args = pickle.loads(source.read(*_length.unpack(source.read(_length.size))))
    work: Iterator[Any] = getattr(import_module(module), name)(*args)
    while source.read(1) == _GO_ON:
        try:
            message = ("item", next(work, None))
        except Exception as error:  # noqa: BLE001 - it is for whoever asked
            text = str(error) if isinstance(error, OSError) else repr(error)
            message = ("failed", (text, getattr(error, "errno", None)))
        _send(sink, message)


def _send(sink: BinaryIO, message: object) -> None:
    import pickle

    data = pickle.dumps(message)
    sink.write(_length.pack(len(data)) + data)
    sink.flush()


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        sys.exit(1)


if __name__ == "__main__":
    main()
