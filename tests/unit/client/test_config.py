from __future__ import annotations

import pytest

from klamm.client import ClientConfig, ConfigError
from klamm.client.config import options


def test_kafkas_names_and_texts_are_taken() -> None:
    config = ClientConfig.from_mapping(
        {"bootstrap.servers": "one:1, [::1]:2,three", "request.timeout.ms": "5", "enable.idempotence": "false"}
    )
    assert config.addresses() == (("one", 1), ("::1", 2), ("three", 9092))
    assert (config.request_timeout_ms, config.enable_idempotence) == (5, False)


def test_unknown_names_are_warnings_and_name_the_nearest() -> None:
    config = ClientConfig.from_mapping({"request.timeout": 5, "interceptor.classes": "g"})
    assert config.warnings == (
        "request.timeout is not used by this client; did you mean request.timeout.ms?",
        "interceptor.classes is not used by this client",
    )


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"acks=2 is not one of .*; linger\.ms=-1 is too small"):
        ClientConfig.from_mapping({"acks": "2", "linger.ms": "-1"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security.protocol": "SASL"}, "PLAINTEXT, SSL"),
        ({"bootstrap.servers": "host:port"}, "HOST:PORT"),
        ({"bootstrap.servers": "host:0"}, "HOST:PORT"),
        ({"max.in.flight.requests.per.connection": 6}, "idempotent"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ClientConfig.from_mapping(given)


def test_every_option_has_a_line_of_doc_and_a_default_that_is_allowed() -> None:
    for name, option in options().items():
        assert option.doc and not option.doc.endswith("."), name
        assert option.parse(option.default) == option.default, name
