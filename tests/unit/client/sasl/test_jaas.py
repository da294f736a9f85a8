from __future__ import annotations

import pytest

from klamm.client import ConfigError
from klamm.client.sasl.jaas import Jaas, parse

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{MODULE} required;", {}),
        (f'{MODULE} required username="alice" password="a b;c=d";', {"username": "alice", "password": "a b;c=d"}),
        (f"{MODULE} required\n  username=alice\n  password=secret ;\n", {"username": "alice", "password": "secret"}),
        (rf'{MODULE} REQUIRED password="say \"it\" \\ \n" ;', {"password": 'say "it" \\ \n'}),
        (f'{MODULE} required user="" ;', {"user": ""}),
    ],
)
def test_what_javas_clients_take_is_taken(text: str, options: dict[str, str]) -> None:
    assert parse(text) == Jaas("PlainLoginModule", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        MODULE,
        f"{MODULE} required username=alice password=s3cret",
        f'{MODULE} username="alice" password="s3cret";',
        f'{MODULE} required username="alice" password "s3cret";',
        f'{MODULE} required username="alice" password="s3cret;',
        f'{MODULE} required username="alice" password="s3cret"; Other required;',
        f'{MODULE} required = "s3cret";',
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_the_password(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config cannot be read") as caught:
        parse(text)
    assert "s3cret" not in str(caught.value)
