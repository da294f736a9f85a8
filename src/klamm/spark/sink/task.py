"""What a task of a sink does: it writes its rows, and says by which transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from klamm.blocking import Admin, Producer
from klamm.client.errors import UnsupportedVersion
from klamm.client.prepared import PreparedTransaction
from klamm.core.env.real import real_env
from klamm.spark.kept import Kept
from klamm.spark.options import Guarantee, SinkOptions
from klamm.spark.sink.decisions import TOPIC, Names
from klamm.spark.sink.rows import split

if TYPE_CHECKING:
    import pyarrow

    from klamm.core.ids import TopicPartition

_DEFAULTS: Final = {
    "linger.ms": "20",
    "batch.size": str(512 << 10),
    "buffer.memory": str(64 << 20),
}
_TWO_PHASES: Final = "transaction.two.phase.commit.enable"
_TIMEOUT: Final = {"transaction.timeout.ms": str(15 * 60_000)}
"""Where a broker has no two-phase transactions, one must not time out before the driver has decided: this is the
longest that brokers allow unless told."""


@dataclass(frozen=True)
class Job:
    """What the tasks of one batch have in common."""

    sink: str
    batch: int


@dataclass(frozen=True)
class Written:
    """What a task tells the driver."""

    job: Job | None = None
    transaction: PreparedTransaction | None = None
    rows: int = 0
    is_done: bool = False
    """The batch was decided before: nothing was written."""


def write(batches: Iterator[pyarrow.RecordBatch], options: SinkOptions, job: Job | None) -> Written:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Written(job)
    rows = chain((first,), batches)
    if options.guarantee is Guarantee.AT_LEAST_ONCE or job is None:
        with producers.lend(options.client) as producer:
            sent = _send(producer, rows, options)
            producer.flush()
            return Written(rows=sent)
    names = Names(job.sink)
    with admins.lend(options.client) as admin:
        decided = decided_batch(admin, names)
    if decided is not None and job.batch <= decided:
        return Written(job, is_done=True)
    with workers.lend(options.client) as worker:
        return worker.write(rows, options, job, names)


def decided_batch(admin: Admin, names: Names) -> int | None:
    """Up to which batch everything is written."""
    found = pointer(admin, names)
    return None if found is None else found[2]


def pointer(admin: Admin, names: Names) -> tuple[TopicPartition, int, int] | None:
    """Where the last decision stands, and its batch."""
    for place, committed in admin.list_group_offsets(names.group, require_stable=True).check().items():
        if place.topic == TOPIC:
            return place, committed.offset, int(committed.metadata)
    return None


def _send(producer: Producer, batches: Iterable[pyarrow.RecordBatch], options: SinkOptions) -> int:
    sent = 0
    for batch in batches:
        for rows in split(batch, options.topic):
            producer.send_many(rows.topic, rows.values, keys=rows.keys, headers=rows.headers, partition=rows.partition)
        sent += batch.num_rows
    return sent


class Worker:
    """The transactional producers of this process, one for each transaction that is open at the same time. After the
    driver has decided about a batch, what is done for the next takes the same ids again, so there are few of them."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._name = real_env().uuid().hex()
        self._two_phases = _TWO_PHASES not in config or config[_TWO_PHASES].lower() == "true"
        self._sink = ""
        self._batch = -1
        self._used = 0
        self._producers: list[Producer] = []

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        self._producers.clear()

    def write(self, rows: Iterable[pyarrow.RecordBatch], options: SinkOptions, job: Job, names: Names) -> Written:
        producer = self._next(job, names)
        producer.begin()
        try:
            sent = _send(producer, rows, options)
            return Written(job, producer.prepare(), sent)
        except Exception:
            producer.abort()
            raise

    def _next(self, job: Job, names: Names) -> Producer:
        if job.sink != self._sink:
            self.close()
            self._sink, self._batch = job.sink, -1
        if job.batch != self._batch:
            self._batch, self._used = job.batch, 0
        if self._used == len(self._producers):
            self._producers.append(self._open(names.transaction(self._name, self._used)))
        self._used += 1
        return self._producers[self._used - 1]

    def _open(self, transactional_id: str) -> Producer:
        config = {**_DEFAULTS, **_TIMEOUT, **self._config, "transactional.id": transactional_id}
        if self._two_phases:
            producer = Producer(config={**config, _TWO_PHASES: "true"})
            try:
                producer.start()
                producer.init_transactions()
                return producer
            except UnsupportedVersion:
                producer.close()
                self._two_phases = False
        producer = Producer(config={**config, _TWO_PHASES: "false"})
        producer.start()
        return producer


def _producer(config: Mapping[str, str]) -> Producer:
    producer = Producer(config={**_DEFAULTS, **config})
    producer.start()
    return producer


def _admin(config: Mapping[str, str]) -> Admin:
    admin = Admin(config=dict(config))
    admin.start()
    return admin


producers: Final = Kept(_producer)
admins: Final = Kept(_admin)
workers: Final = Kept(Worker)
