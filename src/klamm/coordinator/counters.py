"""What the coordinators of a broker count, since its start: plain numbers for whoever shows them.

They outlive shards and machines, which may be thrown away and loaded anew at any time; what is replayed while a machine
loads has happened before, and counts nowhere. This module must stay free of imports: every broker has its counters,
also one that nobody joins a group on.
"""

from __future__ import annotations


class Counters:
    """Of the shards of one coordinator."""

    __slots__ = ("events", "load_failures", "load_s", "loads", "restarts")

    def __init__(self) -> None:
        self.events = 0
        """Requests and others that a machine has decided on."""
        self.loads = 0
        """Logs that were replayed to their end, and how long that took, without the wait for a turn."""
        self.load_s = 0.0
        self.load_failures = 0
        self.restarts = 0
        """Machines that were thrown away, because their log had not taken a batch or was another's for a while."""


class GroupCounters(Counters):
    __slots__ = (
        "classic_rebalances",
        "commits",
        "consumer_rebalances",
        "expired_groups",
        "expired_members",
        "expired_offsets",
    )

    def __init__(self) -> None:
        super().__init__()
        self.classic_rebalances = 0
        """Generations that have begun."""
        self.consumer_rebalances = 0
        """Group epochs that have begun."""
        self.commits = 0
        """Offsets that were written, those of transactions as well."""
        self.expired_offsets = 0
        self.expired_groups = 0
        self.expired_members = 0


class TransactionCounters(Counters):
    """A transaction counts when it is decided how it ends."""

    __slots__ = ("aborted", "committed", "expired_ids", "timed_out")

    def __init__(self) -> None:
        super().__init__()
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        """Of the aborted ones."""
        self.expired_ids = 0
