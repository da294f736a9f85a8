"""Values of records, parsed by the schema of their input; and which of them cannot be.

That is decided here, once, for views and for dead letters alike, so that every record is in exactly one of them. The
whole schema is parsed, whatever a flow uses of it: else a record could be good for one flow and bad for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from klamm.spark.pipelines.model import Input

PARSED: Final = "__parsed"
BAD: Final = "__bad"
CORRUPT: Final = "__corrupt"
_BARRIER: Final = "__task"


def schema_of(one: Input) -> StructType:
    assert one.schema is not None, "json and csv have one"
    schema = StructType.fromDDL(one.schema)
    assert isinstance(schema, StructType)
    return schema


def parsed(records: DataFrame, one: Input) -> DataFrame:
    """The records with the parsed value in PARSED, and in BAD whether it does not fit the schema: it is no JSON, has a
    value of another type, or lacks one that is NOT NULL.

    The column of _BARRIER is not the same twice, and the filter needs it: so Spark does not move the filter below the
    parsing, where it would parse a second time."""
    schema = schema_of(one)
    rows = records.select("*", parse(one, schema).alias(PARSED), sf.spark_partition_id().alias(_BARRIER))
    value = sf.col(PARSED)
    bad = value.isNull() | value[CORRUPT].isNotNull() | (sf.col(_BARRIER) < 0)
    for field in schema.fields:
        if not field.nullable:
            bad = bad | value[field.name].isNull()
    return rows.withColumn(BAD, bad).drop(_BARRIER)


def parse(one: Input, schema: StructType, *, strings: bool = False) -> Column:
    """As a struct with one column more, which has the text of what could not be parsed. `strings`: nothing but text."""
    fields = [StructField(field.name, StringType() if strings else field.dataType) for field in schema.fields]
    whole = StructType([*fields, StructField(CORRUPT, StringType())])
    options = {**one.parse, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = sf.col("value").cast("string")
    if one.format == "json":
        return sf.from_json(text, whole, options)
    return sf.from_csv(text, whole.toDDL(), options)
