"""A Spark session that does what it is told, line by line; `spark.py` starts it and reads its lines of results.

    echo '{"do": "read", "format": "klamm", "topic": "t"}' | python bench/spark_side.py --to 127.0.0.1:9092

One session for a whole run, so that all is warm. Each line of input is a piece of work, as JSON, each line of output
what came of it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from empty_source import EmptySource
from pyspark.sql import DataFrame, SparkSession

import klamm.spark
from klamm import Producer

Result = dict[str, Any]
TASKS = 2
SINKS = {
    "kafka": {"format": "kafka"},
    "at-least-once": {"format": "klamm", "deliveryGuarantee": "at-least-once"},
    "exactly-once": {"format": "klamm", "deliveryGuarantee": "exactly-once"},
}
PAUSE_S = 0.01


def descendants() -> Iterator[int]:
    """This process and all below it, as of now."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for one in found:
        found += parents.get(one, [])
    return iter(found)


def cpu_seconds() -> float:
    """Of this process, Spark's virtual machine and its Python workers, those that have ended included."""
    ticks = 0
    for one in descendants():
        try:
            with open(f"/proc/{one}/stat") as stat:
                ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def python_bytes() -> int:
    """Memory of all Python processes below this one: of the driver's side, the planner and the workers. What they have
    in common, because they are forks, counts once."""
    total = 0
    for one in descendants():
        try:
            if one != os.getpid() and "python" in os.readlink(f"/proc/{one}/exe"):
                with open(f"/proc/{one}/smaps_rollup") as sums:
                    total += sum(int(line.split()[1]) << 10 for line in sums if line.startswith("Pss:"))
        except OSError:
            continue
    return total


class Side:
    def __init__(self, spark: SparkSession, to: str) -> None:
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": to, "kafka.isolation.level": "read_committed"}
        self.rows: dict[tuple[int, int], DataFrame] = {}

    def _timed(self, rows: int, begun: tuple[float, float]) -> Result:
        seconds = time.perf_counter() - begun[0]
        cpu = cpu_seconds() - begun[1]
        return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds, "cpu_us_per_row": cpu / rows * 1e6}

    def _begin(self) -> tuple[float, float]:
        cpu = cpu_seconds()
        return time.perf_counter(), cpu

    def read(self, format: str, topic: str) -> Result:  # noqa: A002
        begun = self._begin()
        rows = self.spark.read.format(format).options(**self.servers, subscribe=topic).load().count()
        return self._timed(rows, begun)

    def write(self, sink: str, topic: str, size: int, rows: int) -> Result:
        """Rows that are in Spark's memory already, in as many tasks as there are cores."""
        made = self.rows.get((size, rows))
        if made is None:
            columns = [
                "cast(cast(id as string) as binary) key",
                f"cast(rpad(cast(id as string), {size}, 'x') as binary) value",
            ]
            made = self.spark.range(0, rows, 1, TASKS).selectExpr(*columns).persist()
            made.count()
            self.rows[size, rows] = made
        options = {"kafka.bootstrap.servers": self.servers["kafka.bootstrap.servers"], "topic": topic, **SINKS[sink]}
        begun = self._begin()
        made.write.format(options.pop("format")).options(**options).mode("append").save()
        return self._timed(rows, begun)

    def latency(self, format: str, topic: str, out: str, batches: int, rows: int) -> Result:  # noqa: A002
        """How long a micro-batch takes while there is always a little to do."""
        with TemporaryDirectory() as folder:
            to = self.servers["kafka.bootstrap.servers"]
            options = {"empty": {"rows": str(rows)}}.get(
                format, {**self.servers, "subscribe": topic, "startingOffsets": "latest"}
            )
            stream = self.spark.readStream.format(format).options(**options).load().select("key", "value")
            options = {"empty": {}}.get(format, {"kafka.bootstrap.servers": to, "topic": out})
            if format == "klamm":
                options["deliveryGuarantee"] = "at-least-once"
            writing = stream.writeStream.format(format).options(**options, checkpointLocation=folder)
            query = writing.start()
            over = threading.Event()
            feeding = threading.Thread(target=self._feed, args=(topic, rows, over))
            feeding.start()  # also for those who do not read it: it takes from the same cores
            try:
                taken: dict[int, Any] = {}
                while len(taken) < batches + WARM_UP and query.isActive:
                    taken.update({one.batchId: one.durationMs for one in query.recentProgress if one.numInputRows})
                    time.sleep(PAUSE_S * 10)
            finally:
                over.set()
                query.stop()
            feeding.join()
            if (error := query.exception()) is not None:
                raise RuntimeError(str(error))
        steady = [taken[batch] for batch in sorted(taken)][WARM_UP:]
        parts = {name for one in steady for name in one}
        medians = {name: statistics.median(one.get(name, 0) for one in steady) for name in sorted(parts)}
        return {"ms": medians["triggerExecution"], "parts": medians, "batches": len(steady)}

    def _feed(self, topic: str, rows: int, over: threading.Event) -> None:
        with Producer(bootstrap_servers=self.servers["kafka.bootstrap.servers"], linger_ms=0) as producer:
            while not over.wait(PAUSE_S):
                producer.send_many(topic, [b"x" * 100] * rows, partition=0)
                producer.flush()

    def stream(self, topic: str, per_batch: int) -> Result:
        """All of a topic, in micro-batches: the time of each, and what is in memory at the beginning and at the end."""
        with TemporaryDirectory() as folder:
            options = {
                **self.servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": per_batch,
            }
            stream = self.spark.readStream.format("klamm").options(**options).load()
            writing = stream.writeStream.format("noop").option("checkpointLocation", folder)
            query = writing.trigger(availableNow=True).start()
            memory: list[tuple[int, int]] = []
            taken: dict[int, Any] = {}
            while query.isActive:
                taken.update({one.batchId: one for one in query.recentProgress if one.numInputRows})
                if len(taken) >= 2 and not memory:
                    memory.append(self._memory())
                query.awaitTermination(1)
            taken.update({one.batchId: one for one in query.recentProgress if one.numInputRows})
            memory.append(self._memory())
            if (error := query.exception()) is not None:
                raise RuntimeError(str(error))
        whole = [taken[batch] for batch in sorted(taken) if taken[batch].numInputRows > per_batch // 2]
        times = [one.durationMs["triggerExecution"] / one.numInputRows * 1e3 for one in whole]
        return {
            "us_per_row": times,
            "rows": sum(one.numInputRows for one in taken.values()),
            "heap": [heap for heap, _ in memory],
            "python": [python for _, python in memory],
        }

    def _memory(self) -> tuple[int, int]:
        """What is alive on the driver's heap, and the Python processes."""
        jvm: Any = self.spark._jvm
        jvm.java.lang.System.gc()
        runtime = jvm.java.lang.Runtime.getRuntime()
        return runtime.totalMemory() - runtime.freeMemory(), python_bytes()


WARM_UP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, help="the broker's address")
    parser.add_argument("--jars", default="", help="of Spark's own Kafka connector, with commas")
    given = parser.parse_args()
    folder = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))  # for the workers
    with TemporaryDirectory(prefix="klamm-bench-") as local:
        settings = {"spark.driver.memory": "2g", "spark.local.dir": local, "spark.sql.warehouse.dir": local}
        if given.jars:
            settings["spark.jars"] = given.jars
        spark = klamm.spark.session("bench", f"local[{TASKS}]", **settings)
        spark.dataSource.register(EmptySource)
        side = Side(spark, given.to)
        print(json.dumps({"spark": spark.version, "pyarrow": pa.__version__}), flush=True)
        for line in sys.stdin:
            work = json.loads(line)
            try:
                result = getattr(side, work.pop("do"))(**work)
            except Exception as error:
                result = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
            print(json.dumps(result), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
