"""A batch write that nobody will do again under the same name: all of its transactions are committed, or none is.

There is nothing to write down: should the driver die before the first of them is committed, brokers abort all when they
time out, which is why these are no two-phase transactions. Should it die between two of them, a part is missing, and no
one comes back for it; whoever cannot have that gives the write a name (`txnAppId`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from klamm.blocking import Admin
from klamm.client.prepared import PreparedTransaction
from klamm.spark.sink.decisions import Names
from klamm.spark.sink.ends import (
    BETWEEN_LOOKS_S,
    LAST_LOOKS,
    Fate,
    HalfDone,
    abort_all,
    check_open,
    commit_all,
    describe,
    fate,
    open_ones,
)


def commit(admin: Admin, names: Names, transactions: Sequence[PreparedTransaction]) -> None:
    check_open(admin, transactions, "The write")
    _commit(admin, names, transactions)


def abort(admin: Admin, names: Names, transactions: Sequence[PreparedTransaction]) -> None:
    """Spark calls this also after a commit that has failed; if that has committed anything, it is gone on with."""
    described = describe(admin, [one.transactional_id for one in transactions])
    if any(fate(one, described.get(one.transactional_id)) is Fate.COMMITTED for one in transactions):
        _commit(admin, names, transactions)
    else:
        abort_all(admin, {*transactions, *open_ones(admin, names)})
        for _ in range(LAST_LOOKS):
            time.sleep(BETWEEN_LOOKS_S)
            abort_all(admin, open_ones(admin, names))


def _commit(admin: Admin, names: Names, transactions: Sequence[PreparedTransaction]) -> None:
    lost = commit_all(admin, transactions)
    abort_all(admin, open_ones(admin, names))  # of tasks that ran twice: they are this write's alone
    if lost:
        raise HalfDone(
            f"{len(lost)} of {len(transactions)} transactions of the write could not be committed.",
            "Their rows are missing in the topic. They have timed out: kafka.transaction.timeout.ms is the limit.",
        )
