"""What the benchmark's sections stand on: building the C tools, a broker on one core, tools on another.

Broker and peer run on the first core, whoever loads them on the second, so that ratios compare like with like.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
BIN = BENCH / "bin"
OUT = BENCH / "out"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow"]
TOOLS = {
    "bare": (["bare.c", "common.c"], []),
    "raw": (["raw.c", "kafka.c", "common.c"], []),
    "load": (["load.c", "common.c"], ["-lrdkafka"]),
}
READY = re.compile(r"is ready: \S*?:(\d+)")
LOOP_LAG = re.compile(r"loop lag max_ms=([0-9.]+)")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 120
TOOL_TIMEOUT_S = 900


class Broken(Exception):
    """A measurement that could not be made; the sentence says why."""


def build() -> set[str]:
    """Compile what is not there or older than its sources. Returns the tools that exist; `load` needs librdkafka."""
    if sys.platform != "linux":
        raise Broken("the benchmark needs Linux: it pins processes to cores and reads their memory from /proc")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Broken("no C compiler: install one (Debian: gcc), or name it in CC")
    BIN.mkdir(exist_ok=True)
    built = set()
    newest = max(path.stat().st_mtime for path in BENCH.glob("*.[ch]"))
    for name, (sources, libraries) in TOOLS.items():
        target = BIN / name
        if not target.exists() or target.stat().st_mtime < newest:
            command = [compiler, *FLAGS, "-o", str(target), *(str(BENCH / source) for source in sources), *libraries]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0 and name == "load" and "rdkafka" in run.stderr:
                print("librdkafka's headers are missing (Debian: librdkafka-dev): only the raw client is measured")
                continue
            if run.returncode != 0:
                raise Broken(f"{name} does not compile:\n{run.stderr}")
        built.add(name)
    return built


def pinned_to(core: int) -> Any:
    """For Popen: run the child on this core only, where the system can (Linux)."""
    if not hasattr(os, "sched_setaffinity") or core not in os.sched_getaffinity(0):
        return None
    return lambda: os.sched_setaffinity(0, {core})


class Bench:
    """The settings of a run, and its processes."""

    def __init__(self, *, rounds: int, scale: float, broker_core: int, client_core: int, folder: Path | None) -> None:
        self.rounds = rounds
        self.scale = scale
        self.broker_core = broker_core
        self.client_core = client_core
        self.folder = folder or OUT
        self.tools = build()

    def scaled(self, count: float) -> int:
        return max(1, int(count * self.scale))

    def tool(self, name: str, mode: str, **options: object) -> dict[str, Any]:
        """Run a tool on the clients' core and return its line of results."""
        command = [str(BIN / name), mode]
        for option, value in options.items():
            command += ["--" + option.replace("_", "-"), str(value)]
        run = subprocess.run(
            [*command, "--timeout", str(TOOL_TIMEOUT_S - 10)],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            preexec_fn=pinned_to(self.client_core),
            check=False,
        )
        if run.returncode != 0:
            raise Broken(f"{name} {mode} failed: {run.stderr.strip()}")
        result: dict[str, Any] = json.loads(run.stdout)
        return result

    def settle(self, bytes_to_come: float = 0) -> None:
        """Between measurements: what was written goes to the disk now, not during the next one, and the pages that
        the next one will write to are there."""
        os.sync()
        if bytes_to_come:
            self.tool("bare", "warm", bytes=int(bytes_to_come * 1.2))

    @contextlib.contextmanager
    def data_folder(self) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="data-", dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def broker(self, data: Path | None = None) -> Iterator[Broker]:
        """A running broker, with a data folder of its own unless one is given."""
        with contextlib.ExitStack() as stack:
            broker = Broker(data or stack.enter_context(self.data_folder()), self.broker_core)
            try:
                yield broker
                broker.stop()
            finally:
                broker.kill()

    @contextlib.contextmanager
    def peer(self, mode: str, file: Path) -> Iterator[str]:
        """The bare sink or source on the broker's core; gives its address."""
        process = subprocess.Popen(
            [str(BIN / "bare"), mode, "--file", str(file), "--timeout", str(6 * 3600)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=pinned_to(self.broker_core),
        )
        assert process.stdin and process.stdout
        try:
            yield f"127.0.0.1:{int(process.stdout.readline().split()[1])}"
        finally:
            process.stdin.close()  # which ends it
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


class Broker:
    """One `klamm start`, from before its spawn to after its end."""

    def __init__(self, data: Path, core: int) -> None:
        self.data = data
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._news = threading.Condition()
        self.spawned = time.perf_counter()
        command = [str(Path(sys.executable).parent / "klamm"), "start", "--data", str(data), "--listen", "127.0.0.1:0"]
        # A deleted topic's pages go at once, as those of the peer's file do. Kept for a minute, they would be written
        # to the disk during the next measurements.
        command += ["--set", "log.segment.delete.delay.ms=0"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=pinned_to(core),
        )
        self.port = 0
        threading.Thread(target=self._read, daemon=True).start()
        if not self._ready.wait(START_TIMEOUT_S) or self.port == 0:
            self.kill()
            raise Broken("the broker did not get ready: " + " / ".join(self.lines[-5:]))
        self.ready_s = time.perf_counter() - self.spawned

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
            found = READY.search(line)
            if found and not self.port:
                self.port = int(found[1])
                self._ready.set()
        self._ready.set()  # it is gone; whoever waits sees that there is no port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def resident_bytes(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as status:
            found = re.search(r"VmRSS:\s+(\d+) kB", status.read())
        assert found
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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

    def stop(self) -> float:
        """SIGTERM; returns the seconds it took to end."""
        start = time.perf_counter()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"the broker did not stop in {STOP_TIMEOUT_S} s") from None
        if code not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise Broken(f"the broker ended with code {code}: " + " / ".join(self.lines[-5:]))
        return time.perf_counter() - start

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


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
