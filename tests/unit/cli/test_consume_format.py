from __future__ import annotations

import json

import pytest

from klamm.cli.consume_format import format_string, json_lines, key_value_lines, value_lines
from klamm.cli.parsing import UsageError
from klamm.cli.produce_input import Shape
from klamm.records.record import Record

RECORD = Record(7, 1700, b"key", b"value", (("a", b"1"), ("b", None)))
EMPTY = Record(8, 1701, None, None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("%t [%p] at %o\\n", b"topic [3] at 7\n"),
        ("%k=%s\\t%T", b"key=value\t1700"),
        ("%K %S %h", b"3 5 a=1,b=NULL"),
        ("%R", b"\0\0\0\5"),
        ("100%% \\x41\\q\\\\", b"100% A\\q\\"),
        ("ends in %", b"ends in %"),
        ("", b""),
    ],
)
def test_a_format_says_what_is_shown(text: str, shown: bytes) -> None:
    assert format_string(text)("topic", 3, RECORD) == shown


def test_what_is_null_has_no_bytes_and_a_size_of_minus_one() -> None:
    assert format_string("%k|%s|%K|%S|%h")("topic", 3, EMPTY) == b"||-1|-1|"


def test_an_unknown_letter_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="%q is no part of a format; there are %t, %p"):
        format_string("%q")


def test_lines_have_values_or_keys_too() -> None:
    assert value_lines("t", 0, RECORD) == b"value\n"
    assert key_value_lines(b"\t")("t", 0, RECORD) == b"key\tvalue\n"
    assert value_lines("t", 0, EMPTY) == b"\n"


@pytest.mark.parametrize("record", [RECORD, EMPTY, Record(0, 5, b"\xff\x00", "ü\n".encode(), (("h", b"\xfe"),))])
def test_json_is_one_line_and_is_what_produce_takes(record: Record) -> None:
    line = json_lines("t", 2, record)
    assert line.count(b"\n") == 1
    assert json.loads(line)["offset"] == record.offset
    item = Shape(json_lines=True).item(line, "line 1")
    assert (item.key, item.value, item.headers) == (record.key, record.value, record.headers)
    assert (item.partition, item.timestamp_ms) == (2, record.timestamp)
