"""What Spark asks of a sink, and what is made of it; without Spark and without brokers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from klamm.spark.errors import BadOption, SparkError
from klamm.spark.options import SinkOptions
from klamm.spark.sink import writer
from klamm.spark.sink.task import Job, Written
from klamm.spark.sink.writer import BatchWriter, Message, StreamWriter
from klamm.spark.source import KlammSource

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "topic": "t"}
AT_LEAST_ONCE = {"deliveryGuarantee": "at-least-once"}
SCHEMA = StructType([StructField("value", StringType())])
TOLD = {"sql.streaming.queryId": "q/1", "streaming.sql.batchId": "3", "spark.jobGroup.id": "r1"}
JOB = Job("query:q%2F1", 3, run="r1")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What tasks and drivers were asked to do."""
    found: list[Any] = []
    monkeypatch.setattr(writer, "write", lambda _, __, job: found.append(job) or Written(job))
    monkeypatch.setattr(writer, "give_up", lambda _, sink, run: found.append(("give up", sink, run)))
    for name in ("_commit", "_abort"):
        does = lambda _, job, messages, name=name: found.append((name, job, len(messages)))  # noqa: E731
        monkeypatch.setattr(writer._Writes, name, does)
    return found


def stream(**options: str) -> StreamWriter:
    return StreamWriter(SinkOptions.parse(OPTIONS | options), SCHEMA)


def batch(**options: str) -> BatchWriter:
    return BatchWriter(SinkOptions.parse(OPTIONS | options), SCHEMA)


def test_a_task_writes_for_the_batch_of_the_query_that_spark_tells(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = type("Context", (), {"getLocalProperty": staticmethod(TOLD.get)})
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    assert stream().write(iter(())).written.job == JOB
    assert asked == [JOB]


def test_a_task_that_is_told_of_no_batch_cannot_write_exactly_once(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    with pytest.raises(SparkError, match="Spark does not say which batch this is"):
        stream().write(iter(()))
    stream(**AT_LEAST_ONCE).write(iter(()))
    assert asked == [None]


def test_drivers_end_the_batch_that_tasks_tell_of(asked: list[Any]) -> None:
    messages = [Message(Written(JOB)), None, Message(Written(JOB, rows=1))]
    stream().commit(messages, 3)
    stream().abort(messages, 3)
    stream().abort([None], 3)
    for end in (stream(**AT_LEAST_ONCE).commit, stream(**AT_LEAST_ONCE).abort):
        end(messages, 3)
    assert asked == [("_commit", JOB, 3), ("_abort", JOB, 3)]


def test_what_a_write_with_a_name_leaves_when_it_fails_is_given_up(asked: list[Any]) -> None:
    """One without a name ends all of it in any case."""
    named, once = batch(txnAppId="app", txnVersion="5"), batch()
    for each in (named, once, batch(**AT_LEAST_ONCE)):
        each.abort([None])
        each.commit([])
    assert asked == [
        ("_abort", named._job, 1),
        ("give up", "app:t:app", ""),
        ("_commit", named._job, 0),
        ("_abort", once._job, 1),
        ("_commit", once._job, 0),
    ]
    assert (named._job, once._job.is_once) == (Job("app:t:app", 5), True)
    assert once._job.sink != batch()._job.sink


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(BadOption, match="A topic cannot be overwritten"):
        KlammSource(OPTIONS).writer(SCHEMA, overwrite=True)
