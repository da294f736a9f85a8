"""What Spark's Python Data Source API asks of a sink. A thin layer over `task` and `driver`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm.core.env.real import real_env
from klamm.spark.errors import SparkError
from klamm.spark.kept import Kept
from klamm.spark.options import Guarantee, SinkOptions
from klamm.spark.sink.decisions import of_application, of_query
from klamm.spark.sink.driver import Decider
from klamm.spark.sink.rows import check
from klamm.spark.sink.task import Job, Written, write

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_SINK: Final = "klamm.spark.sink"


@dataclass
class Message(WriterCommitMessage):
    written: Written


def _decider(config: Mapping[str, str]) -> Decider:
    return Decider({name: value for name, value in config.items() if name != _SINK}, config[_SINK])


deciders: Final = Kept(_decider)


class _Writes:
    options: SinkOptions

    def _commit(self, job: Job, messages: Sequence[WriterCommitMessage | None]) -> None:
        with deciders.lend({**self.options.client, _SINK: job.sink}) as decider:
            decider.commit(job, _written(messages))

    def _abort(self, job: Job, messages: Sequence[WriterCommitMessage | None]) -> None:
        transactions = [one.transaction for one in _written(messages) if one.transaction is not None]
        if transactions:
            with deciders.lend({**self.options.client, _SINK: job.sink}) as decider:
                decider.abort(transactions)


class StreamWriter(_Writes, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        check({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        return Message(write(iterator, self.options, self._job()))

    def _job(self) -> Job | None:
        """Which batch of which query this task belongs to: Spark tells it nowhere else."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if query is not None and batch is not None:
            return Job(of_query(query), int(batch))
        if self.options.guarantee is Guarantee.EXACTLY_ONCE:
            raise SparkError("Spark does not say which batch this is.", "Use deliveryGuarantee=at-least-once.")
        return None

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        for job in {one.job for one in _written(messages) if one.job is not None}:
            self._commit(job, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for job in {one.job for one in _written(messages) if one.job is not None}:
            self._abort(job, messages)


class BatchWriter(_Writes, DataSourceArrowWriter):
    """All rows or none. With `txnAppId` and `txnVersion`, and also if it is done again."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        check({field.name: field.dataType.simpleString() for field in schema.fields}, options.topic)
        name = options.app_id if options.app_id is not None else real_env().uuid().hex()
        self._job = Job(of_application(name), options.version or 0)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Message:
        return Message(write(iterator, self.options, self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.guarantee is Guarantee.EXACTLY_ONCE:
            self._commit(self._job, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(self._job, messages)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [one.written for one in messages if isinstance(one, Message)]
