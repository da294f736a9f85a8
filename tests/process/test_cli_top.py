"""`klamm top`, completion and signals, in processes of their own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.process import BrokerProcess

KLAMM = [sys.executable, "-m", "klamm"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    started = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    producer = Producer({"log_level": 0, "bootstrap.servers": started.bootstrap})
    for topic in ("orders", "payments"):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(30) == 0
    yield started
    started.kill()


@pytest.fixture
def environment(broker: BrokerProcess, tmp_path: Path) -> dict[str, str]:
    own = {"KLAMM_BOOTSTRAP": broker.bootstrap, "XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm"}
    return {**os.environ, **own, "KLAMM_COMPLETION_MS": "60000"}  # however busy this machine is


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KLAMM, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_for_a_script_it_prints_one_object_for_each_look(environment: dict[str, str]) -> None:
    done = run(environment, "top", "-n", "2", "-i", "20ms", "-o", "json")
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 2
    assert {topic["name"]: topic["records"] for topic in looks[-1]["topics"]} == {"orders": 1, "payments": 1}
    assert looks[-1]["records_per_s"] == 0


def test_what_our_own_brokers_count_is_there_too(
    environment: dict[str, str], start_broker: Callable[..., BrokerProcess]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    broker = start_broker(options={"klamm.metrics.listener": f"0.0.0.0:{port}"})
    done = run(environment, "top", "-n", "1", "-i", "20ms", "-o", "json", "-b", broker.bootstrap)
    (row,) = json.loads(done.stdout)["brokers"]
    assert row["connections"] >= 1 and row["requests_per_s"] > 0 and row["memory_bytes"] > 0


def test_in_a_pipe_it_prints_tables(environment: dict[str, str]) -> None:
    done = run(environment, "top", "-n", "1", "-i", "20ms", "-t", "pay")
    assert done.returncode == 0, done.stderr
    assert "RECORDS/S" in done.stdout and "payments" in done.stdout and "\x1b" not in done.stdout
    assert "orders" not in done.stdout
    assert run(environment, "top", "-o", "screen").returncode == 2


class Terminal:
    """`klamm top` with a terminal of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.settings = termios.tcgetattr(self.theirs)
        command = [*KLAMM, "top", "-i", "20ms"]
        self.process = subprocess.Popen(
            command, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=environment
        )

    def draws(self, text: str) -> str:
        """Wait until this has come; all that came."""
        drawn = ""
        while text not in drawn:
            drawn += os.read(self._ours, 65536).decode(errors="replace")
        return drawn

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(**more: str) -> Terminal:
        opened.append(Terminal(environment | more))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_in_a_terminal_it_draws_until_q_and_leaves_the_terminal_as_it_was(terminal: Callable[..., Terminal]) -> None:
    top = terminal()
    drawn = top.draws("payments")
    assert drawn.startswith("\x1b[?1049h") and "q quit" in drawn + top.draws("q quit")
    top.type("n")
    top.draws("(now name)")
    top.type(" ")
    top.draws("PAUSED")
    top.type("q")
    top.draws("\x1b[?1049l")
    assert top.process.wait(30) == 0
    assert termios.tcgetattr(top.theirs) == top.settings


def test_a_broker_that_goes_is_shown_as_gone_until_it_is_back(
    terminal: Callable[..., Terminal],
    start_broker: Callable[..., BrokerProcess],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    broker = start_broker(tmp_path / "data")
    top = terminal(KLAMM_BOOTSTRAP=broker.bootstrap)
    top.draws("(no topics)")
    broker.kill()
    top.draws("No broker could be reached")
    start_broker(tmp_path / "data", port=broker.port)
    assert run(environment, "topic", "create", "made-after", "-b", broker.bootstrap).returncode == 0
    top.draws("made-after")
    top.type("q")
    top.draws("\x1b[?1049l")
    assert top.process.wait(30) == 0


def test_ctrl_c_ends_it_with_130_and_no_traceback(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*KLAMM, "top", "-i", "20ms", "-o", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("{")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and errors == ""


def test_a_reader_that_has_had_enough_is_no_error(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [*KLAMM, "top", "-i", "1ms", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 0


def completed(environment: dict[str, str], folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word, with the script as a user has it."""
    folder = folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "klamm").write_text(f'#!/bin/sh\nexec {sys.executable} -m klamm "$@"\n')
    (folder / "klamm").chmod(0o755)
    quoted = " ".join(f"'{word}'" for word in ("klamm", *words))
    script = f"""
        eval "$(klamm completion bash)"
        COMP_WORDS=({quoted}); COMP_CWORD={len(words)}
        _klamm
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = {"PATH": f"{folder}:{environment['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=environment | path)
    return done.stdout.split()


def test_bash_completes_verbs_options_topics_and_values(environment: dict[str, str], tmp_path: Path) -> None:
    assert completed(environment, tmp_path, "top") == ["topic", "top"]
    assert completed(environment, tmp_path, "topic", "de") == ["describe", "delete"]
    assert completed(environment, tmp_path, "topic", "describe", "") == ["orders", "payments"]
    assert completed(environment, tmp_path, "topic", "describe", "orders", "pa") == ["payments"]
    assert completed(environment, tmp_path, "topic", "create", "x", "--repl") == ["--replication-factor"]
    assert completed(environment, tmp_path, "topic", "create", "x", "-c", "cleanup.policy", "=", "de") == ["delete"]


def test_a_cluster_that_is_not_there_completes_to_nothing_in_silence(environment: dict[str, str]) -> None:
    done = run(environment, "__complete", "zsh", "topic", "describe", "-b", "127.0.0.1:1", "")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(
    environment: dict[str, str], tmp_path: Path, tool: Callable[[str, str], str], shell: str
) -> None:
    program = tool(shell, f"Debian's {shell}")
    script = tmp_path / "klamm.script"
    script.write_text(run(environment, "completion", shell).stdout)
    done = subprocess.run([program, "-n", str(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_at_a_question_ends_the_command(environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*KLAMM, "topic", "delete", "orders"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 1000)
    for _ in range(60):  # one that comes just before the read is not noticed
        os.write(ours, b"\x03")
        try:
            process.wait(1)
            break
        except subprocess.TimeoutExpired:
            pass
    assert process.wait(60) == 130
    os.close(ours)
    assert "orders" in run(environment, "topic", "list").stdout
