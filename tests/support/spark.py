"""What tests on Spark share: topics of a running broker, written to and read back without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klamm import Admin, Consumer, Producer
from klamm.admin import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from klamm.records.consuming import ConsumerRecord

QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of virtual machines that do not live for long: compiling with all its art is half of the work they do."""

_numbers = count(1)


class Topics:
    """The topics of one broker. Every `topic()` is a new one, so that tests can share the broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Admin(bootstrap_servers=bootstrap)
        self.admin.start()
        self.producer = Producer(bootstrap_servers=bootstrap)
        self.producer.start()

    def close(self) -> None:
        self.producer.close()
        self.admin.close()

    def topic(self, partitions: int = 1, *, name: str | None = None, **configs: object) -> str:
        """Its name. Configs are Kafka's, with underscores for dots: `cleanup_policy="compact"`."""
        name = name or f"topic-{next(_numbers)}"
        named = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.admin.create_topics([NewTopic(name, partitions=partitions, configs=named)]).check()
        return name

    def produce(self, topic: str, values: Sequence[Any], **columns: Any) -> None:
        """When this returns they are written. `columns` as for `Producer.send_many`: keys, partition, headers,
        timestamps_ms. Text becomes bytes."""
        if "keys" in columns:
            columns["keys"] = [as_bytes(key) for key in columns["keys"]]
        self.producer.send_many(topic, [as_bytes(value) for value in values], **columns)
        self.producer.flush()

    def transaction(self, topic: str, values: Sequence[Any], *, commit: bool, **columns: Any) -> None:
        with Producer(bootstrap_servers=self.bootstrap, transactional_id=f"{topic}-{next(_numbers)}") as producer:
            producer.begin()
            producer.send_many(topic, [as_bytes(value) for value in values], **columns)
            producer.flush()
            producer.commit() if commit else producer.abort()

    def records(self, topic: str, isolation_level: str = "read_committed") -> list[ConsumerRecord]:
        """All that can be read, by partition and offset."""
        indexes = self.admin.describe_topics([topic])[topic].partitions
        places = [(topic, index) for index in indexes]
        found: list[ConsumerRecord] = []
        with Consumer(
            bootstrap_servers=self.bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(places)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(*places)
            while any(consumer.position(place) < end for place, end in ends.items()):
                for records in consumer.getmany(timeout_ms=100).values():
                    found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def values(self, topic: str, isolation_level: str = "read_committed") -> list[str]:
        return [(record.value or b"").decode() for record in self.records(topic, isolation_level)]

    def ends(self, topic: str) -> dict[int, int]:
        """Behind the last record of each partition."""
        places = [(topic, index) for index in self.admin.describe_topics([topic])[topic].partitions]
        found = self.admin.list_offsets(dict.fromkeys(places, -1)).check()
        return {place.partition: found[place].offset for place in found}

    # On Spark.

    def options(self, topic: str | None = None, **more: object) -> dict[str, str]:
        """For `format("klamm")`: the address, what to subscribe to, and more by their own names."""
        found: dict[str, object] = {"kafka.bootstrap.servers": self.bootstrap}
        if topic is not None:
            found["subscribe"] = topic
        return {name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in {**found, **more}.items()}  # fmt: skip

    def batch(self, spark: SparkSession, topic: str | None = None, **more: object) -> DataFrame:
        return spark.read.format("klamm").options(**self.options(topic, **more)).load()

    def stream(self, spark: SparkSession, topic: str | None = None, **more: object) -> DataFrame:
        return spark.readStream.format("klamm").options(**self.options(topic, **more)).load()


def as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class Rows:
    """A streaming query into a folder, which can be run again from its checkpoint, and what it has written."""

    def __init__(self, spark: SparkSession, folder: Path, options: Mapping[str, str], **settings: str) -> None:
        self.spark = spark
        self.folder = folder
        self.options = dict(options)
        self.settings = settings

    def start(self, *, available_now: bool = True, **changes: str) -> StreamingQuery:
        stream = self.spark.readStream.format("klamm").options(**{**self.options, **changes}).load()
        writer = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .option("path", str(self.folder / "rows"))
        )
        if "name" in self.settings:
            writer = writer.queryName(self.settings["name"])
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start()

    def run(self, **changes: str) -> StreamingQuery:
        """Read what is there now, and end."""
        query = self.start(**changes)
        query.awaitTermination()
        return query

    def values(self) -> list[str]:
        """Sorted, with everything that was written twice twice."""
        rows = self.spark.read.parquet(str(self.folder / "rows")).selectExpr("cast(value as string)").collect()
        return sorted(row[0] for row in rows)
