"""`klamm start` in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

READY = re.compile(r"is ready: (?P<host>\S+):(?P<port>\d+), ")
START_LIMIT_S = 60


class BrokerProcess:
    """`klamm start` as a user starts it, on a free port."""

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        options: dict[str, object] | None = None,
        arguments: list[str] | None = None,
        max_files: int | None = None,
    ) -> None:
        self.data = data
        command = [sys.executable, "-m", "klamm", "start", "--data", str(data), "--listen", f"127.0.0.1:{port}"]
        for name, value in (options or {}).items():
            command += ["--set", f"{name}={value}"]
        command += arguments or []
        # A user's interpreter keeps byte code, which is most of the start-up time.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if max_files is not None:
            command = ["bash", "-c", f'ulimit -n {max_files}; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._drain_errors, daemon=True)
        self._reader.start()
        self.ready_line = self._await_ready()
        found = READY.search(self.ready_line)
        assert found, f"not a ready line: {self.ready_line!r}; stderr: {''.join(self.errors)}"
        self.port = int(found["port"])
        self.bootstrap = f"127.0.0.1:{self.port}"

    def _await_ready(self) -> str:
        watchdog = threading.Timer(START_LIMIT_S, self.process.kill)
        watchdog.start()
        try:
            assert self.process.stdout is not None
            return self.process.stdout.readline()
        finally:
            watchdog.cancel()

    def _drain_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def kill(self) -> None:
        """As `kill -9` does: no goodbye of any kind."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(START_LIMIT_S)
        self._reader.join(START_LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code
