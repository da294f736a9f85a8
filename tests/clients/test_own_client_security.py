"""Klamm's client and Apache Kafka, over TLS and with SASL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from klamm.client import AuthenticationFailed, ClientConfig, Cluster, ConnectionLost, NotReachable, TlsFailed
from klamm.client.sasl.tokens import OAuthToken
from klamm.core.env.real import real_env
from support.apache_kafka import ApacheKafka
from support.certificates import PASSWORD, Authority, Identity
from support.java import KafkaTools

MODULES = "org.apache.kafka.common.security"
JAAS_PLAIN = f'{MODULES}.plain.PlainLoginModule required username="alice" password="it is \\"secret\\"";'
JAAS_SCRAM = f'{MODULES}.scram.ScramLoginModule required username="bob" password="b0b";'
JAAS_TOKEN = f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="carol";'
SESSION_MS = 2500
"""Kafka refuses to log in again within a second."""


class Secured:
    """One Apache Kafka with a listener of every kind, and the keys to them."""

    def __init__(self, kafka: ApacheKafka, authority: Authority, client: Identity) -> None:
        self.kafka = kafka
        self.authority = authority
        self.client = client

    def options(self, listener: str, **more: object) -> dict[str, object]:
        protocol = LISTENERS[listener]
        options = {"bootstrap.servers": self.kafka.address(listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl.truststore.location"] = str(self.authority.ca)
        return {**options, **{name.replace("_", "."): value for name, value in more.items()}}


LISTENERS = {
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLSSL": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
}


@pytest.fixture(scope="module")
def secured(tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(tool, folder / "keys")
    broker = authority.issue("broker", "localhost")
    options: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": broker.store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.ca,
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }
    for listener in ("sasl", "saslssl", "short"):
        prefix = f"listener.name.{listener}"
        users = 'user_alice="it is \\"secret\\""'.replace("\\", "\\\\")
        options[f"{prefix}.plain.sasl.jaas.config"] = f"{MODULES}.plain.PlainLoginModule required {users};"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            options[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{MODULES}.scram.ScramLoginModule required;"
        module = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
        options[f"{prefix}.oauthbearer.sasl.jaas.config"] = f'{module} unsecuredLoginStringClaim_sub="broker";'
    options["listener.name.short.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,OAUTHBEARER"
    for mechanism in ("plain", "scram-sha-256", "oauthbearer"):
        options[f"listener.name.short.{mechanism}.connections.max.reauth.ms"] = SESSION_MS
    kafka = ApacheKafka(
        KafkaTools(tool),
        folder / "kafka",
        listeners=LISTENERS,
        options=options,
        scram_users=["SCRAM-SHA-256=[name=bob,password=b0b]", "SCRAM-SHA-512=[name=bob,password=b0b]"],
    )
    kafka.start()
    yield Secured(kafka, authority, authority.issue("client"))
    kafka.stop()


Connect = Callable[[dict[str, object]], Awaitable[Cluster]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clusters: list[Cluster] = []
    env = real_env()

    async def to(options: dict[str, object]) -> Cluster:
        clusters.append(await Cluster.connect(ClientConfig.from_mapping(options), env))
        return clusters[-1]

    yield to
    for cluster in clusters:
        await cluster.close()
    env.executor.close()


async def round_trip(cluster: Cluster, topic: str) -> None:
    """What is written is read back; large enough for several TLS records."""
    values = [bytes([number]) * 50_000 for number in range(10)]
    async with cluster.sender() as sender:
        for value in values:
            await sender.put(topic, value)
    assert await read_back(cluster, topic, len(values)) == values


async def read_back(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with cluster.fetcher({(topic, 0): 0}, end={(topic, 0): count}) as fetcher:
        async for chunk in fetcher:
            found += [bytes(record.value or b"") for record in chunk.records]
    return found


async def test_records_go_and_come_over_tls(secured: Secured, connect: Connect, topic: str) -> None:
    await round_trip(await connect(secured.options("SSL")), topic)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_either_version_of_tls_is_spoken(secured: Secured, connect: Connect, version: str) -> None:
    cluster = await connect(secured.options("SSL", ssl_enabled_protocols=version))
    assert (await cluster.metadata()).brokers


async def test_a_broker_of_an_unknown_authority_is_not_believed(
    secured: Secured, connect: Connect, tool: Callable[[str, str], str], tmp_path: Path
) -> None:
    stranger = Authority(tool, tmp_path, "stranger")
    with pytest.raises(TlsFailed, match=r"certificate is not accepted.*ssl\.truststore\.location"):
        await connect(secured.options("SSL", ssl_truststore_location=stranger.ca))
    with pytest.raises(TlsFailed, match="certificate is not accepted"):
        await connect({**secured.options("SSL"), "ssl.truststore.location": ""})


async def test_a_broker_under_another_name_is_not_believed_unless_names_do_not_matter(
    secured: Secured, connect: Connect
) -> None:
    options = secured.options("SSL")
    options["bootstrap.servers"] = str(options["bootstrap.servers"]).replace("localhost", "127.0.0.1")
    with pytest.raises(TlsFailed, match=r"127\.0\.0\.1.*ssl\.endpoint\.identification"):
        await connect(options)
    await connect({**options, "ssl.endpoint.identification.algorithm": ""})


def client_stores(secured: Secured) -> list[dict[str, object]]:
    client = secured.client
    one_line = " ".join(client.chain.read_text().split("\n"))
    return [
        {"ssl.keystore.location": client.store},
        {"ssl.certificate.location": client.chain, "ssl.key.location": client.key},
        {"ssl.certificate.location": client.chain, "ssl.key.location": client.locked_key, "ssl.key.password": PASSWORD},
        {"ssl.keystore.certificate.chain": one_line, "ssl.keystore.key": client.key.read_text()},
    ]


async def test_a_client_shows_its_certificate_however_it_was_given(secured: Secured, connect: Connect) -> None:
    inline = {"ssl.truststore.location": "", "ssl.truststore.certificates": secured.authority.ca.read_text()}
    for store in client_stores(secured):
        cluster = await connect({**secured.options("MUTUAL"), **inline, **store})
        assert (await cluster.metadata()).brokers


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_without_a_certificate_the_broker_refuses_and_we_say_so(
    secured: Secured, connect: Connect, version: str
) -> None:
    with pytest.raises(TlsFailed, match=r"ssl\.keystore\.location"):
        await connect(secured.options("MUTUAL", ssl_enabled_protocols=version))


LOGINS: dict[str, dict[str, object]] = {
    "PLAIN": {"sasl.jaas.config": JAAS_PLAIN},
    "plain without JAAS": {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": 'it is "secret"'},
    "SCRAM-SHA-256": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS_SCRAM},
    "SCRAM-SHA-512": {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS_SCRAM},
    "OAUTHBEARER": {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": JAAS_TOKEN},
}


@pytest.mark.parametrize("listener", ["SASL", "SASLSSL"])
@pytest.mark.parametrize("login", LOGINS)
async def test_every_mechanism_logs_in(secured: Secured, connect: Connect, listener: str, login: str) -> None:
    cluster = await connect({**secured.options(listener), **LOGINS[login]})
    assert (await cluster.metadata()).brokers
    assert cluster.metrics()["successful-authentication-total"] >= 1


async def test_records_go_and_come_with_a_login(secured: Secured, connect: Connect, topic: str) -> None:
    await round_trip(await connect({**secured.options("SASLSSL"), **LOGINS["SCRAM-SHA-512"]}), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_told_at_once_and_not_tried_again(
    secured: Secured, connect: Connect, mechanism: str
) -> None:
    login = {"sasl.mechanism": mechanism, "sasl.username": "bob", "sasl.password": "wrong"}
    with pytest.raises(AuthenticationFailed, match=rf"No login at localhost:\d+ by {mechanism}: Auth") as caught:
        await connect({**secured.options("SASL"), **login})
    assert not caught.value.retriable
    assert "wrong" not in str(caught.value)


async def test_a_mechanism_that_the_broker_lacks_is_told_with_those_that_it_has(
    secured: Secured, connect: Connect
) -> None:
    login = LOGINS["SCRAM-SHA-512"]
    with pytest.raises(AuthenticationFailed, match=r"does not have it\. It offers .*SCRAM-SHA-256"):
        await connect({**secured.options("SHORT"), **login})
    with pytest.raises(AuthenticationFailed, match="wants no login"):
        await connect({**secured.options("SASL"), **login, "bootstrap.servers": secured.kafka.bootstrap})


async def test_a_token_that_the_broker_refuses(secured: Secured, connect: Connect) -> None:
    login = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": lambda: "not.a.token"}
    with pytest.raises(AuthenticationFailed, match=r"No login at localhost:\d+ by OAUTHBEARER"):
        await connect({**secured.options("SASL"), **login})


async def test_plain_text_and_tls_on_the_wrong_listeners_say_what_is_wrong(secured: Secured, connect: Connect) -> None:
    with pytest.raises(NotReachable, match=r"security\.protocol should be SSL"):
        await connect({"bootstrap.servers": secured.kafka.address("SSL")})
    with pytest.raises(NotReachable, match="Is this the listener for TLS"):
        await connect({**secured.options("SSL"), "bootstrap.servers": secured.kafka.bootstrap})
    with pytest.raises(ConnectionLost, match="SASL_PLAINTEXT"):
        await connect({"bootstrap.servers": secured.kafka.address("SASL")})


def made_up_token() -> OAuthToken:
    import base64
    import json
    import time

    claims = {"sub": "carol", "iat": time.time(), "exp": time.time() + 3600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return OAuthToken(b".".join((*parts, b"")).decode())


async def test_a_connection_logs_in_again_before_its_session_ends_and_loses_nothing(
    secured: Secured, connect: Connect, topic: str
) -> None:
    asked = 0

    async def provider() -> OAuthToken:
        nonlocal asked
        asked += 1
        return made_up_token()

    logins: list[dict[str, object]] = [
        LOGINS["PLAIN"],
        LOGINS["SCRAM-SHA-256"],
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": provider},
    ]
    clusters = [await connect({**secured.options("SHORT"), **login}) for login in logins]
    await asyncio.gather(*(busy(cluster, f"{topic}-{i}") for i, cluster in enumerate(clusters)))
    assert asked >= 3
    for cluster in clusters:
        counted = cluster.metrics()
        assert counted["failed-authentication-total"] == 0
        assert counted["connection-close-total"] == 0


async def busy(cluster: Cluster, topic: str) -> None:
    """Writes until every connection has logged in again, twice on average; then reads it all back."""
    sent = 0
    async with cluster.sender() as sender:
        while cluster.metrics()["successful-reauthentication-total"] < 2 * cluster.metrics()["connection-count"]:
            await (await sender.put(topic, b"%d" % sent))
            sent += 1
    assert await read_back(cluster, topic, sent) == [b"%d" % number for number in range(sent)]


async def test_after_a_kill_of_the_broker_a_client_logs_in_again_and_loses_nothing(
    secured: Secured, connect: Connect, topic: str
) -> None:
    cluster = await connect({**secured.options("SASLSSL"), **LOGINS["SCRAM-SHA-256"]})
    async with cluster.sender() as sender:
        await (await sender.put(topic, b"0"))
        before = cluster.metrics()["successful-authentication-total"]
        await asyncio.to_thread(secured.kafka.kill)
        later = [await sender.put(topic, b"%d" % number) for number in range(1, 20)]
        await asyncio.to_thread(secured.kafka.start)
        for delivery in later:
            await delivery
    assert cluster.metrics()["successful-authentication-total"] > before
    assert await read_back(cluster, topic, 20) == [b"%d" % number for number in range(20)]


def test_one_properties_file_serves_javas_tools_and_our_commands(
    secured: Secured, kafka_tools: KafkaTools, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={secured.authority.ca}\n"
        "ssl.truststore.type=PEM\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={MODULES}.scram.ScramLoginModule required \\\n"
        '  username="bob" \\\n  password="b0b";\n'
        "request.timeout.ms=300000\ndefault.api.timeout.ms=300000\n"  # a busy machine is not what is tested
        "socket.connection.setup.timeout.ms=300000\nsocket.connection.setup.timeout.max.ms=300000\n"
    )
    where = secured.kafka.address("SASLSSL")
    kafka_tools(
        "kafka-topics", "--bootstrap-server", where, "--command-config", str(file), "--create", "--topic", topic
    )
    command = [sys.executable, "-m", "klamm", "topic", "list", "--bootstrap", where, "--command-config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert topic in done.stdout
