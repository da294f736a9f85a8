"""A Spark cluster as its pip package has it: a master and workers, each a process, on this machine.

    with StandaloneCluster(tmp_path, workers=2) as cluster:
        cluster.url     # spark://127.0.0.1:34567

Executors are children of the workers. All of them end with the cluster, whatever they do at that moment. Each worker
has a loopback address of its own: Spark runs a slow task a second time only on another host.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

import pyspark

from klamm.spark import java
from support.spark import QUICK

START_LIMIT_S = 120
STOP_LIMIT_S = 20
DEPLOY = "org.apache.spark.deploy"
HEAP = "256m"
EXECUTOR_HEAP = "512m"  # Spark takes no less


class StandaloneCluster:
    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[str]] = []
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        try:
            master = self._start("127.0.0.1", "master.Master", "--webui-port", "0")
            self.url = _await(master, r"Starting Spark master at (spark://\S+)")
            workers = []
            for number in range(self._workers):
                folder = self._folder / f"worker-{number}"
                limits = ["--cores", "1", "--memory", EXECUTOR_HEAP, "--work-dir", str(folder), "--webui-port", "0"]
                workers.append(self._start(f"127.0.0.{number + 2}", "worker.Worker", *limits, self.url))
            for worker in workers:
                _await(worker, "Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, host: str, what: str, *arguments: str) -> subprocess.Popen[str]:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"{DEPLOY}.{what}", "--host", host, "--port", "0"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": HEAP,
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LAUNCHER_OPTS": QUICK,
            "JAVA_HOME": str(java.home_for_spark(java.find())),
            "PYSPARK_PYTHON": sys.executable,
        }
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=self._folder,
            start_new_session=True,  # so that its executors can be ended with it
        )
        self._processes.append(process)
        return process

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self._processes.clear()


def _await(process: subprocess.Popen[str], ready: str) -> str:
    """When it says so, it is ready; what it says then."""
    output = process.stdout
    assert output is not None
    said = []
    watchdog = threading.Timer(START_LIMIT_S, process.kill)
    watchdog.start()
    try:
        for line in output:
            said.append(line)
            if found := re.search(ready, line):
                threading.Thread(target=output.read, daemon=True).start()  # what comes after is for nobody
                return found[found.lastindex or 0]
    finally:
        watchdog.cancel()
    raise AssertionError(f"{process.args!r} has ended: {''.join(said)[-2000:]}")
