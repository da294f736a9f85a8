"""What was decided about a sink: up to which batch its rows are written, and by which transactions. Pure but for names.

The last decision of each sink is a record in a compacted topic, and its place is what a group of the sink's name has
committed there, with the number of the batch: one question tells a task whether its batch is done. Both are written in
one transaction by a producer whose id is the sink's, so a driver that was replaced can decide nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from klamm.client.prepared import PreparedTransaction

TOPIC: Final = "__klamm_spark_decisions"
PARTITIONS: Final = 8


@dataclass(frozen=True)
class Decision:
    batch: int
    """Everything up to this batch is written."""
    transactions: tuple[PreparedTransaction, ...] = ()
    """Those of this batch."""

    def to_bytes(self) -> bytes:
        return json.dumps({"batch": self.batch, "transactions": self.transactions}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Decision:
        found = json.loads(data)
        return cls(int(found["batch"]), tuple(PreparedTransaction(*one) for one in found["transactions"]))


class Names:
    """What belongs to one sink. Its name may be anything; here it is made fit for ids that are put together."""

    def __init__(self, sink: str) -> None:
        self.sink = sink
        self._prefix = f"klamm-spark/{quote(sink, safe='')}/"
        self.group = self._prefix.rstrip("/")
        self.decider = f"{self._prefix}decider"

    def transaction(self, worker: str, slot: int) -> str:
        """The id of a worker's transaction. A worker is one process and runs a task at a time, so nobody else uses it;
        `slot` counts those that it has open at once."""
        return f"{self._prefix}task/{worker}/{slot}"

    def tasks(self, ids: Iterable[str]) -> list[str]:
        """Those ids that are of this sink's tasks."""
        return [one for one in ids if one.startswith(f"{self._prefix}task/")]


def of_query(query_id: str) -> str:
    """The name of the sink of a streaming query. The id stands in its checkpoint, and stays over restarts."""
    return f"query-{query_id}"


def of_application(app_id: str) -> str:
    return f"app-{app_id}"
