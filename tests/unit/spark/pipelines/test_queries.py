"""What is asked of PySpark without a session."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger

from klamm.spark.pipelines.dead_letters import _options
from klamm.spark.pipelines.inputs import source_options
from klamm.spark.pipelines.outputs import BadOutput, _write_batch
from klamm.spark.pipelines.queries import quiet
from klamm.spark.pipelines.spec import load


def test_loggers_that_were_quiet_are_as_pyspark_needs_them_afterwards() -> None:
    with quiet():
        loggers = [logging.getLogger(f"{what}QueryContextLogger") for what in ("SQL", "DataFrame")]
        assert all(one.disabled for one in loggers)
    assert all(isinstance(one, PySparkLogger) and not one.disabled for one in loggers)


class Batch:
    """A DataFrame that cannot be written."""

    write = property(lambda self: self)

    def format(self, name: str) -> Batch:
        return self

    def mode(self, name: str) -> Batch:
        return self

    def options(self, **options: str) -> Batch:
        return self

    def save(self) -> None:
        frames = "\n\tat org.x.Y.z(Y.scala:1)" * 1000
        raise Py4JError(f"An error occurred while calling o1.save.\n: java.io.IOException: No space left{frames}")


def test_a_batch_that_cannot_be_written_is_told_without_traces() -> None:
    """Else Spark, if it is stopped then, looks through them with an expression that needs all its stack."""
    with pytest.raises(BadOutput) as failed:
        _write_batch({"deliveryGuarantee": "at-least-once"}, "shop.counts")(Batch(), 7)  # type: ignore[arg-type]
    assert len(str(failed.value)) < 200 and "No space left" in str(failed.value)


def test_dead_letters_are_looked_for_in_all_there_is_however_little_flows_read_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "all.sql").write_text("SELECT id FROM orders")
    (tmp_path / "pipeline.yml").write_text(
        "{name: shop, flows: {all: {sql: all.sql, output: console}}, inputs: {orders: {topic: orders, format: json, "
        "schema: id int, options: {maxOffsetsPerTrigger: 10, failOnDataLoss: false}}}}"
    )
    pipeline = load(str(tmp_path))
    (orders,) = pipeline.inputs
    assert source_options(pipeline, orders, "g")["maxOffsetsPerTrigger"] == "10"
    found = _options(pipeline, orders, "g")
    assert "maxOffsetsPerTrigger" not in found
    assert (found["failOnDataLoss"], found["includeHeaders"], found["subscribe"]) == ("false", "true", "orders")
