"""A program for Spark that `test_cluster.py` runs on a cluster: from one topic to another, in batches, exactly once.

    python on_a_cluster.py spark://127.0.0.1:7077 127.0.0.1:9092 from to /tmp/folder

Each row gets the folder of the executor that has read it as its value. One task of each batch does not come to its
end, though it has written rows, until Spark has run it a second time elsewhere. Checkpoints and a file for each attempt
of that task are in the last folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

import klamm.spark

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # none of the virtual machines lives for long
WHERE = "rpad(reflect('java.lang.System', 'getProperty', 'user.dir'), 2000, ' ')"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": 1,
    "spark.cores.max": 2,
    "spark.ui.enabled": "false",
    # No task before all executors are there: each gets some.
    "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": 20,  # so that a task has written before it has read all
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.minTaskRuntime": "1s",
}
PAUSE_S = 0.1
Batches = Iterator[pa.RecordBatch]


def hanging_at_first(attempts: Path) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 0:
            batch = context.getLocalProperty("streaming.sql.batchId")
            first, second = (attempts / f"batch {batch}, attempt {attempt}" for attempt in range(2))
            (second if context.attemptNumber() else first).touch()
            while not (context.attemptNumber() and first.exists()):
                time.sleep(PAUSE_S)  # the first until Spark ends it

    return run


def main() -> None:
    master, bootstrap, source, target, folder = sys.argv[1:]
    spark = klamm.spark.session("on a cluster", master, **SETTINGS)
    servers = {"kafka.bootstrap.servers": bootstrap}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000}
    rows = spark.readStream.format("klamm").options(**servers, **limits, subscribe=source).load()
    rows = rows.selectExpr("key", f"{WHERE} as value")
    rows = rows.mapInArrow(hanging_at_first(Path(folder)), rows.schema)
    writing = rows.writeStream.format("klamm").options(
        **servers, topic=target, checkpointLocation=f"{folder}/checkpoint"
    )
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    print(f"{sum(batch.numInputRows for batch in query.recentProgress)} rows, {len(query.recentProgress)} batches")
    spark.stop()


if __name__ == "__main__":
    main()
