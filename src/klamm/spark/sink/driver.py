"""What the driver of a sink does when all tasks of a batch are done: decide, then carry it out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klamm.admin import NewTopic
from klamm.blocking import Admin, Consumer, Producer
from klamm.client.errors import BrokerSaid, ProducerFenced
from klamm.client.membership import Offset
from klamm.client.prepared import PreparedTransaction
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.spark.errors import SparkError
from klamm.spark.sink.decisions import PARTITIONS, TOPIC, Decision, Names
from klamm.spark.sink.task import Job, Written, pointer

log = logging.getLogger("klamm.spark")

_OPEN: Final = "Ongoing"


class NotDecided(SparkError):
    """A batch cannot be decided, and nothing of it will be seen. It is right to do it again."""

    retriable = True


class HalfDone(SparkError):
    """A batch was decided, and some of its transactions cannot be committed any more."""


class Decider:
    """For one sink, by whoever commits its batches. Another one for the same sink ends this one's rights."""

    def __init__(self, config: Mapping[str, str], sink: str) -> None:
        self._names = Names(sink)
        self._config = dict(config)
        self._admin = Admin(config=self._config)
        self._admin.start()
        self._producer: Producer | None = None
        self._last: Decision | None = None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._admin.close()

    def commit(self, job: Job, written: Sequence[Written]) -> None:
        """When this returns, all rows of the batch can be read, and nothing else of it ever can."""
        transactions = [one.transaction for one in written if one.transaction is not None]
        if not transactions and not any(one.is_done for one in written):
            return  # no rows: there is nothing to decide
        self._begin()
        if self._last is not None and job.batch <= self._last.batch:
            if job.batch == self._last.batch:
                self._end_all(job, self._last.transactions)
            self.abort(transactions)
            return
        losers = self._check(job, transactions)
        decision = Decision(job.batch, tuple(transactions))
        self._decide(decision)
        self._end_all(job, decision.transactions)
        self.abort(losers)

    def _begin(self) -> None:
        """Take over, and read what was decided before."""
        if self._producer is not None:
            return
        self._make_topic()
        producer = Producer(config={**self._config, "transactional.id": self._names.decider, "linger.ms": "0"})
        producer.start()
        try:
            producer.init_transactions()
            self._last = self._read()
        except BaseException:
            producer.close()
            raise
        self._producer = producer

    def _make_topic(self) -> None:
        if TOPIC in self._admin.list_topics():
            return
        topic = NewTopic(TOPIC, partitions=PARTITIONS, configs={"cleanup.policy": "compact"})
        try:
            self._admin.create_topics([topic]).check()
        except BrokerSaid as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _read(self) -> Decision | None:
        found = pointer(self._admin, self._names)
        if found is None:
            return None
        place, offset, batch = found
        config = {**self._config, "isolation.level": "read_committed", "auto.offset.reset": "none"}
        with Consumer(config=config) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            record = consumer.getone()
        if record.offset != offset or record.value is None:
            raise SparkError(f"The decision about batch {batch} of {self._names.sink} is not at {offset} of {place}.")
        return Decision.from_bytes(record.value)

    def _check(self, job: Job, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction]:
        """Are they all still open? And which others of this sink are?

        What is open now and does not count was begun by a task that is not needed, or by one of a driver that is no
        more. It is only ended after the decision, when nobody can decide otherwise."""
        counts = {one.transactional_id: one for one in transactions}
        listed = self._admin.list_transactions(states=[_OPEN])
        ids = self._names.tasks(one.transactional_id for one in listed)
        described = self._admin.describe_transactions({*ids, *counts})
        for one in transactions:
            now = described.get(one.transactional_id)
            if now is None or (now.state, now.producer_id, now.producer_epoch) != (_OPEN, one.producer_id, one.epoch):
                state = (
                    f"it is {now.state}"
                    if now is not None
                    else str(described.errors.get(one.transactional_id, "it is gone"))
                )
                raise NotDecided(
                    f"Batch {job.batch} cannot be committed: transaction {one.transactional_id} has ended, {state}.",
                    "The batch has to be done again. If this happens often, tasks take longer than "
                    "kafka.transaction.timeout.ms.",
                )
        return [
            PreparedTransaction(name, now.producer_id, now.producer_epoch)
            for name in ids
            if name not in counts and (now := described.get(name)) is not None and now.state == _OPEN
        ]

    def _decide(self, decision: Decision) -> None:
        producer = self._producer
        assert producer is not None
        try:
            with producer.transaction():
                where = producer.send(TOPIC, decision.to_bytes(), key=self._names.sink.encode())
                place = TopicPartition(where.topic, where.partition)
                producer.send_offsets({place: Offset(where.offset, metadata=str(decision.batch))}, self._names.group)
        except ProducerFenced as error:
            raise NotDecided(
                f"Another driver has taken over {self._names.sink}.", "Only one query may run on a checkpoint."
            ) from error
        self._last = decision

    def _end_all(self, job: Job, transactions: Iterable[PreparedTransaction]) -> None:
        """Commit what was decided; again, if that was begun before."""
        told = self._admin.end_transactions(transactions, committed=True)
        for one, error in told.errors.items():
            raise HalfDone(
                f"Batch {job.batch} is decided, and {len(told.errors)} of its transactions cannot be committed: "
                f"{one.transactional_id}, {error.text}",
                "Their rows are missing in the topic. See docs/spark.md, 'When an end is refused'.",
            ) from error

    def abort(self, transactions: Iterable[PreparedTransaction]) -> None:
        """End what does not count. What cannot be ended now is found again with the next batch."""
        told = self._admin.end_transactions(transactions, committed=False)
        for one, error in told.errors.items():
            log.info(
                "A transaction that does not count, %s, could not be aborted now: %s", one.transactional_id, error.text
            )
