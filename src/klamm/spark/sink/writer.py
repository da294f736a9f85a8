"""What Spark's Python Data Source API asks of a sink. A thin layer over `task` and `driver`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm.core.env.real import real_env
from klamm.spark.errors import SparkError
from klamm.spark.options import Guarantee, SinkOptions
from klamm.spark.sink import once
from klamm.spark.sink.decisions import Names, of_application, of_one_write, of_query
from klamm.spark.sink.driver import Decider, abort, give_up, transactions
from klamm.spark.sink.rows import check
from klamm.spark.sink.task import Job, Written, admins, write

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_RUN: Final = "spark.jobGroup.id"


@dataclass
class Message(WriterCommitMessage):
    written: Written


class _Writes:
    options: SinkOptions

    def _commit(self, job: Job, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [one for one in _written(messages) if one is not None]
        client = self.options.client
        with admins.lend(client) as admin:
            if job.is_once:
                once.commit(admin, Names(job.sink), transactions(written))
                return
            with Decider(admin, client, job.sink) as decider:
                decider.commit(job, written, fail_on_data_loss=self.options.fail_on_data_loss)

    def _abort(self, job: Job, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        with admins.lend(self.options.client) as admin:
            if job.is_once:
                once.abort(admin, Names(job.sink), transactions(written))
            elif transactions(written):
                abort(admin, job, written)


class StreamWriter(_Writes, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        check({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        return Message(write(iterator, self.options, self._job()))

    def _job(self) -> Job | None:
        """Which batch of which query this task belongs to: Spark tells it nowhere else."""
        context = TaskContext.get()
        told = [context.getLocalProperty(name) if context is not None else None for name in (_QUERY, _BATCH, _RUN)]
        query, batch, run = told
        if query is not None and batch is not None:
            return Job(of_query(query), int(batch), run=run or "")
        if self.options.guarantee is Guarantee.EXACTLY_ONCE:
            raise SparkError("Spark does not say which batch this is.", "Use deliveryGuarantee=at-least-once.")
        return None

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        for job in self._jobs(messages):
            self._commit(job, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for job in self._jobs(messages):
            self._abort(job, messages)

    def _jobs(self, messages: list[WriterCommitMessage | None]) -> set[Job]:
        """The one that this is about: what runs in the driver's process is told of it by the tasks."""
        if self.options.guarantee is Guarantee.AT_LEAST_ONCE:
            return set()
        return {one.job for one in _written(messages) if one is not None and one.job is not None}


class BatchWriter(_Writes, DataSourceArrowWriter):
    """All rows or none. With `txnAppId` and `txnVersion`, and also if it is done again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        check({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        if options.app_id is not None:
            self._job = Job(of_application(options.app_id, options.topic), options.version or 0)
        else:
            self._job = Job(of_one_write(real_env().uuid().hex()), 0, is_once=True)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        return Message(write(iterator, self.options, self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.guarantee is Guarantee.EXACTLY_ONCE:
            self._commit(self._job, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.guarantee is Guarantee.EXACTLY_ONCE:
            self._abort(self._job, messages)
            if not self._job.is_once:  # only one write of a name runs at a time: what is open is of this one
                give_up(self.options.client, self._job.sink, self._job.run)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written | None]:
    """None: a task that has failed."""
    return [one.written if isinstance(one, Message) else None for one in messages]
