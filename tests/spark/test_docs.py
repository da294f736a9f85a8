"""What the pages about Spark show is run as it stands there, in the session that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from klamm import Producer
from klamm.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
ADDRESS = "localhost:9092"


def run(code: str, broker: Broker, folder: Path) -> dict[str, Any]:
    """The names that are there afterwards."""
    names: dict[str, Any] = {}
    exec(code.replace(ADDRESS, broker.bootstrap).replace('"/tmp/', f'"{folder}/'), names)
    return names


def test_the_examples_print_what_the_page_says(
    spark: SparkSession, klamm_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other and with one broker: the second reads what the first has sent."""
    examples = EXAMPLE.findall((ROOT / "docs" / "spark.md").read_text())
    assert len(examples) == 3
    for code, printed in examples:
        run(code, klamm_broker, tmp_path)
        assert capsys.readouterr().out == printed


def test_the_first_example_of_the_readme_copies_a_stream(
    spark: SparkSession, klamm_broker: Broker, tmp_path: Path
) -> None:
    code = next(code for code, _ in EXAMPLE.findall((ROOT / "README.md").read_text()) if "format(" in code)
    klamm_broker.create_topic("page-views")
    query = run(code, klamm_broker, tmp_path)["query"]
    query.processAllAvailable()  # it has begun, at the end of the topic
    with Producer(bootstrap_servers=klamm_broker.bootstrap) as producer:
        producer.send("page-views", b"hello")
    query.processAllAvailable()
    query.stop()
    assert [record.value for record in klamm_broker.records("loud-views")] == [b"HELLO"]


def test_the_page_about_pipelines_shows_the_one_that_make_run_runs() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "pipelines.md").read_text(), re.DOTALL)
    assert yaml.safe_load(shown) == yaml.safe_load((ROOT / "examples" / "activity" / "pipeline.yml").read_text())
