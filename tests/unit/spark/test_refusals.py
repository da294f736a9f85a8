"""A stream whose options cannot be used says so itself, and not PySpark that there is no reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from klamm.spark.errors import BadOption
from klamm.spark.source import KlammSource, StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}
TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
COLUMNS = StructType([StructField(name, kind) for name, kind in TYPES.items()])


def reader(columns: StructType = COLUMNS, **options: str) -> DataSourceStreamReader:
    return KlammSource({**OPTIONS, **options}).streamReader(columns)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (COLUMNS, {"endingOffsets": "latest"}, "endingOffsets has no meaning for a stream"),
        (COLUMNS, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        (StructType(COLUMNS.fields[:2]), {}, "The columns of a topic are"),
    ],
)
def test_a_mistake_is_told_whatever_spark_asks_first(columns: StructType, options: dict[str, str], said: str) -> None:
    found = reader(columns, **options)
    for ask in (
        found.initialOffset,
        lambda: found.latestOffset({}, ReadAllAvailable()),
        lambda: found.partitions({}, {}),
    ):
        with pytest.raises(BadOption, match=said):
            ask()
    found.stop()


def test_what_can_be_used_is_read() -> None:
    assert isinstance(reader(maxOffsetsPerTrigger="1"), StreamReader)
