"""Columns that a sink takes: those that Spark's own takes."""

from __future__ import annotations

import pytest

from klamm.spark.errors import BadOption
from klamm.spark.sink.rows import check, split

pa = pytest.importorskip("pyarrow")


def test_names_in_headers_may_be_in_any_case() -> None:
    check({"value": "string", "headers": "array<struct<Key:string,VALUE:binary>>"}, "clicks")
    kind = pa.list_(pa.struct([("Key", pa.string()), ("VALUE", pa.binary())]))
    headers = pa.array([[{"Key": "a", "VALUE": b"1"}, {"Key": "b", "VALUE": None}], None], kind)
    (rows,) = split(pa.RecordBatch.from_arrays([pa.array(["x", "y"]), headers], ["value", "headers"]), "clicks")
    assert rows.headers == [(("a", b"1"), ("b", None)), ()]


def test_other_types_are_refused_with_those_that_are_not() -> None:
    with pytest.raises(BadOption, match="The column headers is array<struct<key:string,value:string>>, and must be"):
        check({"value": "string", "headers": "array<struct<key:string,value:string>>"}, "clicks")
    with pytest.raises(BadOption, match="A topic needs a column `value`"):
        check({"Value": "string"}, "clicks")
