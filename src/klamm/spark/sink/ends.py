"""The transactions of a sink's tasks, seen by whoever ends them. What counts is not decided here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from klamm.blocking import Admin
from klamm.client.admin.transactions import TransactionDescription
from klamm.client.errors import BrokerSaid
from klamm.client.prepared import PreparedTransaction
from klamm.core.env.real import RealClock
from klamm.core.errors import ErrorCode
from klamm.spark.errors import SparkError
from klamm.spark.sink.decisions import Names

log = logging.getLogger("klamm.spark")

_OPEN: Final = "Ongoing"
_COMMITTED: Final = ("PrepareCommit", "CompleteCommit")
_ABORTED: Final = ("PrepareAbort", "CompleteAbort")
_TIME_LEFT_MS: Final = 60_000
"""What a transaction with a time limit must have left when it is decided about, or a quarter of its limit: the time to
end it, also if the driver has to come back for that."""
_LATE_MS: Final = 15_000
"""Brokers look for late transactions every ten seconds. One that is open although it is later than that is not late:
the clocks differ."""


LAST_LOOKS: Final = 5
BETWEEN_LOOKS_S: Final = 0.5
"""Spark calls `abort` while tasks that it has just given up still run: what they begin now would be open, and in the
way of readers."""


class NotDecided(SparkError):
    """A batch cannot be decided, and nothing of it will be seen. It is right to do it again."""

    retriable = True


class HalfDone(SparkError):
    """A batch was decided, and some of its transactions cannot be committed any more."""


class OldBatch(SparkError):
    """A later batch than this one was decided: whoever does it goes by an old checkpoint, or by a copy."""


class Fate(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "forgotten"


def fate(one: PreparedTransaction, now: TransactionDescription | None) -> Fate:
    """What became of a transaction, by what is known of its id now.

    An id that is used for other things by now had its transaction committed: tasks use none again of which they have
    not seen that (`task.Worker`)."""
    if now is None:
        return Fate.UNKNOWN
    if (now.producer_id, now.producer_epoch) == (one.producer_id, one.epoch):
        if now.state == _OPEN:
            return Fate.OPEN
        return Fate.COMMITTED if now.state in _COMMITTED else Fate.ABORTED
    # In the second transaction protocol each end gives the id the next epoch; in the first only a time-out does.
    is_next = now.producer_id != one.producer_id or now.producer_epoch == one.epoch + 1
    return Fate.ABORTED if is_next and now.state in _ABORTED else Fate.COMMITTED


def describe(admin: Admin, ids: Iterable[str]) -> dict[str, TransactionDescription]:
    """Those that brokers know."""
    described = admin.describe_transactions(ids)
    for error in described.errors.values():
        if not isinstance(error, BrokerSaid) or error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise error
    return dict(described)


def open_ids(admin: Admin) -> list[str]:
    return [one.transactional_id for one in admin.list_transactions(states=[_OPEN])]


def open_ones(admin: Admin, names: Names) -> list[PreparedTransaction]:
    """What tasks of this sink have open, or had open a moment ago."""
    ids = names.tasks(open_ids(admin))
    return [
        PreparedTransaction(name, now.producer_id, now.producer_epoch)
        for name, now in describe(admin, ids).items()
        if now.state == _OPEN
    ]


def check_open(admin: Admin, transactions: Sequence[PreparedTransaction], batch: str) -> None:
    """All of them can be committed now, and for a while; else `NotDecided`."""
    described = describe(admin, [one.transactional_id for one in transactions])
    for one in transactions:
        now = described.get(one.transactional_id)
        found = fate(one, now)
        if found is not Fate.OPEN:
            raise NotDecided(
                f"{batch} cannot be committed: transaction {one.transactional_id} is {found.value}.",
                "It has to be done again. If this happens often, tasks take longer than kafka.transaction.timeout.ms.",
            )
        assert now is not None
        if _is_late(now):
            raise NotDecided(
                f"{batch} cannot be committed: transaction {one.transactional_id} is about to time out.",
                "It has to be done again. Make batches smaller, or allow brokers two-phase transactions "
                "(transaction.two.phase.commit.enable), which have no time limit; a batch write needs a name for them "
                "(txnAppId).",
            )


def _is_late(now: TransactionDescription) -> bool:
    if not now.has_limit or now.start_ms is None:
        return False
    age_ms = RealClock().time_ms() - now.start_ms
    return now.timeout_ms - min(_TIME_LEFT_MS, now.timeout_ms // 4) < age_ms < now.timeout_ms + _LATE_MS


def commit_all(admin: Admin, transactions: Iterable[PreparedTransaction]) -> list[PreparedTransaction]:
    """Commit what was decided; also if that was begun before. Those that cannot be, because they were ended otherwise:
    they are lost. An error that passes is raised."""
    told = admin.end_transactions(transactions, committed=True)
    refused = [one for one, error in told.errors.items() if isinstance(error, BrokerSaid) and not error.code.retriable]
    for one, error in told.errors.items():
        if one not in refused:
            raise error
    described = describe(admin, [one.transactional_id for one in refused])
    return [one for one in refused if fate(one, described.get(one.transactional_id)) is not Fate.COMMITTED]


def abort_all(admin: Admin, transactions: Iterable[PreparedTransaction]) -> None:
    """End what does not count. What cannot be ended now is found again with the next batch."""
    told = admin.end_transactions(transactions, committed=False)
    for one, error in told.errors.items():
        log.info("A transaction that does not count, %s, could not be aborted now: %s", one.transactional_id, error)
