"""Source and sink on a real cluster: executors are other processes than the driver, and start Python of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.tools import unavailable

if TYPE_CHECKING:
    from support.spark import Topics

PROGRAM = Path(__file__).with_name("on_a_cluster.py")
LIMIT_S = 400


@pytest.mark.timeout(600)  # five virtual machines start; with nothing else to do, all takes 20 s
def test_executors_of_a_standalone_cluster_write_exactly_once_what_they_read_and_also_what_runs_twice(
    topics: Topics, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    from klamm.spark.java import NoJava
    from support.spark_cluster import StandaloneCluster

    source, target = topics.topic(partitions=4), topics.topic(partitions=2)
    keys = [f"key-{number}" for number in range(2000)]
    topics.produce(source, [b"value"] * len(keys), keys=keys)
    try:
        with StandaloneCluster(tmp_path, workers=2) as cluster:
            program = [sys.executable, str(PROGRAM), cluster.url, topics.bootstrap, source, target]
            folder = tmp_path / "application"
            folder.mkdir()
            done = subprocess.run([*program, str(folder)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except NoJava as error:
        unavailable(str(error))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("2000 rows, ")
    records = topics.records(target)
    assert sorted((record.key or b"").decode() for record in records) == sorted(keys)
    assert len({record.value for record in records}) == 2  # executors, each with a folder of its own
    assert all(str(tmp_path).encode() in (record.value or b"") for record in records)
    attempts = {f"batch {batch}, attempt {attempt}" for batch in range(2) for attempt in range(2)}
    assert attempts <= {path.name for path in folder.iterdir()}
    assert len(topics.records(target, "read_uncommitted")) > len(keys)
