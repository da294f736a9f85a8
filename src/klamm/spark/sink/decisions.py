"""What was decided about a sink: up to which batch its rows are written, and by which transactions. Pure but for names.

The last decision of each sink is a record in a compacted topic, and its place is what a group of the sink's name has
committed there, with the number of the batch: one question tells a task whether its batch is done. Both are written in
one transaction by a producer whose id is the sink's, so a driver that was replaced can decide nothing more. The group
may be forgotten (brokers do that with groups that nobody uses for a week); the record stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from klamm.client.prepared import PreparedTransaction

TOPIC: Final = "__klamm_spark_decisions"
PARTITIONS: Final = 8
CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small segments and early compaction: whoever has to read all of it finds little.
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


class Names:
    """What belongs to one sink."""

    def __init__(self, sink: str) -> None:
        self.sink = sink
        self.group = f"klamm-spark/{sink}"
        self.decider = f"{self.group}/decider"
        self._task = f"{self.group}/task/"

    def transaction(self, worker: str, number: int, run: str = "") -> str:
        """The id of a worker's transaction. A worker is one process and runs a task at a time, and it numbers what it
        uses, so nobody else ever has it."""
        return f"{self._run(run)}{worker}/{number}"

    def is_of_run(self, transactional_id: str, run: str) -> bool:
        return transactional_id.startswith(self._run(run))

    def _run(self, run: str) -> str:
        return f"{self._task}{run[:8]}-" if run else self._task

    def tasks(self, ids: Iterable[str]) -> list[str]:
        """Those ids that are of this sink's tasks."""
        return [one for one in ids if one.startswith(self._task)]

    # In a decision, ids stand without what all of them have in common: there may be thousands.

    def shortened(self, one: PreparedTransaction) -> tuple[str, int, int]:
        assert one.transactional_id.startswith(self._task), one
        return one.transactional_id.removeprefix(self._task), one.producer_id, one.epoch

    def whole(self, shortened: Sequence[Any]) -> PreparedTransaction:
        name, producer_id, epoch = shortened
        return PreparedTransaction(self._task + name, producer_id, epoch)


@dataclass(frozen=True)
class Decision:
    batch: int
    """Everything up to this batch is written."""
    transactions: tuple[PreparedTransaction, ...] | None = ()
    """Those of this batch; None if that is not known any more, because somebody has deleted the record."""
    void: tuple[PreparedTransaction, ...] = ()
    """Those that were open beside them, and are aborted: from here on nobody counts them."""

    def to_bytes(self, names: Names) -> bytes:
        counted, void = ([names.shortened(one) for one in all_] for all_ in (self.transactions or (), self.void))
        return json.dumps({"batch": self.batch, "transactions": counted, "void": void}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, names: Names) -> Decision:
        found = json.loads(data)
        counted, void = (tuple(map(names.whole, found.get(name, ()))) for name in ("transactions", "void"))
        return cls(int(found["batch"]), counted, void)


NOTHING_YET: Final = Decision(-1)


# Names of sinks. They become parts of ids that are put together, so what users chose is quoted.


def of_query(query_id: str) -> str:
    """The sink of a streaming query. The id stands in its checkpoint, and stays over restarts."""
    return f"query:{quote(query_id, safe='')}"


def of_application(app_id: str, topic: str | None) -> str:
    """The sink of batch writes with `txnAppId`. One application may write the same version to several topics."""
    return f"app:{quote(topic or '', safe='')}:{quote(app_id, safe='')}"


def of_one_write(name: str) -> str:
    """The sink of one batch write, of which there will be no other."""
    return f"once:{quote(name, safe='')}"
