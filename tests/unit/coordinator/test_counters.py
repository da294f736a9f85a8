"""What the machines count: what happens, when it happens, and nothing of what a log tells of the past."""

from __future__ import annotations

import pytest

from klamm.coordinator.counters import GroupCounters, TransactionCounters
from klamm.coordinator.groups.classic_group import State as ClassicState
from klamm.coordinator.groups.machine import GroupMachine
from klamm.coordinator.machine import Now, Record
from klamm.coordinator.records import GROUPS
from klamm.coordinator.transactions.machine import Settings, TxnMachine
from klamm.coordinator.transactions.state import State
from klamm.core.options import Options
from klamm.server.coordinator_metrics import GROUP_STATES, TRANSACTION_STATES
from klamm.wire.messages.coordinator import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from support.consumer_groups import Shard
from support.coordinators import Reflex
from support.groups import GroupDriver
from support.transactions import T0, T1, Driver

DAY_MS = 24 * 3600 * 1000


def test_a_generation_counts_and_so_does_a_member_that_falls_silent() -> None:
    driver = GroupDriver()
    driver.stable(2, session_ms=10_000)
    counters = driver.machine.counters
    begun = counters.classic_rebalances
    assert begun >= 1
    driver.advance(30.0)
    assert driver.machine.counters.expired_members == 2
    assert driver.machine.counters.classic_rebalances > begun


def test_an_epoch_of_a_consumer_group_counts_and_so_does_a_member_that_falls_silent() -> None:
    shard = Shard({"t": 2})
    shard.join("m1", "t")
    counters = shard.reflex.machine.counters
    begun = counters.consumer_rebalances
    assert begun >= 1
    shard.reflex.wait(120.0)
    assert counters.expired_members == 1
    assert counters.consumer_rebalances == begun + 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_counts_once_however_long_its_markers_take(committed: bool) -> None:
    driver = Driver()
    producer = driver.begin(T0, T1)
    counters = driver.machine.counters
    assert (counters.committed, counters.aborted) == (0, 0)
    driver.finish(producer, committed)
    driver.write_markers()
    assert (counters.committed, counters.aborted, counters.timed_out) == (committed, not committed, 0)


def test_a_transaction_that_takes_too_long_is_aborted_and_timed_out() -> None:
    driver = Driver()
    driver.begin(T0, timeout_ms=1000)
    driver.wait(60.0)
    counters = driver.machine.counters
    assert (counters.aborted, counters.timed_out, counters.committed) == (1, 1, 0)


def test_an_id_that_nobody_uses_any_more_has_expired() -> None:
    driver = Driver(settings=Settings(expiration_ms=DAY_MS, expiration_interval_ms=60_000))
    driver.init()
    driver.wait(2 * DAY_MS / 1000)
    assert driver.machine.counters.expired_ids == 1


def test_what_a_group_machine_replays_while_it_loads_is_not_new() -> None:
    counters = GroupCounters()
    options = Options.from_mapping({})
    reflex = Reflex(lambda: GroupMachine(lambda: options, lambda: bytes(16), counters), GROUPS)
    commit = Record(OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=1))
    reflex.machine.replay(commit)
    reflex.machine.replay(Record(GroupMetadataKey(group="h"), GroupMetadataValue(protocol_type="consumer")))
    assert counters.commits == 0
    reflex.machine.loaded(Now(0.0, 0))
    reflex.machine.replay(commit)
    assert counters.commits == 1


def test_what_a_transaction_machine_replays_while_it_loads_is_not_new() -> None:
    driver = Driver()
    driver.finish(driver.begin(T0))
    counters = TransactionCounters()
    machine = TxnMachine(Settings(), lambda: 1, counters)
    for entry in driver.log:
        driver._replay(machine, entry)
    machine.loaded(driver.now)
    assert machine.transactions and counters.committed == 0
    assert machine.counters is counters


def test_every_state_that_there_can_be_has_its_series() -> None:
    never = {State.DEAD, State.PREPARE_EPOCH_FENCE}
    assert set(TRANSACTION_STATES) == {state.label for state in State if state not in never}
    assert set(GROUP_STATES["classic"]) == {state.value for state in ClassicState}
