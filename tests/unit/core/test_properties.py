from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.options import OptionError, parse_properties


def test_a_file_as_kafka_ships_it():
    text = (
        "# a comment\n! another\n\nnode.id=1\nlisteners = PLAINTEXT://:9092,\\\n    CONTROLLER://:9093\r\n"
        "log.dirs:/tmp/data\nempty=\nblank value\n  indented=x  \n"
    )
    assert parse_properties(text) == {
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "log.dirs": "/tmp/data",
        "empty": "",
        "blank": "value",
        "indented": "x  ",
    }


def test_escapes_are_javas():
    text = "a\\=b=c\\:d\\\\\ntab=x\\ty\nunicode=\\u00e4\nlast=ends\\"
    assert parse_properties(text) == {"a=b": "c:d\\", "tab": "x\ty", "unicode": "ä", "last": "ends"}


def test_the_last_of_two_values_counts():
    assert parse_properties("a=1\na=2") == {"a": "2"}


def test_a_comment_sign_inside_a_continued_line_is_text():
    assert parse_properties("a=1,\\\n#2") == {"a": "1,#2"}


@pytest.mark.parametrize("text", ["=value", "a=\\u12", "a=\\uzzzz"])
def test_what_is_malformed_is_refused_with_its_line(text):
    with pytest.raises(OptionError) as caught:
        parse_properties("\n" + text)
    assert "line 2" in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="ab=: \\\n\r\t#!u0é", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        found = parse_properties(text)
    except OptionError:
        return
    assert all(found)


def escape(text):
    return "".join(f"\\u{ord(char):04x}" for char in text)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text(alphabet="abc.é", min_size=1), st.text(alphabet="xyz=:#é")))
def test_what_is_written_escaped_is_read_back(values):
    text = "\n".join(f"{escape(name)}={escape(value)}" for name, value in values.items())
    assert parse_properties(text) == values
