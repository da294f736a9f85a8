"""Why a record could not be parsed, as a sentence: expressions over a record that is known to be bad.

Spark only says that something was wrong with it. Which field it was is found by a second look, which costs as much as
the first; so this must be used behind a filter for bad records, of which there are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from klamm.spark.pipelines.parsing import CORRUPT, PARSED, parse, schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructField, StructType

    from klamm.spark.pipelines.model import Input

_SHOWN: Final = 100
"""So many characters of a value that is wrong are shown."""


def reason(one: Input) -> Column:
    """Of a record with the columns `value` and PARSED."""
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
