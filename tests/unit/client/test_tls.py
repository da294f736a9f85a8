"""TLS from PEM, and what is said of keys and certificates that cannot be used. Apache Kafka is in tests/clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.client import ClientConfig, ConfigError
from klamm.client.security import Security
from klamm.client.tls import make_context, read_keys
from klamm.core.env.real import RealFiles, real_env
from support.certificates import PASSWORD, Authority, Identity


@pytest.fixture(scope="module")
def authority(tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tool, tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue("server", "localhost")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def context(**options: object) -> ssl.SSLContext:
    config = ClientConfig.from_options({"security.protocol": "SSL"}, options)
    return make_context(config, read_keys(RealFiles(), config))


async def greeted(identity: Identity, authority: Authority, client: ssl.SSLContext) -> str:
    """Who the client is, as a server sees it that asks for a certificate of the same authority."""
    rules = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    rules.load_cert_chain(identity.chain, identity.key)
    rules.load_verify_locations(authority.ca)
    rules.verify_mode = ssl.CERT_OPTIONAL

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert") or {}
        names = [value for part in peer.get("subject", ()) for name, value in part if name == "commonName"]
        writer.write(" ".join(names).encode() + b"\n")
        await writer.drain()
        await reader.read()
        writer.close()

    served = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=rules)
    port = served.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line.decode().strip()
    finally:
        served.close()


async def test_a_certificate_is_shown_however_it_was_given(
    authority: Authority, server: Identity, client: Identity
) -> None:
    one_line = " ".join(client.chain.read_text().split("\n"))
    given: list[tuple[dict[str, object], str]] = [
        ({}, ""),
        ({"ssl_keystore_location": client.store}, "client"),
        ({"ssl_certificate_location": client.chain, "ssl_key_location": client.key}, "client"),
        (
            {
                "ssl_certificate_location": client.chain,
                "ssl_key_location": client.locked_key,
                "ssl_key_password": PASSWORD,
            },
            "client",
        ),
        ({"ssl_keystore_certificate_chain": one_line, "ssl_keystore_key": client.key.read_text()}, "client"),
    ]
    for store, name in given:
        assert await greeted(server, authority, context(ssl_truststore_location=authority.ca, **store)) == name
    assert await greeted(server, authority, context(ssl_truststore_certificates=authority.ca.read_text())) == ""
    assert await greeted(server, authority, context(ssl_ca_location=authority.ca)) == ""


async def test_brokers_are_checked_by_default(authority: Authority, server: Identity) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await greeted(server, authority, context())
    trusting = context(ssl_truststore_location=authority.ca)
    assert trusting.check_hostname and trusting.verify_mode is ssl.CERT_REQUIRED
    nameless = context(ssl_truststore_location=authority.ca, ssl_endpoint_identification_algorithm="")
    assert not nameless.check_hostname and nameless.verify_mode is ssl.CERT_REQUIRED


def test_only_the_versions_and_ciphers_that_were_named_are_spoken() -> None:
    only = context(ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites="ECDHE-ECDSA-AES256-GCM-SHA384")
    assert only.minimum_version is only.maximum_version is ssl.TLSVersion.TLSv1_2
    names = [cipher["name"] for cipher in only.get_ciphers() if not cipher["name"].startswith("TLS_")]
    assert names == ["ECDHE-ECDSA-AES256-GCM-SHA384"]
    assert context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_what_cannot_be_used_is_told_by_the_name_of_its_option(client: Identity, tmp_path: Path) -> None:
    binary = tmp_path / "store.p12"
    binary.write_bytes(bytes(range(256)))
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    locked: dict[str, object] = {"ssl_certificate_location": client.chain, "ssl_key_location": client.locked_key}
    cases: list[tuple[dict[str, object], str]] = [
        ({"ssl_truststore_location": tmp_path / "none.pem"}, r"ssl\.truststore\.location: .*no such file"),
        ({"ssl_truststore_location": binary}, r"ssl\.truststore\.location has no certificate in PEM"),
        ({"ssl_truststore_location": damaged}, r"ssl\.truststore\.location has a certificate that cannot be read"),
        ({"ssl_truststore_certificates": "nothing"}, r"ssl\.truststore\.certificates has no certificate"),
        ({"ssl_keystore_location": client.chain}, r"ssl\.keystore\.location has no private key in PEM"),
        (locked, r"encrypted, and there is no ssl\.key\.password"),
        ({**locked, "ssl_key_password": "wrong"}, r"Is ssl\.key\.password right"),
        ({"ssl_keystore_location": client.store, "ssl_certificate_location": client.chain}, "more than one way"),
        ({"ssl_certificate_location": client.chain}, "belong together"),
        ({"ssl_keystore_key": "x"}, "belong together"),
        ({"ssl_truststore_type": "JKS"}, r"ssl\.truststore\.type=JKS is not supported"),
        ({"ssl_cipher_suites": "NO-SUCH"}, r"ssl\.cipher\.suites"),
    ]
    for options, says in cases:
        with pytest.raises(ConfigError, match=says):
            context(**options)


def test_a_key_of_another_certificate_is_refused(authority: Authority, client: Identity, server: Identity) -> None:
    with pytest.raises(ConfigError, match="key values mismatch"):
        context(ssl_certificate_location=client.chain, ssl_key_location=server.key)


async def test_certificates_that_are_replaced_are_used_from_the_next_connection_on(
    authority: Authority, client: Identity, server: Identity, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_text(client.store.read_text())
    options = {"ssl_truststore_location": authority.ca, "ssl_keystore_location": store}
    env = real_env()
    security = Security.of(env, ClientConfig.from_options({"security.protocol": "SSL"}, options))
    assert security is not None
    first, second = await security.tls("localhost"), await security.tls("localhost")
    assert first is not None and second is not None and first.context is second.context
    assert await greeted(server, authority, first.context) == "client"
    store.write_text(authority.issue("successor").store.read_text())
    third = await security.tls("localhost")
    assert third is not None
    assert await greeted(server, authority, third.context) == "successor"
    env.executor.close()
