"""A broker that compacts all the time and dies again and again: the last value of a key is never lost, and nothing that
was deleted comes back."""

from __future__ import annotations

from klamm.testing.sim.compaction import run_seed
from support.seeds import in_every_run, in_soak, tell_all


def run(seeds: range) -> None:
    tell_all(run_seed, seeds, "--compaction", deaths=1, rounds=5)


@in_every_run(12, step=6)
def test_the_last_value_of_every_key_survives_any_number_of_deaths(seeds: range) -> None:
    run(seeds)


@in_soak()
def test_the_last_value_of_every_key_survives_very_many_deaths(seeds: range) -> None:
    run(seeds)


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    assert run_seed(8) == run_seed(8)
