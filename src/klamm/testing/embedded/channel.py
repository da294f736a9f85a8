"""The control channel between a test and its broker: one JSON object for each line, a question and its answer in turn.

The channel is a socket pair that the child is born with. It is also how the child knows that the parent is there: when
the parent's end is closed, by whatever kind of death, the child ends too.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, NamedTuple

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A whole answer; `records` is the only one that is ever more than a few hundred bytes."""


class BrokerGone(RuntimeError):
    """The broker's process has ended, or does not answer any more."""


class Order(NamedTuple):
    """What a child is to do: the first line of the channel."""

    parent: int
    folder: str  # where the log file is; removed with everything in it when the parent dies
    data: str
    keep: bool  # the data is somebody's own: stop cleanly, remove nothing
    host: str
    port: int
    options: dict[str, str]
    log_level: str


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Any:
    return json.loads(line)


class Channel:
    """The parent's end. Any thread may call; one waits for the other.

    Questions have numbers: whoever was interrupted while waiting (Ctrl-C, a test's own time limit) leaves an answer
    behind that is not the next one's.
    """

    def __init__(self, sock: socket.socket, order: Order) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._received = bytearray()
        self._last = 0
        sock.sendall(encode(order._asdict()))  # waits in the socket until there is a child to read it

    def call(self, command: str, timeout_s: float, **arguments: object) -> Any:
        """What the broker answers. ValueError if it says that the question makes no sense."""
        with self._lock:
            self._last += 1
            try:
                self._sock.sendall(encode({"id": self._last, "command": command, "arguments": arguments}))
            except OSError as error:
                raise BrokerGone(f"the broker does not listen any more ({error.strerror})") from None
            return self._answer(timeout_s)

    def unasked(self, timeout_s: float) -> Any:
        """What the broker says by itself when it starts: its process id; then its address, or why there is none."""
        with self._lock:
            return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Any:
        self._sock.settimeout(timeout_s)
        while True:
            answer = decode(self._line(timeout_s))
            if answer["id"] == self._last:
                break
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["ok"]

    def _line(self, timeout_s: float) -> bytes:
        received = self._received
        looked_at = 0
        while (end := received.find(b"\n", looked_at)) < 0:
            looked_at = len(received)
            try:
                data = self._sock.recv(65536)
            except TimeoutError:
                raise BrokerGone(f"the broker has not answered for {timeout_s:g} s") from None
            except OSError as error:
                raise BrokerGone(f"the broker is gone ({error.strerror})") from None
            if not data or looked_at > MAX_LINE_BYTES:
                raise BrokerGone("the broker has ended")
            received += data
        line = bytes(received[:end])
        del received[: end + 1]
        return line

    def close(self) -> None:
        self._sock.close()
