"""A transaction coordinator without a broker, and short words for what clients ask of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.coordinator.machine import Now, Outcome, Producer
from klamm.coordinator.records import TRANSACTIONS
from klamm.coordinator.transactions.decisions import Init
from klamm.coordinator.transactions.machine import Ended, Initialized, Settings, TxnMachine, WriteMarkers
from klamm.coordinator.transactions.state import State, Transaction, to_record
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.metadata.features import TRANSACTION_VERSION
from klamm.metadata.image import Image
from support.coordinators import Reflex

NONE = ErrorCode.NONE
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
START_MS = 1_700_000_000_000
LAST_EPOCH = 32766


class Driver(Reflex[TxnMachine]):
    """A coordinator whose effects wait to be carried out."""

    def __init__(self, *, version: int = 2, settings: Settings | None = None) -> None:
        self.next_id: int | None = 100
        super().__init__(lambda: TxnMachine(settings or Settings(), self._take_id), TRANSACTIONS)
        self.publish(Image(features={TRANSACTION_VERSION: version}))
        self.do(lambda machine, now: machine.loaded(now))

    def _take_id(self) -> int | None:
        taken = self.next_id
        if taken is not None:
            self.next_id = taken + 1
        return taken

    def crash(self) -> None:
        """The machine is lost, and what was to be done: the next one starts from the log, and must be its equal."""
        before = dict(self.machine.transactions)
        self.effects.clear()
        super().crash()
        assert self.machine.transactions == before

    def write_markers(self) -> list[WriteMarkers]:
        """Carry out all effects."""
        done = [markers for markers in self.effects if isinstance(markers, WriteMarkers)]
        self.effects.clear()
        for markers in done:
            self.do(partial(_completed, markers))
        return done

    # ---- requests

    def init(
        self,
        transactional_id: str = "x",
        *,
        timeout_ms: int = 60_000,
        expected: Producer | None = None,
        keep: bool = False,
        two_phase: bool = False,
    ) -> Initialized:
        ask = Init(transactional_id, timeout_ms, expected, keep)
        answer = self.ask(
            lambda machine, reply, now: machine.init_producer_id(reply, now, _it, ask, two_phase_commit=two_phase)
        ).answer
        assert isinstance(answer, Initialized)
        return answer

    def add(self, producer: Producer, *partitions: TopicPartition, id_: str = "x", version: int = 2) -> ErrorCode:
        answer = self.ask(
            lambda machine, reply, now: machine.add_partitions(
                reply, now, _it, id_, producer, partitions or (T0,), version=version
            )
        ).answer
        assert isinstance(answer, ErrorCode)
        return answer

    def verify(self, producer: Producer, *partitions: TopicPartition, id_: str = "x") -> list[ErrorCode]:
        written = len(self.log)
        answer = self.ask(
            lambda machine, reply, now: machine.verify_partitions(reply, now, _it, id_, producer, partitions)
        ).answer
        assert len(self.log) == written
        return [answer[one] for one in partitions]

    def finish(self, producer: Producer, committed: bool = True, *, id_: str = "x", version: int = 2) -> Ended:
        answer = self.ask(
            lambda machine, reply, now: machine.end(
                reply, now, _it, id_, producer, committed=committed, version=version
            )
        ).answer
        assert isinstance(answer, Ended)
        return answer

    def begin(self, *partitions: TopicPartition, version: int = 2, **options: Any) -> Producer:
        """A producer with an open transaction."""
        initialized = self.init(**options)
        assert initialized.error == NONE
        assert self.add(initialized.producer, *partitions, version=version) == NONE
        return initialized.producer

    def txn(self, transactional_id: str = "x") -> Transaction:
        return self.machine.transactions[transactional_id]

    def state(self) -> State:
        return self.txn().state

    def put(self, txn: Transaction) -> None:
        """As if it had been written before."""
        self.do(lambda machine, now: Outcome([to_record(txn)]))


def _it(answer: Any) -> Any:
    return answer


def _completed(markers: WriteMarkers, machine: TxnMachine, now: Now) -> Outcome:
    return machine.completed(markers, now)
