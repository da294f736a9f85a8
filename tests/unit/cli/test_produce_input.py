from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.cli.parsing import UsageError
from klamm.cli.produce_input import Item, Shape, lines
from klamm.cli.progress import text


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
    assert Shape().item(b"a:b", "") == Item(None, b"a:b")
    assert Shape(key=b"k", partition=3).item(b"v", "") == Item(b"k", b"v", (), 3)
    assert Shape(key_separator=b":").item(b"a:b:c", "") == Item(b"a", b"b:c")
    assert Shape(key_separator=b":").item(b":", "") == Item(b"", b"")
    assert Shape(key_separator=b":", empty_is_null=True).item(b"a:", "") == Item(b"a", None)
    with pytest.raises(UsageError, match="line 4 has no key separator ':'"):
        Shape(key_separator=b":").item(b"ab", "line 4")


@pytest.mark.parametrize(
    ("line", "item"),
    [
        (b'{"value": "v"}', Item(None, b"v")),
        (b'{"key": "k", "value": null}', Item(b"k", None)),
        (b'{"value": {"base64": "/w=="}, "partition": 2, "timestamp": 5}', Item(None, b"\xff", (), 2, 5)),
        (b'{"value": {"a": [1, "\xc3\xbc"]}}', Item(None, '{"a":[1,"ü"]}'.encode())),
        (b'{"value": 1.5, "headers": {"h": "x", "n": null}}', Item(None, b"1.5", (("h", b"x"), ("n", None)))),
        (b'{"value": "", "headers": [["h", "1"], ["h", "2"]]}', Item(None, b"", (("h", b"1"), ("h", b"2")))),
    ],
)
def test_a_json_line_says_all_of_a_record(line: bytes, item: Item) -> None:
    assert Shape(json_lines=True).item(line, "") == item


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nope", "line 3 is no JSON"),
        (b"[]", 'no object with "key" or "value"'),
        (b'{"valeu": 1}', 'no object with "key" or "value"'),
        (b'{"value": {"base64": "%"}}', "not valid base64"),
        (b'{"value": 1, "partition": "x"}', "partition is not a whole number"),
        (b'{"value": 1, "headers": [1]}', "headers are neither"),
        (b'{"value": 1, "headers": 5}', "headers are neither"),
        (b'{"value": 1, "headers": {"\\ud800": "x"}}', "is no text"),
        (b'{"value": 1, "timestamp": -1}', "timestamp -1 is not from 0"),
        (b'{"value": 1, "timestamp": 9223372036854775808}', "timestamp 9223372036854775808 is not from 0"),
    ],
)
def test_what_is_wrong_with_a_json_line_is_told(line: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Shape(json_lines=True).item(line, "line 3")


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_lines_come_from_pipes_and_files(tmp_path: object, end: bytes) -> None:
    content = b"one\ntwo\r\n\nfour" + end
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    path = f"{tmp_path}/lines"
    with open(path, "wb") as file:
        file.write(content)
    with open(path, "rb") as file, open(read, "rb") as pipe:
        for source in (file, pipe):
            assert [line async for line in lines(source.fileno(), "it")] == [b"one", b"two", b"", b"four"]


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**9), st.floats(0.001, 10**6))
def test_progress_can_always_be_shown(done: int, total: int, records: int, seconds: float) -> None:
    assert len(text(done, total, records, seconds)) < 120
