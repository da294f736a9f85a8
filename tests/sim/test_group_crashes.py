"""A group whose broker is killed again and again: a generation has one assignment, no partition two owners, no commit
is lost or taken back, and the members come together again."""

from __future__ import annotations

import os

import pytest

from klamm.testing.sim.groups.story import run_seed

IN_EVERY_RUN = 20
SOAK_FIRST, SOAK_END = map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":"))
STEP = 100


def run(seeds: range) -> None:
    kills = generations = 0
    for seed in seeds:
        try:
            told = run_seed(seed)
        except Exception as error:
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"run it again with: python -m klamm.testing.sim.run --groups --seed {seed} --trace"
            )
        kills += told.kills
        generations += told.generations
    assert kills > len(seeds) and generations > 2 * len(seeds), "these were dull stories"


@pytest.mark.parametrize("first", range(0, IN_EVERY_RUN, 10))
def test_a_group_holds_together_over_any_number_of_kills(first: int) -> None:
    run(range(first, first + 10))


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert run_seed(7) == run_seed(7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SOAK_FIRST, SOAK_END, STEP))
def test_a_group_holds_together_over_very_many_kills(first: int) -> None:
    run(range(first, min(first + STEP, SOAK_END)))
