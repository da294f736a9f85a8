"""Seeds of the simulation in tests: a few in every run, others in the long ones.

@in_every_run(20, step=10)
def test_...(seeds: range) -> None:
    tell_all(run_seed, seeds, "--transactions", kills=1, committed=5)

@in_soak()
def test_...(seeds: range) -> None: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

_SOAK = range(*map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":")))


def in_every_run(count: int, step: int) -> pytest.MarkDecorator:
    """The first seeds, some to a test."""
    return _some(range(count), step)


def in_soak(step: int = 50) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Those that KLAMM_SOAK_SEEDS names (`FIRST:END`), in `make soak` alone."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        marked: Callable[..., None] = pytest.mark.soak(pytest.mark.timeout(1800)(_some(_SOAK, step)(test)))
        return marked

    return mark


def _some(seeds: range, step: int) -> pytest.MarkDecorator:
    parts = [seeds[first : first + step] for first in range(0, len(seeds), step)]
    return pytest.mark.parametrize("seeds", parts, ids=[f"{part[0]}-{part[-1]}" for part in parts])


def tell_all(run_seed: Callable[[int], Any], seeds: range, story: str | None = None, **least: int) -> None:
    """Fails with the first seed that does, and says how to see it again: `story` is what `testing.sim.run` calls it,
    None if it does not know it. `least` is what must have happened, on average more often than so in each story: one
    without kills finds nothing."""
    told = []
    for seed in seeds:
        try:
            told.append(run_seed(seed))
        except Exception as error:
            command = "" if story is None else f"\nrun it again with: {command_for(seed, story)} --trace"
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}{command}")
    for what, times in least.items():
        count = sum(getattr(one, what) for one in told)
        assert count > times * len(seeds), f"these were dull stories: {count} {what} in {len(seeds)} of them"


def command_for(seed: int, story: str) -> str:
    return " ".join(["python -m klamm.testing.sim.run", *story.split(), f"--seed {seed}"])
