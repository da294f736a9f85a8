"""What `klamm pipeline run` does with signals and with what Spark writes to its standard error, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.cli import main
from klamm.cli.pipeline_run import Signals
from klamm.cli.pipeline_session import errors_into


class Running:
    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(one) for one in both]
    yield
    for one, handler in zip(both, before, strict=True):
        signal.signal(one, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_the_pipeline_and_is_its_exit_code(number: signal.Signals, code: int) -> None:
    signals, running = Signals(), Running()
    signals.install()
    signals.stop_then(running)
    assert running.stops == 0
    os.kill(os.getpid(), number)
    assert (running.stops, signals.code) == (1, code)


def test_a_signal_that_comes_while_queries_are_started_is_not_forgotten() -> None:
    signals, running = Signals(), Running()
    signals.install()
    os.kill(os.getpid(), signal.SIGTERM)
    signals.stop_then(running)
    assert running.stops == 1


def test_before_there_is_a_session_sigterm_ends_it_at_once() -> None:
    Signals()
    with pytest.raises(SystemExit) as left:
        os.kill(os.getpid(), signal.SIGTERM)
    assert left.value.code == 0


def test_only_what_is_started_meanwhile_writes_into_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "spark.log"
    script = "import sys; sys.stdin.read(); print('noise', file=sys.stderr)"
    with errors_into(str(log)):
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    print("ours", file=sys.stderr)
    child.communicate()
    assert log.read_text() == "noise\n" and capfd.readouterr().err == "ours\n"
    with errors_into(str(log)):
        os.write(2, b"the next run\n")
    assert log.read_text() == "the next run\n" and (tmp_path / "spark.log.1").read_text() == "noise\n"


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("bootstrap: 'here:port'", 2, "{0}/pipeline.yml:2:12: bootstrap.servers: 'here:port' is not HOST:PORT"),
        ("kafka: {acks: all, security.protocol: TLS}", 2, "{0}/pipeline.yml:2:39: security.protocol=TLS is not one of"),
        ("checkpoints: all.sql", 1, "klamm: The folder for checkpoints, {0}/all.sql, cannot be used: File exists.\n"),
    ],
)
def test_what_cannot_be_used_is_told_before_spark_is_started(
    line: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "all.sql").write_text("SELECT value FROM lines")
    (tmp_path / "pipeline.yml").write_text(
        f"name: a\n{line}\ninputs: {{lines: {{topic: b, format: text}}}}\n"
        "flows: {all: {sql: all.sql, output: console}}\n"
    )
    assert main(["pipeline", "run", str(tmp_path)]) == code
    assert "".join(capsys.readouterr()).startswith(told.format(tmp_path))
