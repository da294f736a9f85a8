from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(seed, hash_seed):
    done = subprocess.run(
        [sys.executable, "-m", "klamm.testing.sim.run", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_of_the_simulated_broker_gives_the_same_trace_in_every_process(seed):
    assert run(seed, "1") == run(seed, "2")
