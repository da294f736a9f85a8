"""Transactions on a broker that is killed again and again: nothing committed is lost, doubled or reordered, nothing
aborted is seen, and nobody is left hanging."""

from __future__ import annotations

from klamm.testing.sim.transactions.story import run_seed
from support.seeds import in_every_run, in_soak, tell_all


def run(seeds: range) -> None:
    tell_all(run_seed, seeds, "--transactions", kills=1, committed=5)


@in_every_run(30, step=10)
def test_transactions_are_whole_over_any_number_of_kills(seeds: range) -> None:
    run(seeds)


@in_soak()
def test_transactions_are_whole_over_very_many_kills(seeds: range) -> None:
    run(seeds)


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert run_seed(7) == run_seed(7)
