"""A broker as a process of its own, from before its spawn to after its end, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY = re.compile(r"is ready: \S*?:(\d+)")
LOOP_LAG = re.compile(r"loop lag max_ms=([0-9.]+)")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 120
LISTENING = "0A"  # in /proc/net/tcp
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Broken(Exception):
    """A measurement that could not be made; the sentence says why."""


def pinned_to(*cores: int) -> Any:
    """For Popen: run the child on these cores only, where the system can (Linux)."""
    if not hasattr(os, "sched_setaffinity") or not set(cores) <= os.sched_getaffinity(0):
        return None
    return lambda: os.sched_setaffinity(0, set(cores))


def first_answer(port: int) -> socket.socket:
    """Connect, ask for the API versions (v0), read the answer; the connection stays open."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(API_VERSIONS)
    (left,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    while left > 0:
        piece = connection.recv(left)
        if not piece:
            raise Broken("the broker closed a connection that asked for its API versions")
        left -= len(piece)
    return connection


def free_port() -> int:
    """Free a moment ago; whoever is told of it may still lose the race."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Broker:
    """A running process that speaks Kafka's protocol on `port`."""

    name = "a broker"

    def __init__(self, command: Sequence[str], cores: Sequence[int], port: int = 0) -> None:
        self.port = port
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.spawned = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=pinned_to(*cores)
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self.line_came(line)
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def line_came(self, line: str) -> None:
        """For those who learn something from what the process prints."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wait_for_answer(self) -> float:
        """Ask again and again until there is an answer; returns the seconds since the spawn."""
        while self.process.poll() is None and time.perf_counter() - self.spawned < START_TIMEOUT_S:
            with contextlib.suppress(OSError, struct.error):
                first_answer(self.port).close()
                answered = time.perf_counter() - self.spawned
                if self.listens():
                    return answered
            time.sleep(0.002)
        raise Broken(f"{self.name} did not get ready: " + " / ".join(self.lines[-5:]))

    def listens(self) -> bool:
        """Whether it is this process that has the port, and not somebody who was quicker to take it."""
        sockets = set()
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}") as lines:
                for fields in (line.split() for line in lines):
                    if fields[3] == LISTENING and fields[1].endswith(f":{self.port:04X}"):
                        sockets.add(f"socket:[{fields[9]}]")
        folder = f"/proc/{self.process.pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # it may have been closed
                if os.readlink(f"{folder}/{name}") in sockets:
                    return True
        return False

    def resident_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as status:
            found = re.search(r"VmRSS:\s+(\d+) kB", status.read())
        if not found:
            raise Broken(f"{self.name} has ended: " + " / ".join(self.lines[-5:]))
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> float:
        """SIGTERM; returns the seconds it took to end."""
        start = time.perf_counter()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"{self.name} did not stop in {STOP_TIMEOUT_S} s") from None
        if code not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise Broken(f"{self.name} ended with code {code}: " + " / ".join(self.lines[-5:]))
        return time.perf_counter() - start

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Klamm(Broker):
    """One `klamm start`, with the options given and defaults for the rest."""

    name = "Klamm"
    ready_s = 0.0  # from the spawn to the line that says ready

    def __init__(self, data: Path, cores: Sequence[int], port: int = 0, settings: Sequence[str] = ()) -> None:
        command = [str(Path(sys.executable).parent / "klamm"), "start"]
        command += ["--data", str(data), "--listen", f"127.0.0.1:{port}"]
        for setting in settings:
            command += ["--set", setting]
        super().__init__(command, cores, port)

    def line_came(self, line: str) -> None:
        found = READY.search(line)
        if found and not self.port:
            self.port = int(found[1])

    def wait_for_port(self) -> None:
        """Until it says that it is ready, and where."""
        with self._news:
            self._news.wait_for(lambda: self.port or self.process.poll() is not None, START_TIMEOUT_S)
        if not self.port:
            self.kill()
            raise Broken("the broker did not get ready: " + " / ".join(self.lines[-5:]))
        self.ready_s = time.perf_counter() - self.spawned

    def loop_lag_ms(self) -> float | None:
        """The longest the loop was late since the last time we asked, if this broker says so on SIGUSR1."""
        with open(f"/proc/{self.process.pid}/status") as status:
            caught = re.search(r"SigCgt:\s+([0-9a-f]+)", status.read())
        if not caught or not int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1:
            return None  # it would end the process
        with self._news:
            seen = len(self.lines)
            self.process.send_signal(signal.SIGUSR1)
            self._news.wait_for(lambda: any(LOOP_LAG.search(line) for line in self.lines[seen:]), timeout=5)
            found = [float(m[1]) for line in self.lines[seen:] if (m := LOOP_LAG.search(line))]
        return max(found, default=None)
