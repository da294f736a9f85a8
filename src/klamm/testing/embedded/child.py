"""The broker's own process: what the parent starts, or the nursery forks.

    python -c "... main(FD)"

FD is its end of the control channel, whose first line says what to do. It makes its folder, and only then watches its
parent: so there is no moment at which the parent could die and leave a folder that nobody removes. The broker is the
real one, with two things of its own: a clock that a test can move, and files that are not synced.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from klamm.testing.embedded.channel import MAX_LINE_BYTES, Order, decode, encode
from klamm.testing.embedded.folder import LOG_NAME, make
from klamm.testing.embedded.guard import Guard

if TYPE_CHECKING:
    from klamm.testing.embedded.control import Control

_WANTED_FILES = 65_536
_FEWEST_SEGMENTS = 32


def main(fd: int) -> NoReturn:
    """One broker, until the parent says stop or is gone."""
    for number in (signal.SIGINT, signal.SIGHUP):  # for the parent's terminal; the parent will tell us
        signal.signal(number, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    order = _read_order(sock)
    _move_in(order, sock)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def stop_soon() -> None:
        loop.call_soon_threadsafe(stop.set)

    guard = Guard(order, fd, stop_soon)
    code = 1
    try:
        code = loop.run_until_complete(_serve(order, sock, stop, guard.making))
    except BaseException:  # noqa: BLE001 - there is nobody above us: into the log with it
        sys.excepthook(*sys.exc_info())
    guard.exit(code)


def _read_order(sock: socket.socket) -> Order:
    """The first line. Read byte by byte: what follows belongs to the loop. It is there before we are."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            os._exit(0)
        line += byte
    return Order(**decode(bytes(line)))


def _move_in(order: Order, sock: socket.socket) -> None:
    """Make the folder, log to a file in it, and tell the parent."""
    try:
        make(order.folder)
        log = os.open(f"{order.folder}/{LOG_NAME}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _send(sock, encode({"id": 0, "error": f"{order.folder} cannot be made: {error.strerror}"}))
        os._exit(2)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _send(sock, encode({"id": 0, "ok": os.getpid()}))


def _send(sock: socket.socket, line: bytes) -> None:
    try:
        sock.sendall(line)
    except OSError:  # the parent is gone: the guard will see to it
        pass


async def _serve(order: Order, sock: socket.socket, stop: asyncio.Event, making: threading.Lock) -> int:
    from klamm.core.options import OptionError
    from klamm.server.logging import configure
    from klamm.server.node import Node, StartError
    from klamm.testing.embedded.control import Control, GuardedFiles, ShiftedClock, options_of

    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_LINE_BYTES)
    configure(order.log_level)
    clock = ShiftedClock()
    try:
        from klamm.core.env.unsynced import unsynced_env

        options = options_of(order)
        env = unsynced_env(clock, io_threads=options.get_int("num.io.threads"), files=GuardedFiles(making))
        node = Node(env, order.data, options, max_open_segments=max(_FEWEST_SEGMENTS, _raise_file_limit() // 4))
        loop.set_exception_handler(node.on_loop_error)
        await node.start()
    except (StartError, OptionError) as error:
        writer.write(encode({"id": 0, "error": str(error)}))
        await writer.drain()
        return 2
    gc.collect()
    gc.freeze()
    writer.write(encode({"id": 0, "ok": node.addresses[0]}))
    control = Control(node, clock)
    talk = loop.create_task(_talk(control, reader, writer, stop))
    failed = loop.create_task(node.failed())
    stopped = loop.create_task(stop.wait())
    await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
    await control.faults.clear()
    await node.stop()
    env.executor.close()
    if talk.done() and (number := talk.result()):
        writer.write(encode({"id": number, "ok": None}))
        await writer.drain()
    return 1 if failed.done() else 0


async def _talk(
    control: Control, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stop: asyncio.Event
) -> int:
    """Answer the parent's questions, one after the other, up to `stop`, whose number is returned: its answer comes
    later. That the parent has gone is the guard's business."""
    while line := await reader.readline():
        question = decode(line)
        number, command = question["id"], question["command"]
        if command == "stop":
            stop.set()
            return int(number)
        try:
            answer = {"id": number, "ok": await control.do(command, question["arguments"])}
        except ValueError as error:
            answer = {"id": number, "error": str(error)}
        writer.write(encode(answer))
        await writer.drain()
    return 0


def _raise_file_limit() -> int:
    """Ask for as many open files as this user may have; how many that are, as far as they are of use."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    try:
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS refuses more than its own maximum
        return soft
    return wanted
