"""The options that say how connections are made and protected; `ClientConfig` has them among all others.

Kafka's names come first. Those with `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `sasl.username`
and `sasl.password` are librdkafka's: most people have their keys in such files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from klamm.client.declare import option, time
from klamm.client.errors import ConfigError
from klamm.core.options.option import Kind, Value

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USE_ALL_IPS: Final = "use_all_dns_ips"
CANONICAL: Final = "resolve_canonical_bootstrap_servers_only"
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
ALIASES: Final = {"sasl.mechanisms": "sasl.mechanism"}
"""Other clients' names of options that have another one here."""

TokenProvider: TypeAlias = Callable[[], Any | Awaitable[Any]]
"""Gives a token as text, or an `OAuthToken`; may be a coroutine function. An ordinary function runs in a thread."""


def _is_protocol(value: Value) -> str | None:
    return None if str(value).upper() in PROTOCOLS else f"is not one of {', '.join(PROTOCOLS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    socket_connection_setup_timeout_ms: int = time(10_000, "how long connecting to a broker may take", at_least=1)
    socket_connection_setup_timeout_max_ms: int = time(30_000, "the most that this grows to while it goes on failing",
                                                       at_least=1)  # fmt: skip
    reconnect_backoff_ms: int = time(50, "how long a broker is left alone after a failed connection")
    reconnect_backoff_max_ms: int = time(1000, "the most that this grows to while it goes on failing")
    connections_max_idle_ms: int = option(Kind.LONG, 540_000, "after how long without use a connection is closed; "
                                          "below 0: never")  # fmt: skip
    client_dns_lookup: str = option(Kind.STRING, USE_ALL_IPS, "what becomes of names with several addresses",
                                    choices=(USE_ALL_IPS, CANONICAL))  # fmt: skip

    security_protocol: str = option(Kind.STRING, "PLAINTEXT", f"how connections are protected: {', '.join(PROTOCOLS)}",
                                    check=_is_protocol)  # fmt: skip
    ssl_truststore_location: str = option(Kind.STRING, "", "a PEM file with the authorities that sign brokers; if none "
                                          "is named, those of the system")  # fmt: skip
    ssl_truststore_certificates: str | None = option(Kind.PASSWORD, None, "the same, in PEM, instead of a file")
    ssl_truststore_type: str = option(Kind.STRING, "PEM", "the format of the trust store")
    ssl_ca_location: str = option(Kind.STRING, "", "another name of ssl.truststore.location")
    ssl_keystore_location: str = option(Kind.STRING, "", "a PEM file with this client's key and certificates")
    ssl_keystore_certificate_chain: str | None = option(Kind.PASSWORD, None, "this client's certificates, in PEM")
    ssl_keystore_key: str | None = option(Kind.PASSWORD, None, "the private key of the first of them, in PEM")
    ssl_keystore_type: str = option(Kind.STRING, "PEM", "the format of the key store")
    ssl_certificate_location: str = option(Kind.STRING, "", "a PEM file with this client's certificates alone")
    ssl_key_location: str = option(Kind.STRING, "", "a PEM file with the private key alone")
    ssl_key_password: str | None = option(Kind.PASSWORD, None, "what the private key is encrypted with")
    ssl_endpoint_identification_algorithm: str = option(
        Kind.STRING, "https", "https: a broker's certificate has to name its host; empty: it need not",
        choices=("https", "HTTPS", ""))  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = option(Kind.LIST, TLS_VERSIONS, "the versions of TLS that are spoken",
                                                    choices=TLS_VERSIONS)  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = option(Kind.LIST, (), "the ciphers for TLS 1.2, by OpenSSL's names; none: "
                                                "its own choice")  # fmt: skip

    sasl_mechanism: str = option(Kind.STRING, "", "how to log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER")
    sasl_jaas_config: str | None = option(Kind.PASSWORD, None, "who logs in, as Java's clients write it: "
                                          'org.apache...PlainLoginModule required username="..." password="...";'
                                          )  # fmt: skip
    sasl_username: str = option(Kind.STRING, "", "who logs in, without sasl.jaas.config")
    sasl_password: str | None = option(Kind.PASSWORD, None, "with what password")
    sasl_oauthbearer_token_provider: TokenProvider | None = field(
        default=None, metadata={"python": "a callable that gives the token for OAUTHBEARER"}
    )
    sasl_oauthbearer_token_endpoint_url: str = option(Kind.STRING, "", "where tokens are to be had for the client's "
                                                      "credentials")  # fmt: skip
    sasl_oauthbearer_client_credentials_client_id: str = option(Kind.STRING, "", "the client's id for that")
    sasl_oauthbearer_client_credentials_client_secret: str | None = option(Kind.PASSWORD, None, "and its secret")
    sasl_oauthbearer_scope: str = option(Kind.STRING, "", "what the token should be good for")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.upper() in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.upper().startswith("SASL_")

    def check_security(self) -> None:
        """`ConfigError` for what can be seen to be wrong without opening a file."""
        if self.uses_tls:
            self._check_stores()
        if self.uses_sasl:
            from klamm.client.sasl.credentials import check

            check(self)

    def _check_stores(self) -> None:
        for name, kind in (("truststore", self.ssl_truststore_type), ("keystore", self.ssl_keystore_type)):
            if kind.upper() != "PEM":
                raise ConfigError(
                    f"ssl.{name}.type={kind} is not supported: PEM is.",
                    f"`openssl pkcs12 -in FILE -nodes` turns a PKCS12 {name} into PEM, and keytool -importkeystore a "
                    "JKS one into PKCS12.",
                )
        given = [bool(self.ssl_keystore_location), self.ssl_keystore_certificate_chain is not None,
                 bool(self.ssl_certificate_location)]  # fmt: skip
        if sum(given) > 1:
            raise ConfigError("The client's certificate is given in more than one way.")
        if (self.ssl_keystore_certificate_chain is None) != (self.ssl_keystore_key is None):
            raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key belong together.")
        if bool(self.ssl_certificate_location) != bool(self.ssl_key_location):
            raise ConfigError("ssl.certificate.location and ssl.key.location belong together.")
