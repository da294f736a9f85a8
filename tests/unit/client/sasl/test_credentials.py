from __future__ import annotations

import pytest

from klamm.client import ClientConfig, ConfigError
from klamm.client.sasl.credentials import read

MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="u" password="s3cret";'
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="u" password="s3cret";'


def config(**options: object) -> ClientConfig:
    return ClientConfig.from_options(None, {"security_protocol": "SASL_SSL", **options})


def test_the_login_module_tells_the_mechanism_where_nothing_else_does() -> None:
    assert read(config(sasl_jaas_config=PLAIN)).mechanism == "PLAIN"
    assert read(config(sasl_jaas_config=SCRAM)).mechanism == "SCRAM-SHA-256"
    assert read(config(sasl_jaas_config=SCRAM, sasl_mechanism="scram-sha-512")).mechanism == "SCRAM-SHA-512"


def test_user_and_password_do_without_jaas_and_under_librdkafkas_names() -> None:
    login = read(config(sasl_mechanisms="PLAIN", sasl_username="u", sasl_password="p"))
    assert (login.mechanism, login.options) == ("PLAIN", {"username": "u", "password": "p"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "sasl.mechanism is missing"),
        ({"sasl_mechanism": "GSSAPI"}, "GSSAPI is not supported.*PLAIN, SCRAM-SHA-256"),
        ({"sasl_mechanism": "PLAIN"}, "needs a user name and a password"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "u"}, "needs a user name and a password"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": PLAIN}, "does not go with"),
        ({"sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "Krb5LoginModule"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "gives tokens"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_provider": "text"}, "not callable"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "file:///x"}, "https://"),
    ],
)
def test_what_nobody_can_log_in_with_is_refused_before_connecting(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**options)


def test_no_password_is_shown_by_what_holds_it() -> None:
    held = config(sasl_jaas_config=PLAIN, ssl_key_password="s3cret", sasl_password="s3cret")
    assert "s3cret" not in repr(held)
    assert "s3cret" not in repr(read(held))
