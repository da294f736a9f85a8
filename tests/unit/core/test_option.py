from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.options import BROKER_OPTIONS, TOPIC_OPTIONS, Kind, Option, OptionError, text_of
from klamm.core.options.client_metrics import CLIENT_METRICS_OPTIONS
from klamm.core.options.groups import GROUP_OPTIONS
from klamm.core.options.known import KNOWN_OPTIONS

ALL = [
    *BROKER_OPTIONS.values(),
    *KNOWN_OPTIONS.values(),
    *TOPIC_OPTIONS.values(),
    *GROUP_OPTIONS.values(),
    *CLIENT_METRICS_OPTIONS.values(),
]


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_default_is_a_value_the_option_itself_accepts(option):
    if option.default is None:
        assert option.parse(None) is None
    else:
        assert option.parse(option.default) == option.default
        assert option.parse(text_of(option.default)) == option.default
    assert option.doc.endswith(".")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INT, " 12 ", 12),
        (Kind.INT, "-3", -3),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.BOOL, "TRUE", True),
        (Kind.BOOL, "false", False),
        (Kind.DOUBLE, "0.25", 0.25),
        (Kind.STRING, " a b ", "a b"),
        (Kind.PASSWORD, " secret ", " secret "),
        (Kind.LIST, "a, b,,c", ("a", "b", "c")),
        (Kind.LIST, "", ()),
        (Kind.LIST, "b,a,b", ("b", "a")),
        (Kind.SHORT, "32767", 32767),
        (Kind.CLASS, " org.acme.Thing ", "org.acme.Thing"),
        (Kind.LIST, ["a", "b"], ("a", "b")),
        (Kind.BOOL, True, True),
        (Kind.INT, 5, 5),
    ],
)
def test_text_becomes_a_value_of_the_options_type(kind, text, value):
    assert Option("x", kind, None, "Doc.").parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Kind.INT, "12a", "x=12a is not a whole number"),
        (Kind.INT, "1_000", "x=1_000 is not a whole number"),
        (Kind.INT, "\u0663", "is not a whole number"),
        (Kind.INT, "", "is not a whole number"),
        (Kind.INT, True, "is not a whole number"),
        (Kind.INT, "9" * 5000, "is not a whole number"),
        (Kind.INT, str(2**31), "the most is 2147483647"),
        (Kind.SHORT, str(2**15), "the most is 32767"),
        (Kind.LONG, str(2**63), "the most is 9223372036854775807"),
        (Kind.BOOL, "yes", "x=yes is not true or false"),
        (Kind.DOUBLE, "nan", "is not a number"),
        (Kind.DOUBLE, "a", "is not a number"),
        (Kind.LIST, 5, "is not a list"),
    ],
)
def test_a_wrong_value_is_refused_with_option_and_value(kind, text, message):
    with pytest.raises(OptionError) as caught:
        Option("x", kind, None, "Doc.").parse(text)
    assert message in str(caught.value)


def test_bounds_and_choices_are_named_in_the_refusal():
    bounded = Option("x", Kind.INT, 5, "Doc.", at_least=1, at_most=9)
    chosen = Option("y", Kind.LIST, (), "Doc.", choices=("a", "b"))
    special = Option("z", Kind.INT, -1, "Doc.", at_least=1, at_most=9, or_else=-1)
    checked = Option("w", Kind.STRING, "", "Doc.", check=lambda value: "is odd" if value == "odd" else None)
    assert special.parse("-1") == -1 and checked.parse("even") == "even"
    for option, text, message in [
        (bounded, "0", "x=0 is too small: the least is 1"),
        (bounded, "10", "x=10 is too large: the most is 9"),
        (bounded, None, "x needs a value"),
        (chosen, "a,c", "y=c is not one of a, b"),
        (special, "0", "z=0 is too small: the least is 1, or -1"),
        (checked, "odd", "w=odd is odd"),
    ]:
        with pytest.raises(OptionError) as caught:
            option.parse(text)
        assert str(caught.value) == message


def test_a_password_is_never_in_a_message():
    with pytest.raises(OptionError) as caught:
        Option("p", Kind.PASSWORD, None, "Doc.", choices=("x",)).parse("secret")
    assert "secret" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(ALL), st.text(max_size=30))
def test_any_text_is_a_value_within_bounds_or_a_refusal(option, text):
    try:
        value = option.parse(text)
    except OptionError:
        return
    assert option.parse(text_of(value)) == value
