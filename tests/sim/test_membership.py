"""Groups of both protocols on a broker that dies of everything: commits are kept, a generation has one assignment, a
partition one owner, and when it is over everybody finds together."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.offsets_store import OffsetStore
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.story import run_seed

IN_EVERY_RUN = 8
SOAK_FIRST, SOAK_END = map(int, os.environ.get("KLAMM_SOAK_SEEDS", "100:1000").split(":"))
STEP = 50


def run(seeds: range) -> None:
    lives = generations = epochs = commits = 0
    for seed in seeds:
        try:
            told = run_seed(seed)
        except Exception as error:
            pytest.fail(
                f"seed {seed}: {type(error).__name__}: {error}\n"
                f"run it again with: python -m klamm.testing.sim.run --membership --seed {seed} --trace"
            )
        lives += told.lives
        generations += told.generations
        epochs += told.epochs
        commits += told.commits
    enough = lives > 2 * len(seeds) and commits > 20 * len(seeds)
    assert enough and generations > len(seeds) and epochs > len(seeds), "these were dull stories"


@pytest.mark.parametrize("first", range(0, IN_EVERY_RUN, 4))
def test_groups_keep_what_they_have_over_any_number_of_deaths(first: int) -> None:
    run(range(first, first + 4))


def test_a_story_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-m", "klamm.testing.sim.run", "--membership", "--seed", "6"]
    told = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, timeout=100).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and b"trace" in told[0]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(SOAK_FIRST, SOAK_END, STEP))
def test_groups_keep_what_they_have_over_very_many_deaths(first: int) -> None:
    run(range(first, min(first + STEP, SOAK_END)))


# A checker that cannot fail proves nothing: break the coordinator, and see that it does.


def found(first: int = 0) -> str:
    """What comes to light first. All of these seeds pass unless something is broken."""
    for seed in range(first, 30):
        try:
            run_seed(seed)
        except Violation as violation:
            return str(violation)
    return ""


def test_a_partition_that_is_given_away_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_owned", lambda self, topic_id, partition: False)
    assert "was given to" in found(first=3)


def test_a_commit_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, count = OffsetStore.replay, 0

    def forgetful(self: OffsetStore, *args: Any) -> None:
        nonlocal count
        count += 1
        if count % 40:
            replay(self, *args)

    monkeypatch.setattr(OffsetStore, "replay", forgetful)
    assert "is there" in found()


def test_a_generation_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = ClassicGroup.restore

    def forgetful(self: ClassicGroup) -> None:
        restore(self)
        self.generation = 0

    monkeypatch.setattr(ClassicGroup, "restore", forgetful)
    assert "generation" in found()


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
def test_a_commit_of_one_who_is_out_is_found(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    monkeypatch.setattr(kind, "may_commit", lambda self, *args, **options: ErrorCode.NONE)
    assert " on" in found()  # it "goes on", or "may go on"


def test_a_session_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebalances, "expect", lambda self, *args: None)
    assert "processed" in found()
