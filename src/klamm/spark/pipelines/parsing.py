"""Values of records, parsed by the schema of their input; and which of them cannot be.

That is decided here, once, for views and for dead letters alike, so that every record is in exactly one of them. The
whole schema is parsed, whatever a flow uses of it: else a record could be good for one flow and bad for another.

Spark only says that something was wrong with a record. Which field it was is found by a second look, `reason`, which
costs as much as the first; so it must be used behind a filter for bad records, of which there are few.
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
_SHOWN: Final = 100
"""So many characters of a value that is wrong are shown."""


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


def reason(one: Input) -> Column:
    """Why a record with the columns `value` and PARSED is bad, as a sentence."""
    schema = schema_of(one)
    told = _json(schema) if one.format == "json" else _csv(schema, parse(one, schema, strings=True))
    return sf.when(sf.col("value").isNull(), sf.lit("there is no value")).otherwise(told)


def _json(schema: StructType) -> Column:
    text = sf.col("value").cast("string")
    found = {field.name: sf.get_json_object(text, f"$['{field.name}']") for field in schema.fields}
    wrong = _wrong(schema, found)
    return (
        sf.when(~sf.is_valid_utf8(text), sf.lit("the value is not UTF-8"))
        .when(sf.try_parse_json(text).isNull(), sf.lit("the value is not JSON"))
        .when(sf.schema_of_variant(sf.try_parse_json(text)).startswith("OBJECT"), wrong)
        .otherwise(sf.lit("the value is not a JSON object"))
    )


def _csv(schema: StructType, strings: Column) -> Column:
    """`strings` is the line once more, with all columns as text."""
    count = len(schema.fields)
    wrong = _wrong(schema, {field.name: strings[field.name] for field in schema.fields})
    return sf.when(
        strings.isNull() | strings[CORRUPT].isNotNull(), sf.lit(f"the line has not {count} columns")
    ).otherwise(wrong)


def _wrong(schema: StructType, found: dict[str, Column]) -> Column:
    each = sf.concat_ws(", ", *(_of_field(field, found[field.name]) for field in schema.fields))
    return sf.when(each == "", sf.lit("the value does not fit the schema")).otherwise(each)


def _of_field(field: StructField, text: Column) -> Column:
    """Null where the field is as it should be."""
    is_there = sf.col(PARSED)[field.name].isNotNull()
    kind = field.dataType.simpleString()
    wrong = sf.concat(sf.lit(f"{field.name} is not {kind}: "), sf.substring(text, 1, _SHOWN))
    missing = sf.lit(None).cast("string") if field.nullable else sf.lit(f"{field.name} is missing")
    return sf.when(is_there, sf.lit(None).cast("string")).when(text.isNotNull(), wrong).otherwise(missing)
