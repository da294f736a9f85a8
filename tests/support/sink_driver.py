"""A Spark application that copies the topic `in` to `out` for ever, in order to be killed while it does. Run with
`python sink_driver.py BOOTSTRAP FOLDER SEED MASTER [--once]`; with `--once` it ends when all is copied.

The number of tasks is another one with each run of the query, so a batch that is done again comes in other tasks.
"""

from __future__ import annotations

import random
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

import klamm.spark

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # none of the virtual machines lives for long
SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.speculation": "true",  # for those masters that have it
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
}


def main() -> None:
    bootstrap, folder, seed, master, *more = sys.argv[1:]
    rng = random.Random(int(seed))
    spark = klamm.spark.session("sink kills", master, **SETTINGS)
    while True:
        servers = {"kafka.bootstrap.servers": bootstrap}
        options = {
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": str(rng.randint(1, 5)),
        }
        tasks = rng.randint(1, 3) if rng.random() < 0.3 else None
        try:
            rows = spark.readStream.format("klamm").options(**servers, **options).load().select("key", "value")
            rows = rows if tasks is None else rows.repartition(tasks)
            writer = rows.writeStream.format("klamm").options(**servers, topic="out", checkpointLocation=folder)
            query = (writer.trigger(availableNow=True) if more else writer).start()
            print("started", flush=True)
            query.awaitTermination()
            return
        except (PySparkException, Py4JError) as error:  # also of a start whose helper was killed
            print("failed:", str(error).splitlines()[0][:300], flush=True)


if __name__ == "__main__":
    main()
