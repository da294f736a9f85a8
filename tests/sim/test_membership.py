"""Groups of both protocols on a broker that dies of everything: commits are kept, a generation has one assignment, a
partition one owner, and when it is over everybody finds together."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from klamm.coordinator.groups import rebalance
from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.offsets_store import OffsetStore
from klamm.coordinator.groups.rebalance import Rebalances
from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.story import run_seed
from klamm.wire.messages.k11_join_group import JoinGroupResponse
from support.seeds import in_every_run, in_soak, tell_all


def run(seeds: range) -> None:
    tell_all(run_seed, seeds, "--membership", lives=2, generations=1, epochs=1, commits=20)


@in_every_run(12, step=4)
def test_groups_keep_what_they_have_over_any_number_of_deaths(seeds: range) -> None:
    run(seeds)


@in_soak()
def test_groups_keep_what_they_have_over_very_many_deaths(seeds: range) -> None:
    run(seeds)


def test_a_story_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-m", "klamm.testing.sim.run", "--membership", "--seed", "6"]
    told = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, timeout=100).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and b"trace" in told[0]


# A checker that cannot fail proves nothing: break the coordinator, and see that it does.


def found(first: int = 0, count: int = 30) -> str:
    """What comes to light first. All of these seeds pass unless something is broken."""
    for seed in range(first, first + count):
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


def test_an_assignment_that_comes_back_as_anothers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = ClassicGroup.restore

    def confused(self: ClassicGroup) -> None:
        restore(self)
        if len(self.members) > 1:
            one, other, *_ = self.members.values()
            one.assignment, other.assignment = other.assignment, one.assignment

    monkeypatch.setattr(ClassicGroup, "restore", confused)
    assert " got b" in found(first=80, count=50)  # few stories have a group that is back before its members notice


def test_a_member_that_its_leader_was_not_told_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def incomplete(group: ClassicGroup, member_id: str, **options: bool) -> JoinGroupResponse:
        answer = joined(group, member_id, **options)
        answer.members = answer.members[:-1] if len(answer.members) > 1 else answer.members
        return answer

    joined = rebalance.joined
    monkeypatch.setattr(rebalance, "joined", incomplete)
    assert " got b'' in " in found()


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
def test_a_commit_of_one_who_is_out_is_found(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    monkeypatch.setattr(kind, "may_commit", lambda self, *args, **options: ErrorCode.NONE)
    assert " on" in found()  # it "goes on", or "may go on"


def test_a_session_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebalances, "expect", lambda self, *args: None)
    assert "processed" in found()
