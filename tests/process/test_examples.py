"""The examples of the repository do what their READMEs say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DELIVERY = Path(__file__).parents[2] / "examples" / "delivery"
EXPECTED = {
    "at_most_once": "lost:    45, 46, 47, 48, 49\ndoubled: none\n",
    "at_least_once": "lost:    none\ndoubled: 40, 41, 42, 43, 44\n",
    "exactly_once": "lost:    none\ndoubled: none\n"
    "written twice, the first time in a transaction that was aborted: 40, 41, 42, 43, 44\n",
    "broadcast": "".join(
        f"{name} saw 100 of 100 numbers, all in order\n" for name in ("billing", "shipping", "statistics")
    ),
}


@pytest.mark.parametrize("client", ["", "own_"], ids=["confluent-kafka", "klamm"])
def test_delivery_semantics_are_as_their_names_say(client: str) -> None:
    """All at once: they spend most of their time waiting for the session of a worker that was killed."""
    running = {
        name: subprocess.Popen(
            [sys.executable, str(DELIVERY / f"{client}{name}.py")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in EXPECTED
    }
    for name, process in running.items():
        output, errors = process.communicate(timeout=100)
        assert output.endswith(EXPECTED[name]), (name, output, errors)
        assert process.returncode == 0 and not errors, (name, errors)
