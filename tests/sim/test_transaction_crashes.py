"""Transactions on a broker that is killed again and again: nothing committed is lost, doubled or reordered, nothing
aborted is seen, and nobody is left hanging."""

from __future__ import annotations

import os

import pytest

from klamm.testing.sim.transactions.story import run_seed

IN_EVERY_RUN = 30
SOAK_FIRST, SOAK_END = map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":"))
STEP = 50


def run(seeds: range) -> None:
    kills = committed = 0
    for seed in seeds:
        try:
            told = run_seed(seed)
        except Exception as error:
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"run it again with: python -m klamm.testing.sim.run --transactions --seed {seed} --trace"
            )
        kills += told.kills
        committed += told.committed
    assert kills > len(seeds) and committed > 5 * len(seeds), "these were dull stories"


@pytest.mark.parametrize("first", range(0, IN_EVERY_RUN, 10))
def test_transactions_are_whole_over_any_number_of_kills(first: int) -> None:
    run(range(first, first + 10))


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert run_seed(7) == run_seed(7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SOAK_FIRST, SOAK_END, STEP))
def test_transactions_are_whole_over_very_many_kills(first: int) -> None:
    run(range(first, min(first + STEP, SOAK_END)))
