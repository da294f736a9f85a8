"""Everything that can be known of a pipeline before it runs: `check`. Nothing is read, written or created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klamm.client.errors import ClientError
from klamm.spark.pipelines.analysis import Analysis, analyze
from klamm.spark.pipelines.mistakes import Mistake
from klamm.spark.pipelines.model import Flow, Input, Output, Pipeline
from klamm.spark.pipelines.topics import TopicsFound, look_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Checked:
    pipeline: Pipeline
    topics: TopicsFound
    analysis: Analysis

    @property
    def mistakes(self) -> list[Mistake]:
        return sorted(set(self.topics.mistakes + self.analysis.mistakes))

    @property
    def warnings(self) -> list[Mistake]:
        return sorted({*self.topics.warnings, *self.analysis.warnings, *_remarks(self.pipeline)})

    def summary(self) -> list[str]:
        return list(_lines(self))


def check(pipeline: Pipeline, spark: SparkSession, *, cluster: bool = True) -> Checked:
    topics = _topics(pipeline) if cluster else TopicsFound(asked=False)
    return Checked(pipeline, topics, analyze(pipeline, spark))


def _topics(pipeline: Pipeline) -> TopicsFound:
    try:
        return look_up(pipeline)
    except ClientError as error:
        hint = f"{error.hint} Or leave the cluster out: --no-cluster.".strip()
        return TopicsFound([Mistake(pipeline.at("bootstrap"), error.text, hint)], asked=False)


def _remarks(pipeline: Pipeline) -> Iterator[Mistake]:
    for one in pipeline.inputs:
        if "event_time" in one.places and one.watermark is None:
            text = "event_time is only looked at for a watermark, and there is none."
            yield Mistake(one.at("event_time"), text, "Add one: watermark: 10 seconds.")


def _lines(found: Checked) -> Iterator[str]:
    pipeline = found.pipeline
    yield f"ok: {pipeline.name}"
    for one in pipeline.inputs:
        how = f"{one.format}{_watermark(one)}{_dead_letters(one, found.topics)}"
        yield f"input {one.name}: {_where(one, found.topics)}, {how}"
        yield from _columns(found.analysis, one.name)
    for table in pipeline.tables:
        yield f"table {table.name}: {table.path}, {table.format}"
        yield from _columns(found.analysis, table.name)
    for flow in pipeline.flows:
        yield f"flow {flow.name}: {'a view' if flow.output is None else _output(flow, flow.output, found.topics)}"
        yield from _columns(found.analysis, flow.name)


def _columns(analysis: Analysis, view: str) -> Iterator[str]:
    shown = {name: type_ for name, type_ in analysis.columns.get(view, {}).items() if not name.startswith("_")}
    width = max(map(len, shown), default=0)
    for name, type_ in shown.items():
        yield f"  {name.ljust(width)}  {type_}"


def _where(one: Input, topics: TopicsFound) -> str:
    if one.topic is not None:
        return f"topic {one.topic}{_state(one.topic, topics)}"
    matching = topics.matching.get(one.name, [])
    return f"topics like {one.pattern}{f' ({len(matching)} now)' if topics.asked else ''}"


def _state(topic: str, topics: TopicsFound) -> str:
    if not topics.asked:
        return ""
    count = topics.partitions.get(topic)
    return " (will be created)" if count is None else f" ({count} partition{'' if count == 1 else 's'})"


def _watermark(one: Input) -> str:
    return f", watermark {one.watermark} behind {one.event_time}" if one.watermark is not None else ""


def _dead_letters(one: Input, topics: TopicsFound) -> str:
    if one.dead_letters is None:
        return ""
    return f", dead letters to {one.dead_letters}{_state(one.dead_letters, topics)}"


def _output(flow: Flow, output: Output, topics: TopicsFound) -> str:
    how = f"{flow.mode}, {_trigger(flow)}"
    if output.kind == "topic":
        key = f", key {output.key}" if output.key is not None else ""
        return f"to topic {output.topic}{_state(output.topic or '', topics)}, {output.format}{key}, {how}"
    return f"to {output.parquet if output.kind == 'parquet' else 'the console'}, {how}"


def _trigger(flow: Flow) -> str:
    if flow.available_now:
        return "available now"
    return "as soon as possible" if flow.trigger is None else f"every {flow.trigger}"
