"""Every example of these pages is run as it stands there, and prints what stands below it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import klamm.testing

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("client.md", "migrating.md", "groups.md", "admin.md", "arrow.md")
EXAMPLE = re.compile(r"```python\n# (\S+\.py)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
LIMIT_S = 60


class Example(NamedTuple):
    name: str
    code: str
    printed: str


def examples(page: str) -> list[Example]:
    return [Example(*found) for found in EXAMPLE.findall((DOCS / page).read_text())]


@pytest.mark.parametrize("page", PAGES)
def test_every_example_has_a_name_and_prints_something(page: str) -> None:
    found = examples(page)
    assert len(found) == (DOCS / page).read_text().count("```python") > 1
    assert all(example.printed for example in found)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    """One after the other and with one broker: a consumer reads what the producer above it has sent."""
    with klamm.testing.broker() as broker:
        for example in examples(page):
            program = tmp_path / example.name
            program.write_text(example.code.replace("localhost:9092", broker.bootstrap))
            output, errors = run(program, example.printed)
            assert output == example.printed, (example.name, output, errors)


def run(program: Path, awaited: str) -> tuple[str, str]:
    """What it prints up to its end, or up to the awaited output: some read for ever."""
    with open(program.with_suffix(".err"), "w+") as errors:
        process = subprocess.Popen([sys.executable, "-u", program], stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        output = b""
        deadline = time.monotonic() + LIMIT_S
        while output.decode() != awaited and time.monotonic() < deadline:
            readable, _, _ = select.select([process.stdout], [], [], 1)
            piece = os.read(process.stdout.fileno(), 1 << 16) if readable else None
            if piece == b"":
                break
            output += piece or b""
        stopped = False
        try:
            process.wait(2 if "for record in consumer:\n        print" in program.read_text() else 30)
        except subprocess.TimeoutExpired:
            stopped = True
            process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
        errors.seek(0)
        told = errors.read()
    assert process.returncode == 0 or stopped, (program.name, told)
    return (output + rest).decode(), told
