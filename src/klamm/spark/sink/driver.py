"""What the driver of a sink does when all tasks of a batch are done: decide, then carry it out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from klamm.admin import NewTopic
from klamm.blocking import Admin, Consumer, Producer
from klamm.client.errors import BrokerSaid, ProducerFenced
from klamm.client.membership import Offset
from klamm.client.prepared import PreparedTransaction
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.consuming import ConsumerRecord
from klamm.spark.sink.decisions import CONFIGS, NOTHING_YET, PARTITIONS, TOPIC, Decision, Names
from klamm.spark.sink.ends import (
    BETWEEN_LOOKS_S,
    LAST_LOOKS,
    HalfDone,
    NotDecided,
    OldBatch,
    abort_all,
    check_open,
    commit_all,
    open_ids,
    open_ones,
)
from klamm.spark.sink.task import Job, Written, decided_batch, pointer

log = logging.getLogger("klamm.spark")

_PRODUCER: Final = {
    "linger.ms": "0",
    # Nobody waits for the end of a decision whose driver is gone: the next driver ends it, at the latest this does.
    "transaction.timeout.ms": "30000",
    "transaction.two.phase.commit.enable": "false",
}
_WAIT_MS: Final = 500
_HASTE: Final = {"default.api.timeout.ms": "5000", "max.block.ms": "5000", "request.timeout.ms": "5000"}
"""For what is tried when a query is stopped: if brokers cannot be reached, nobody is to wait for it long."""


class Decider:
    """For one commit. Entering it takes over the sink: whoever was about to decide no longer can, and what was decided
    is read. It is not kept for the next batch: Spark commits those of a query in any of several processes."""

    def __init__(self, admin: Admin, config: Mapping[str, str], sink: str) -> None:
        self._names = Names(sink)
        self._admin = admin
        self._config = dict(config)
        self._producer = Producer(config={**config, **_PRODUCER, "transactional.id": self._names.decider})
        self._last: Decision | None = None

    def __enter__(self) -> Decider:
        self._make_topic()
        self._producer.start()
        try:
            self._producer.init_transactions()
            self._last = self._read()
        except BaseException:
            self._producer.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def commit(self, job: Job, written: Sequence[Written], *, fail_on_data_loss: bool = True) -> None:
        """When this returns, all rows of the batch are committed, and nothing else of it ever will be."""
        ours = transactions(written)
        last = self._last
        is_decided = last is not None and job.batch <= last.batch
        if not is_decided and any(one.is_done for one in written):
            raise self._replaced()
        if last is not None and job.run and job.batch < last.batch:
            abort_all(self._admin, ours)
            raise self._gone_on(job.batch, last.batch)
        others = self._finish_last(set(ours))
        if is_decided:
            assert last is not None
            if job.batch == last.batch:
                self._end(last, fail_on_data_loss)
            abort_all(self._admin, ours)
            return
        if not ours and not others:
            return  # no rows, and nothing to end: there is nothing to decide
        if last is not None and not set(last.void).isdisjoint(ours):
            raise NotDecided(f"Batch {job.batch} was given up by another driver.", "It has to be done again.")
        check_open(self._admin, ours, f"Batch {job.batch}")
        decision = Decision(job.batch, tuple(ours), tuple(others))
        self._decide(decision)
        self._end(decision, fail_on_data_loss)
        abort_all(self._admin, others)

    def _finish_last(self, ours: set[PreparedTransaction]) -> list[PreparedTransaction]:
        """Commit what the last decision has left open, whichever batch it is about. What else is open and not `ours`
        was begun by a task that is not needed, or by one of a driver that is no more, or is thought to be. It is only
        ended after our decision, in which it stands: then nobody else can count it."""
        before = set() if self._last is None else set(self._last.transactions or ())
        others = set(open_ones(self._admin, self._names)) - ours
        commit_all(self._admin, others & before)
        return sorted(others - before)

    def give_up(self, run: str) -> None:
        """End what a run has left open, and nobody may come back for: what was decided is committed, all else voided.
        That is a decision as well, which says the same of everything else as the one before: somebody may be about to
        count just that, after all."""
        last = self._last or NOTHING_YET
        if last.transactions is None:
            return
        others = set(open_ones(self._admin, self._names))
        commit_all(self._admin, others.intersection(last.transactions))
        others.difference_update(last.transactions)
        void = {one for one in others if self._names.is_of_run(one.transactional_id, run)}
        if void:
            self._decide(replace(last, void=tuple(sorted(void.union(others.intersection(last.void))))))
            abort_all(self._admin, void)

    # Taking over.

    def _make_topic(self) -> None:
        if TOPIC in self._admin.list_topics():
            return
        try:
            self._admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)]).check()
        except BrokerSaid as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _read(self) -> Decision | None:
        found = pointer(self._admin, self._names, require_stable=True)
        if found is None:
            return self._search()
        place, offset, batch = found
        return self._at(place, offset) or Decision(batch, None)

    def _at(self, place: TopicPartition, offset: int) -> Decision | None:
        """The decision that is known to be there, unless somebody has deleted it. It is committed, because its place
        is; the topic has transactions of other sinks, and of those it is not to depend."""
        with self._reader("read_uncommitted") as consumer:
            if place.partition not in consumer.partitions_for(TOPIC):
                return None
            first, end = consumer.beginning_offsets(place)[place], consumer.end_offsets(place)[place]
            if not first <= offset < end:
                return None
            consumer.assign([place])
            consumer.seek(place, offset)
            for _, record in self._records(consumer, {place: offset + 1}):
                if record.offset == offset:
                    return Decision.from_bytes(record.value or b"", self._names)
        return None

    def _search(self) -> Decision | None:
        """The last decision, of which no group tells: there is none, or the group was forgotten."""
        with self._reader("read_uncommitted") as consumer:
            ends = consumer.end_offsets(*(TopicPartition(TOPIC, index) for index in consumer.partitions_for(TOPIC)))
        # Only who has decided before waits for the end of transactions, which may be those of other sinks.
        mine = {place: record.offset + 1 for place, record in self._scan("read_uncommitted", ends)}
        found = (
            Decision.from_bytes(record.value or b"", self._names) for _, record in self._scan("read_committed", mine)
        )
        return max(reversed(list(found)), key=lambda one: one.batch, default=None)  # of two about one batch the later

    def _scan(
        self, isolation: str, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, ConsumerRecord]]:
        """This sink's records up to there."""
        with self._reader(isolation) as consumer:
            consumer.assign(ends)
            consumer.seek_to_beginning(*ends)
            yield from self._records(consumer, ends)

    def _records(
        self, consumer: Consumer, ends: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, ConsumerRecord]]:
        silent_ms = 0
        while any(consumer.position(place) < end for place, end in ends.items()):
            found = consumer.getmany(timeout_ms=_WAIT_MS)
            silent_ms = 0 if found else silent_ms + _WAIT_MS
            if silent_ms >= consumer.config.default_api_timeout_ms:
                raise NotDecided(f"{TOPIC} cannot be read.", "Its brokers do not answer, or not in time.")
            for place, records in found.items():
                for record in records:
                    if record.key == self._key and record.value is not None:
                        yield place, record

    def _reader(self, isolation: str) -> Consumer:
        return Consumer(config={**self._config, "isolation.level": isolation, "auto.offset.reset": "none"})

    @property
    def _key(self) -> bytes:
        return self._names.sink.encode()

    # Deciding.

    def _decide(self, decision: Decision) -> None:
        producer = self._producer
        try:
            with producer.transaction():
                where = producer.send(TOPIC, decision.to_bytes(self._names), key=self._key)
                place = TopicPartition(where.topic, where.partition)
                producer.send_offsets({place: Offset(where.offset, metadata=str(decision.batch))}, self._names.group)
        except ProducerFenced as error:
            raise self._replaced() from error

    def _replaced(self) -> NotDecided:
        return NotDecided(
            f"Another driver has taken over {self._names.sink}.", "Only one query may run on a checkpoint."
        )

    def _gone_on(self, batch: int, decided: int) -> OldBatch:
        """A query repeats its last batch at most. Of one before that nobody knows whether the rows are the same again:
        they would be left out, and missed."""
        return OldBatch(
            f"Batch {batch} of {self._names.sink} cannot be written: batch {decided} was.",
            "The checkpoint is an old one, or a copy, or another driver has gone on with it. Use a new one.",
        )

    def _end(self, decision: Decision, fail_on_data_loss: bool) -> None:
        text = ""
        if decision.transactions is None:
            text = f"Batch {decision.batch} was decided, and the record of it in {TOPIC} is gone."
        elif lost := commit_all(self._admin, decision.transactions):
            text = (
                f"Batch {decision.batch} was decided, and {len(lost)} of its {len(decision.transactions)} transactions "
                f"cannot be committed any more: {lost[0].transactional_id} and so on."
            )
        if not text:
            return
        if fail_on_data_loss:
            raise HalfDone(
                f"{text} Rows may be missing in the topic.",
                "Set failOnDataLoss=false to go on without them. How this can happen stands in docs/spark.md, "
                "'When an end is refused'.",
            )
        log.error("%s Rows may be missing. The query goes on, because failOnDataLoss is false.", text)


def abort(admin: Admin, job: Job, messages: Sequence[Written | None]) -> None:
    """A batch has failed. Spark calls this also if all tasks are done and the commit has failed. Then it may have been
    decided, and nothing is ended here: whoever does it again commits what counts, and aborts the rest.

    What was about to be decided is waited for. Nothing of it can come later: the last step of a decision is only taken
    when the one before it, which is seen here, is done."""
    if None not in messages:
        decided = decided_batch(admin, Names(job.sink), require_stable=True)
        if decided is not None and job.batch <= decided:
            return
    abort_all(admin, transactions(messages))


def give_up(
    config: Mapping[str, str],
    sink: str,
    run: str,
    *,
    are_at_work: bool = True,
    is_needed: Callable[[], bool] = lambda: True,
) -> None:
    """End what the tasks of a run have open that has ended itself. No driver was told of those that were stopped, and
    some may still be at work. Not `is_needed`: there is another run by now, which does it with its next decision, and
    must not be fenced."""
    names, config = Names(sink), {**_HASTE, **config}
    with Admin(config=config) as admin:  # none that is kept: this may run in several threads
        for look in range(LAST_LOOKS + 1 if are_at_work else 1):
            if look:
                time.sleep(BETWEEN_LOOKS_S)
            if not is_needed():
                return
            if any(names.is_of_run(one, run) for one in open_ids(admin)):
                with Decider(admin, config, sink) as decider:
                    decider.give_up(run)


def transactions(messages: Sequence[Written | None]) -> list[PreparedTransaction]:
    return [one.transaction for one in messages if one is not None and one.transaction is not None]
