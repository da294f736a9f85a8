"""Pipelines for tests: a folder with its files, run on the session that tests share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm.spark.pipelines.spec import Pipeline, load
from support.spark import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from klamm.spark.pipelines.run import Running


class Folder:
    """A pipeline's folder. `write` may be called again: that is how somebody changes a transformation."""

    def __init__(self, path: Path, topics: Topics, spark: SparkSession | None = None) -> None:
        self.path = path
        self.topics = topics
        self._spark = spark

    def write(self, pipeline: Mapping[str, Any], **files: str) -> None:
        """`top_pages_sql="SELECT ..."` is the file top_pages.sql. YAML takes JSON."""
        self.path.mkdir(exist_ok=True, parents=True)
        whole = {"name": self.path.name, "bootstrap": self.topics.bootstrap, **pipeline}
        (self.path / "pipeline.yml").write_text(json.dumps(whole, indent=1))
        for name, text in files.items():
            stem, _, ending = name.rpartition("_")
            (self.path / f"{stem}.{ending}").write_text(text)

    def load(self) -> Pipeline:
        return load(str(self.path))

    def start(self, *, once: bool = False) -> Running:
        from klamm.spark.pipelines.run import run

        assert self._spark is not None
        return run(self.load(), self._spark, once=once)

    def run(self) -> Running:
        """All that is there now."""
        running = self.start(once=True)
        running.wait()
        return running

    def json(self, topic: str) -> list[Any]:
        """The values of a topic."""
        return [json.loads(value) for value in self.topics.values(topic)]
