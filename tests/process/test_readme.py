"""What the README shows is run as it stands there, but for the port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.process import BrokerProcess

README = (Path(__file__).parents[2] / "README.md").read_text()
PORT = "127.0.0.1:9092"


def example(beginning: str) -> str:
    """The one that begins so."""
    (found,) = re.findall(rf"```python\n({re.escape(beginning)}.*?)```", README, re.DOTALL)
    return str(found)


def test_the_example_with_confluent_kafka_prints_what_it_should(start_broker: Callable[..., BrokerProcess]) -> None:
    code = example("from confluent_kafka import Consumer, Producer").replace(PORT, start_broker().bootstrap)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1000 records came back\n", done.stderr


def test_the_example_with_the_own_client_prints_what_it_should(start_broker: Callable[..., BrokerProcess]) -> None:
    """It reads on for ever: one line is enough."""
    code = example("from klamm import Consumer, Producer").replace(PORT, start_broker().bootstrap)
    with subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "0 b'hello, Python'\n"
        finally:
            process.kill()


def test_the_example_of_a_test_is_one_that_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(example("# test_orders.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_first_commands_print_what_they_should(start_broker: Callable[..., BrokerProcess]) -> None:
    commands = re.findall(r"^\$ (?:(echo .*?) \| )?\.venv/bin/klamm (\w+ greetings.*)$", README, re.MULTILINE)
    assert len(commands) == 2
    environment = os.environ | {"KLAMM_BOOTSTRAP": start_broker().bootstrap}
    outputs = [
        subprocess.run(
            ["bash", "-c", f"{echo or 'true'} | {sys.executable} -m klamm {command}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        ).stdout
        for echo, command in commands
    ]
    assert outputs == ["", "hello, stream\n"]


def test_the_kcat_example_prints_what_it_should(
    start_broker: Callable[..., BrokerProcess], tool: Callable[[str, str], str]
) -> None:
    tool("kcat", "Debian's package kcat")
    bootstrap = start_broker().bootstrap
    commands = re.findall(r"^\$ (kcat .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    outputs = [
        subprocess.run(
            ["bash", "-c", command.replace(PORT, bootstrap)], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for command in commands
    ]
    assert outputs == ["", "hello, kcat\n"]
