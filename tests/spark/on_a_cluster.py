"""A program for Spark that `test_cluster.py` runs on a cluster: from one topic to another, in batches, exactly once.

    python on_a_cluster.py spark://127.0.0.1:7077 127.0.0.1:9092 from to /tmp/checkpoints

Each row gets the folder of the executor that has read it as its value.
"""

from __future__ import annotations

import sys

import klamm.spark

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # none of the virtual machines lives for long
WHERE = "reflect('java.lang.System', 'getProperty', 'user.dir')"
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
}


def main() -> None:
    master, bootstrap, source, target, checkpoint = sys.argv[1:]
    spark = klamm.spark.session("on a cluster", master, **SETTINGS)
    servers = {"kafka.bootstrap.servers": bootstrap}
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1000}
    rows = spark.readStream.format("klamm").options(**servers, **limits, subscribe=source).load()
    writing = rows.selectExpr("key", f"{WHERE} as value").writeStream.format("klamm")
    query = writing.options(**servers, topic=target, checkpointLocation=checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    print(f"{sum(batch.numInputRows for batch in query.recentProgress)} rows, {len(query.recentProgress)} batches")
    spark.stop()


if __name__ == "__main__":
    main()
