"""Every example of docs/testing.md is run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
PRINTED = {"plain.py": "[b'paid']\n", "plain_asyncio.py": "b'paid'\n"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=100)


def test_every_example_has_a_name() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") >= 10


def test_the_tests_pass(tmp_path: Path) -> None:
    for name, code in EXAMPLES.items():
        if name not in PRINTED:
            (tmp_path / name).write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "11 passed" in done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_what_it_should(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(EXAMPLES[name])
    done = run(tmp_path, name)
    assert done.stdout == PRINTED[name], done.stderr
