"""What a task of a sink does: it writes its rows, and says by which transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from klamm.blocking import Admin, Producer
from klamm.client.errors import BrokerSaid, ClientError, UnsupportedVersion
from klamm.client.prepared import PreparedTransaction
from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.spark.errors import BadOption, is_gone
from klamm.spark.kept import Kept
from klamm.spark.options import Guarantee, SinkOptions
from klamm.spark.sink.decisions import PARTITIONS, TOPIC, Names
from klamm.spark.sink.ends import Fate, abort_all, describe, fate
from klamm.spark.sink.rows import split

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("klamm.spark")

_DEFAULTS: Final = {
    "linger.ms": "20",
    "batch.size": str(512 << 10),
    "buffer.memory": str(64 << 20),
}
_TWO_PHASES: Final = "transaction.two.phase.commit.enable"
_LIMIT: Final = "transaction.timeout.ms"
_LIMIT_MS: Final = 15 * 60_000
"""Where a broker has no two-phase transactions, one must not time out before the driver has decided: this is the
longest that brokers allow unless told."""
_MAX_SINKS: Final = 16
"""Of how many sinks a process keeps producers for the next batch."""
_MAX_SPARE: Final = 8
"""A worker of a long-lived session may see queries of many clusters, or of many users."""

_Whose = tuple[str, str]
"""A sink, and the run of its query."""


@dataclass(frozen=True)
class Job:
    """What the tasks of one batch have in common."""

    sink: str
    batch: int
    is_once: bool = False
    """There will be no other batch of this sink, and nobody comes back for this one."""
    run: str = ""
    """Of a stream: it is in the ids of the transactions, so that what a run that was stopped has left is found."""


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
    with admins.lend(options.client) as admin, workers.lend(options.client) as worker:
        if job.is_once:
            return worker.write(admin, rows, options, job)
        names = Names(job.sink)
        if _is_decided(admin, names, job):
            return Written(job, is_done=True)
        written = worker.write(admin, rows, options, job)
        if _is_decided(admin, names, job):
            # While we wrote: another attempt was faster, or another driver. What we wrote counts nowhere, because
            # nobody was told of it, and nobody would end it before the next batch.
            assert written.transaction is not None
            abort_all(admin, [written.transaction])
            return Written(job, is_done=True)
        return written


def _is_decided(admin: Admin, names: Names, job: Job) -> bool:
    """Only saves work, so a decision that is being written is not waited for: its driver may be dead."""
    decided = decided_batch(admin, names, require_stable=False)
    return decided is not None and job.batch <= decided


def decided_batch(admin: Admin, names: Names, *, require_stable: bool) -> int | None:
    """Up to which batch everything is written, as far as a group tells."""
    found = pointer(admin, names, require_stable=require_stable)
    return None if found is None else found[2]


def pointer(admin: Admin, names: Names, *, require_stable: bool) -> tuple[TopicPartition, int, int] | None:
    """Where the last decision stands, and its batch."""
    places = _of_decisions(admin) if require_stable else None
    offsets = admin.list_group_offsets(names.group, places, require_stable=require_stable).check()
    found = [(place, at.offset, int(at.metadata)) for place, at in offsets.items() if place.topic == TOPIC]
    return max(found, key=lambda one: one[2], default=None)


def _of_decisions(admin: Admin) -> list[TopicPartition]:
    """Asked for all offsets that a group has, brokers say nothing of its first one as long as that is not committed,
    and nobody would wait for it. They do say it of partitions that are asked for."""
    described = admin.describe_topics([TOPIC])
    error = described.errors.get(TOPIC)
    if error is not None and not is_gone(error):
        raise error
    return [TopicPartition(TOPIC, index) for index in (range(PARTITIONS) if error else described[TOPIC].partitions)]


def _send(producer: Producer, batches: Iterable[pyarrow.RecordBatch], options: SinkOptions) -> int:
    sent = 0
    for batch in batches:
        for rows in split(batch, options.topic):
            producer.send_many(rows.topic, rows.values, keys=rows.keys, headers=rows.headers, partition=rows.partition)
        sent += batch.num_rows
    return sent


@dataclass(frozen=True)
class _Used:
    """A producer with the last transaction that it has prepared."""

    producer: Producer
    prepared: PreparedTransaction
    batch: int


class Worker:
    """The transactional producers of this process, one for each transaction that is open at the same time.

    Their ids are used again for later batches, so that there are few of them; but only when the transaction before was
    seen committed. To take over an id aborts what is open under it, and that may have been decided; and one that was
    aborted leaves its id as the evidence that it was."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._name = real_env().uuid().hex()
        self._wants_two_phases = self._config.pop(_TWO_PHASES, "").lower()
        self._has_two_phases = self._wants_two_phases != "false"
        self._opened = 0
        self._used: dict[_Whose, list[_Used]] = {}  # the one that wrote last comes last

    def close(self) -> None:
        for whose in list(self._used):
            self._drop(whose)

    def _drop(self, whose: _Whose) -> None:
        for used in self._used.pop(whose):
            used.producer.close()

    def write(self, admin: Admin, rows: Iterable[pyarrow.RecordBatch], options: SinkOptions, job: Job) -> Written:
        producer = self._take(admin, job)
        try:
            producer.begin()
            sent = _send(producer, rows, options)
            prepared = producer.prepare()
        except BaseException:
            _give_up(producer)
            raise
        if job.is_once:
            producer.close()  # which leaves open what is prepared
        else:
            self._used.setdefault((job.sink, job.run), []).append(_Used(producer, prepared, job.batch))
        return Written(job, prepared, sent)

    def _take(self, admin: Admin, job: Job) -> Producer:
        if job.is_once:
            return self._open(job)
        mine = self._used.pop((job.sink, job.run), [])
        self._used[job.sink, job.run] = mine
        if len(self._used) > _MAX_SINKS:
            self._drop(next(iter(self._used)))
        for used in [one for one in mine if one.batch < job.batch]:
            name = used.prepared.transactional_id
            found = fate(used.prepared, describe(admin, [name]).get(name))
            if found is Fate.OPEN:
                continue
            mine.remove(used)
            if found is Fate.COMMITTED:
                return used.producer
            used.producer.close()
        return self._open(job)

    def _open(self, job: Job) -> Producer:
        name = Names(job.sink).transaction(self._name, self._opened, job.run)
        self._opened += 1
        config = {**_DEFAULTS, _LIMIT: str(_LIMIT_MS), **self._config, "transactional.id": name}
        if self._has_two_phases and not job.is_once:
            try:
                return _started({**config, _TWO_PHASES: "true"})
            except (UnsupportedVersion, BrokerSaid) as error:
                if self._wants_two_phases == "true" or not _means_no_two_phases(error):
                    raise
                self._has_two_phases = False
        try:
            return _started(config)
        except BrokerSaid as error:
            if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise
            raise BadOption(
                f"Brokers do not allow transactions of {config[_LIMIT]} ms.",
                f"Set kafka.{_LIMIT} to their transaction.max.timeout.ms, or raise that.",
            ) from error


def _means_no_two_phases(error: ClientError) -> bool:
    """Brokers refuse them by version, and where they know the version but do not allow them, by a permission."""
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return isinstance(error, UnsupportedVersion) or (isinstance(error, BrokerSaid) and error.code is refused)


def _give_up(producer: Producer) -> None:
    """For somebody who has another error to tell of. What stays open does not count, and is found by the driver."""
    try:
        producer.close(abort=True)
    except ClientError as error:
        log.info("A transaction that does not count may be open: %s", error)


def _started(config: Mapping[str, str]) -> Producer:
    producer = Producer(config=config)
    try:
        producer.start()
        if "transactional.id" in config:
            producer.init_transactions()
    except BaseException:
        producer.close(abort=True)
        raise
    return producer


def _producer(config: Mapping[str, str]) -> Producer:
    return _started({**_DEFAULTS, **config})


def _admin(config: Mapping[str, str]) -> Admin:
    admin = Admin(config=dict(config))
    admin.start()
    return admin


producers: Final = Kept(_producer, _MAX_SPARE)
admins: Final = Kept(_admin, _MAX_SPARE)
workers: Final = Kept(Worker, _MAX_SPARE)
