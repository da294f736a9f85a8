"""What the benchmark's sections stand on: building the C tools, a broker on one core, tools on another.

Broker and peer run on the first core, whoever loads them on the second, so that ratios compare like with like.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brokers import STOP_TIMEOUT_S, Broken, Klamm, pinned_to

BENCH = Path(__file__).resolve().parent
BIN = BENCH / "bin"
OUT = BENCH / "out"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow"]
TOOLS = {
    "bare": (["bare.c", "common.c"], []),
    "raw": (["raw.c", "topics.c", "fetch.c", "kafka.c", "common.c"], []),
    "flow": (["flow.c", "fetch.c", "kafka.c", "common.c"], []),
    "join": (["join.c", "fetch.c", "kafka.c", "common.c"], []),
    "load": (["load.c", "common.c"], ["-lrdkafka", "-pthread"]),
}
TOOL_TIMEOUT_S = 900
# A deleted topic's pages go at once, as those of the peer's file do. Kept for a minute, they would be written to the
# disk during the next measurements.
SETTINGS = ["log.segment.delete.delay.ms=0"]


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


class Bench:
    """The settings of a run, and its processes."""

    def __init__(self, *, rounds: int, scale: float, broker_core: int, client_core: int, folder: Path | None) -> None:
        self.rounds = rounds
        self.scale = scale
        self.broker_core = broker_core
        self.client_cores: tuple[int, ...] = (client_core,)
        self.folder = folder or OUT
        self.tools = build()

    def scaled(self, count: float) -> int:
        return max(1, int(count * self.scale))

    def tool(self, name: str, mode: str, **options: object) -> dict[str, Any]:
        """Run a tool on the clients' cores and return its line of results."""
        command = [str(BIN / name), mode]
        for option, value in options.items():
            command += ["--" + option.replace("_", "-"), str(value)]
        run = subprocess.run(
            [*command, "--timeout", str(TOOL_TIMEOUT_S - 10)],
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            preexec_fn=pinned_to(*self.client_cores),
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
    def broker(self, data: Path | None = None) -> Iterator[Klamm]:
        """A running broker, with a data folder of its own unless one is given."""
        with contextlib.ExitStack() as stack:
            broker = Klamm(data or stack.enter_context(self.data_folder()), [self.broker_core], settings=SETTINGS)
            try:
                broker.wait_for_port()
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
