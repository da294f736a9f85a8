"""What the README shows is run as it stands there, but for the port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.process import BrokerProcess

README = (Path(__file__).parents[2] / "README.md").read_text()
PORT = "127.0.0.1:9092"


def test_the_python_example_prints_what_it_should(start_broker: Callable[..., BrokerProcess]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert PORT in example
    code = example.replace(PORT, start_broker().bootstrap)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1000 records came back\n", done.stderr


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
    assert outputs == ["", "hello, stream\n"]
