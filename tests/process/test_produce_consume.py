"""`klamm produce` and `klamm consume` as a user runs them, against a broker in a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.cli import main
from support.process import BrokerProcess

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options={"num.partitions": 3})
    yield process
    assert process.stop() == 0


@pytest.fixture
def topic() -> str:
    return f"t{next(NUMBERS)}"


class Done(NamedTuple):
    stdout: bytes
    stderr: bytes


Run = Callable[..., Done]


@pytest.fixture
def klamm(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Runs a command; in this process, unless it reads standard input."""
    monkeypatch.setenv("KLAMM_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*args: str, stdin: bytes = b"", code: int = 0) -> Done:
        if stdin:
            ran = subprocess.run([sys.executable, "-m", "klamm", *args], input=stdin, capture_output=True, timeout=60)
            done, returned = Done(ran.stdout, ran.stderr), ran.returncode
        else:
            capfdbinary.readouterr()
            try:
                returned = main(args)
            except SystemExit as exit_:  # argparse
                returned = int(str(exit_.code))
            done = Done(*capfdbinary.readouterr())
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        assert returned == code, done.stderr.decode()
        return done

    return run


def test_lines_go_in_and_come_out(klamm: Run, topic: str) -> None:
    written = klamm("produce", topic, "-K", ":", "-H", "source=test", "-z", "zstd", "-v", stdin=b"a:1\nb:2\na:3\n")
    assert b"did not exist; the broker created it" in written.stderr
    shown = klamm("consume", topic, "-e", "-f", "%k %s %h\\n").stdout.splitlines()
    assert sorted(shown) == [b"a 1 source=test", b"a 3 source=test", b"b 2 source=test"]
    assert shown.index(b"a 1 source=test") < shown.index(b"a 3 source=test")


def test_a_copy_through_json_is_the_same(klamm: Run, topic: str, tmp_path: Path) -> None:
    binary = bytes(range(256)) * 1000
    (tmp_path / "file").write_bytes(binary)
    klamm("produce", topic, "-p", "1", "-k", "file", "--file", str(tmp_path / "file"))
    klamm("produce", topic, "-p", "1", "-k", "gone", "--tombstone")
    klamm("produce", topic, "-p", "2", stdin=b"text\n")
    first = klamm("consume", topic, "-e", "-o", "json").stdout
    klamm("produce", f"{topic}-copy", "--json", stdin=first)
    second = klamm("consume", f"{topic}-copy", "-e", "-o", "json").stdout
    originals, copies = ([json.loads(line) for line in text.splitlines()] for text in (first, second))
    for record in originals + copies:
        del record["topic"]
    assert sorted(originals, key=str) == sorted(copies, key=str)
    assert klamm("consume", topic, "-p", "1", "-n", "1", "-f", "%s").stdout == binary


def test_reading_begins_and_ends_where_it_is_told(klamm: Run, topic: str) -> None:
    klamm("produce", topic, "-p", "0", stdin=b"".join(b"%d\n" % number for number in range(20)))
    late = b'{"value": "late", "timestamp": %d, "partition": 0}\n' % (2**41)

    def values(*args: str) -> list[bytes]:
        return klamm("consume", topic, "-p", "0", *args).stdout.splitlines()

    assert values("-e", "--from", "17") == [b"17", b"18", b"19"]
    assert values("-e", "--from", "-2") == [b"18", b"19"]
    assert values("-n", "3") == [b"0", b"1", b"2"]
    assert values("-e", "--from", "1h", "-n", "1") == [b"0"]
    assert values("-e", "--from", "end") == []
    klamm("produce", topic, "--json", "-X", "linger.ms=0", stdin=late, code=1)  # too far from the broker's clock
    assert klamm("consume", topic, "-p", "0", "-e", "--from", "2999-01-01").stdout == b""


def test_a_follower_sees_what_comes_and_ctrl_c_ends_it(klamm: Run, broker: BrokerProcess, topic: str) -> None:
    klamm("produce", topic, stdin=b"first\n")
    command = [sys.executable, "-m", "klamm", "consume", topic, "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        klamm("produce", topic, stdin=b"second\n")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_lines_typed_are_sent_before_the_input_ends(klamm: Run, broker: BrokerProcess, topic: str) -> None:
    klamm("produce", topic, stdin=b"first\n")
    command = [sys.executable, "-m", "klamm", "produce", topic, "-b", broker.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        assert b"typed" in klamm("consume", topic, "-n", "2").stdout
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_reader_that_has_had_enough_is_no_error(broker: BrokerProcess, klamm: Run, topic: str) -> None:
    klamm("produce", topic, stdin=b"line\n" * 50_000)
    command = f"{sys.executable} -m klamm consume {topic} -e -b {broker.bootstrap} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (b"line\n", b"", 0)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["consume", "no-such-topic", "-e"], 1, "there is no topic 'no-such-topic'"),
        (["produce", "no-such-topic", "--no-create"], 1, "there is no topic 'no-such-topic'"),
        (["produce", "not/valid"], 1, "INVALID_TOPIC_EXCEPTION"),
        (["produce", "x", "/no/such/file"], 2, "cannot read /no/such/file: no such file"),
        (["produce", "x", "--tombstone"], 2, "give it a --key"),
        (["produce", "x", "--file", "/etc/hostname", "--json"], 2, "whole files"),
        (["produce", "x", "-z", "rar"], 2, "'rar' is not one of"),
        (["consume", "x", "--from", "yesterday"], 2, "is neither beginning, end"),
        (["consume", "x", "-f", "%q"], 2, "%q is no part of a format"),
        (["consume", "x", "-X", "security.protocol=SSL"], 1, "Is this the listener for TLS?"),
        (["consume", "x", "-b", "127.0.0.1:1"], 1, "127.0.0.1:1: connection refused"),
    ],
)
def test_a_mistake_is_said_in_a_line_with_what_to_do(klamm: Run, args: list[str], code: int, says: str) -> None:
    assert says in klamm(*args, code=code).stderr.decode()


def test_a_bad_line_is_named_and_what_came_before_is_written(klamm: Run, topic: str) -> None:
    klamm("produce", topic, "-p", "0", stdin=b"0\n")
    refused = klamm("produce", topic, "-p", "0", "-K", ":", stdin=b"a:1\nb:2\nc\nd:4\n", code=2)
    assert b"line 3 of standard input has no key separator ':'" in refused.stderr
    assert klamm("consume", topic, "-e").stdout == b"0\n1\n2\n"
    assert b"has no partition 9" in klamm("consume", topic, "-p", "9", code=2).stderr
    assert b"partitions 0 to 2" in klamm("produce", topic, "-p", "9", stdin=b"x\n", code=1).stderr


def test_consume_ends_with_its_reader_though_nothing_more_comes(klamm: Run, broker: BrokerProcess, topic: str) -> None:
    klamm("produce", topic, stdin=b"one\ntwo\n")
    command = f"{sys.executable} -m klamm consume {topic} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.stdout in (b"one\n", b"two\n") and done.stderr == b""


def test_a_full_disk_is_one_line(klamm: Run, broker: BrokerProcess, topic: str) -> None:
    klamm("produce", topic, stdin=b"one\n")
    for command in (f"consume {topic} -e", "topic list"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m klamm {command} > /dev/full"], capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1) and b"No space left" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_lost_where_a_write_is_a_partial_one(
    klamm: Run, broker: BrokerProcess, topic: str, unbuffered: str
) -> None:
    """As it is when a command that writes into a pipe is stopped and goes on."""
    klamm("produce", topic, stdin=b"x" * 99 + b"\n" + b"y\n" * 200_000)
    reading = subprocess.Popen(
        [sys.executable, "-m", "klamm", "consume", topic, "-e"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert reading.stdout is not None
    first = reading.stdout.read(1)  # it is writing, and will have to wait
    while not is_waiting_for_the_pipe(reading.pid):
        pass
    reading.send_signal(signal.SIGSTOP)
    reading.send_signal(signal.SIGCONT)
    everything = first + reading.stdout.read()
    assert reading.wait(60) == 0
    assert len(everything.splitlines()) == 200_001


def is_waiting_for_the_pipe(pid: int) -> bool:
    return "pipe" in Path(f"/proc/{pid}/wchan").read_text() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "S"
