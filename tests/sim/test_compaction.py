"""A broker that compacts all the time and dies again and again: the last value of a key is never lost, and nothing that
was deleted comes back."""

from __future__ import annotations

import os

import pytest

from klamm.testing.sim.compaction import run_seed

IN_EVERY_RUN = 12
SOAK_FIRST, SOAK_END = map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":"))
STEP = 50


def run(seeds: range) -> None:
    deaths = rounds = 0
    for seed in seeds:
        try:
            told = run_seed(seed)
        except Exception as error:
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"run it again with: python -m klamm.testing.sim.run --compaction --seed {seed} --trace"
            )
        deaths += told.deaths
        rounds += told.rounds
    assert deaths > len(seeds) and rounds > 5 * len(seeds), "these were dull stories"


@pytest.mark.parametrize("first", range(0, IN_EVERY_RUN, 6))
def test_the_last_value_of_every_key_survives_any_number_of_deaths(first: int) -> None:
    run(range(first, first + 6))


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert run_seed(8) == run_seed(8)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SOAK_FIRST, SOAK_END, STEP))
def test_the_last_value_of_every_key_survives_very_many_deaths(first: int) -> None:
    run(range(first, min(first + STEP, SOAK_END)))
