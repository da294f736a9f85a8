"""What the coordinators of a broker show: their shards, groups and transactions.

How many there are of what is looked up in the machines when somebody asks, in slices; what has happened is in the
coordinators' counters. Nothing of groups or transactions is imported here: a broker that has none shows zeros.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from klamm.coordinator.counters import GroupCounters, TransactionCounters
from klamm.core.slices import Sliced
from klamm.log.housekeeping import sliced
from klamm.server.exposition import Exposition

if TYPE_CHECKING:
    from klamm.apis.api import Broker
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.runtime import Coordinator
    from klamm.coordinator.transactions.machine import TxnMachine

GROUP_STATES = {
    "classic": ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable"),
}
TRANSACTION_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
"""What there can be, so that a series is there before anything is in that state."""

_SLICE = 500
"""Groups or transactions that are looked at before the loop has its turn: below a millisecond."""


def add_coordinators(page: Exposition, broker: Broker) -> Sliced[None]:
    _add_shards(page, broker)
    yield from _add_groups(page, broker.groups)
    yield from _add_transactions(page, broker.transactions)


def _add_shards(page: Exposition, broker: Broker) -> None:
    both = ("group", broker.groups), ("transaction", broker.transactions)
    page.gauge("klamm_coordinator_shards", "Partitions of a coordinator's topic: that load, and that take requests.")
    for name, coordinator in both:
        loading, loaded = coordinator.shard_states()
        page.add(loading, coordinator=name, state="loading")
        page.add(loaded, coordinator=name, state="loaded")
    for field, family, doc in (
        ("loads", "klamm_coordinator_loads_total", "Shards that were loaded from their logs."),
        ("load_s", "klamm_coordinator_load_seconds_total", "Time that loading took, without the wait for a turn."),
        ("load_failures", "klamm_coordinator_load_failures_total", "Attempts to load that failed; the log says why."),
        ("restarts", "klamm_coordinator_restarts_total", "Shards that have lost what they had in mind, and load anew."),
        ("events", "klamm_coordinator_events_total", "Requests and other events that shards have decided on."),
    ):
        page.counter(family, doc)
        for name, coordinator in both:
            page.add(getattr(coordinator.counters, field), coordinator=name)


def _add_groups(page: Exposition, groups: Coordinator[GroupMachine]) -> Sliced[None]:
    states: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter()
    offsets = 0
    for _, machine in groups.shards():
        for some in sliced(list(machine.groups.values()), _SLICE):
            for group in some:
                states[group.type, group.state] += 1
                members[group.type] += len(group.members)
                offsets += len(machine.offsets.store.of_group(group.group_id))
            yield
    page.gauge("klamm_groups", "Groups by their protocol and state.")
    for kind, names in GROUP_STATES.items():
        for name in names:
            page.add(states[kind, name], type=kind, state=name)
    page.gauge("klamm_group_members", "Members of all groups.")
    for kind in GROUP_STATES:
        page.add(members[kind], type=kind)
    page.gauge("klamm_group_offsets", "Offsets that groups have committed, and that are kept.")
    page.add(offsets)
    counters = groups.counters
    assert isinstance(counters, GroupCounters)
    page.counter("klamm_group_rebalances_total", "Generations of classic groups, epochs of consumer groups.")
    page.add(counters.classic_rebalances, type="classic")
    page.add(counters.consumer_rebalances, type="consumer")
    page.counters(
        ("klamm_group_offset_commits_total", counters.commits, "Offsets that were committed, in transactions too."),
        ("klamm_group_members_expired_total", counters.expired_members, "Members that were not heard of in time."),
        ("klamm_group_offsets_expired_total", counters.expired_offsets, "Offsets that were old, or whose topic went."),
        ("klamm_groups_expired_total", counters.expired_groups, "Groups without members whose last offset was old."),
    )


def _add_transactions(page: Exposition, transactions: Coordinator[TxnMachine]) -> Sliced[None]:
    states: Counter[str] = Counter()
    markers = 0
    for _, machine in transactions.shards():
        for some in sliced(list(machine.transactions.values()), _SLICE):
            for txn in some:
                states[txn.state.label] += 1
                if txn.prepared:
                    markers += sum(map(len, txn.partitions.values()))
            yield
    page.gauge("klamm_transactions", "Transactional ids by the state of their last transaction.")
    for name in TRANSACTION_STATES:
        page.add(states[name], state=name)
    page.gauge("klamm_transaction_markers_pending", "Partitions of transactions that are decided and not complete.")
    page.add(markers)
    counters = transactions.counters
    assert isinstance(counters, TransactionCounters)
    page.counters(
        ("klamm_transactions_committed_total", counters.committed, "Transactions that were committed."),
        ("klamm_transactions_aborted_total", counters.aborted, "Transactions that were aborted, for whatever reason."),
        ("klamm_transactions_timed_out_total", counters.timed_out, "Those of them that had taken too long."),
        ("klamm_transactional_ids_expired_total", counters.expired_ids, "Transactional ids that nobody used any more."),
    )
