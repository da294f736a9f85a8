"""One broker, a thousand seeds of crashes: nothing acknowledged is lost by a kill, nothing flushed by a power loss."""

from __future__ import annotations

import os

import pytest

from klamm.testing.sim.broker.scenario import run_seed

IN_EVERY_RUN = 100
SOAK_FIRST, SOAK_END = map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":"))
STEP = 50


def run(seeds):
    for seed in seeds:
        try:
            run_seed(seed)
        except Exception as error:
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"run it again with: python -m klamm.testing.sim.run --seed {seed} --trace"
            )


@pytest.mark.parametrize("first", range(0, IN_EVERY_RUN, 10))
def test_the_broker_keeps_its_promises_over_crashes(first):
    run(range(first, first + 10))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SOAK_FIRST, SOAK_END, STEP))
def test_the_broker_keeps_its_promises_over_many_crashes(first):
    run(range(first, min(first + STEP, SOAK_END)))
