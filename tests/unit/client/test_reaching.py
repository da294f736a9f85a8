"""Names with several addresses, brokers that come and go, connections that nobody uses."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import FakeBroker

from klamm.client import ClientConfig, Cluster, ConnectionLost, NotReachable, TimedOut
from klamm.client.connection import Connection
from klamm.client.nodes import Nodes
from klamm.client.reaching import reach
from klamm.core.env import Env, Tls
from klamm.core.env.real import real_env
from klamm.wire.messages.k03_metadata import MetadataRequest

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]
NOWHERE = "127.0.0.3"
"""An address of this machine where nobody listens: the fakes are at 127.0.0.1 alone."""


class Names:
    """A network in which these names have these addresses, and these addresses these names."""

    def __init__(self, addresses: dict[str, list[str]], names: dict[str, list[str]] | None = None) -> None:
        self.asked: list[str] = []
        self._network = real_env().network
        self._addresses = addresses
        self._names = names or {}

    async def resolve(self, host: str, *, canonical: bool = False) -> list[str]:
        self.asked.append(host)
        found = (self._names if canonical else self._addresses).get(host)
        if found is None:
            raise OSError(f"{host} is not known")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def env_with(network: Any) -> Env:
    env = real_env()
    env.network = network
    return env


async def open_to(env: Env, host: str, port: int) -> Connection:
    return await Connection.open(env, host, port, client_id="me", timeout_ms=10_000)


async def test_a_broker_that_stops_in_the_handshake_of_tls_may_be_asked_again() -> None:
    class Stopping(Names):
        async def connect(self, *_: Any, **__: Any) -> Any:
            raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    env = env_with(Stopping({"broker": [NOWHERE]}))
    with pytest.raises(ConnectionLost, match="in the handshake of TLS") as caught:
        await reach(env, "broker", 1, 10, Tls(ssl.create_default_context(), "broker"), asyncio.BufferedProtocol)
    assert caught.value.retriable


async def test_all_addresses_of_a_name_are_tried(fake: Fake) -> None:
    broker = await fake()
    env = env_with(Names({"broker": [NOWHERE, "127.0.0.1"], "down": [NOWHERE]}))
    connection = await open_to(env, "broker", broker.port)
    assert connection.address == f"broker:{broker.port}"
    connection.close()
    for host, why in (("down", "connection refused"), ("unknown", "not known")):
        with pytest.raises(Exception, match=why):
            await open_to(env, host, broker.port)


async def test_bootstrap_names_are_replaced_by_full_ones_if_that_is_wanted(fake: Fake) -> None:
    broker = await fake()
    network = Names(
        {"one.example.org": [NOWHERE], "two.example.org": ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"]},
        names={"broker": ["one.example.org", "two.example.org"]},
    )
    options = {
        "bootstrap.servers": f"broker:{broker.port}",
        "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    }
    cluster = await Cluster.connect(ClientConfig.from_mapping(options), env_with(network))
    assert network.asked == ["broker", "one.example.org", "two.example.org"]
    await cluster.connection(1)
    assert network.asked[3:] == ["127.0.0.1"]  # what the cluster says of itself is taken as it is
    await cluster.close()


async def test_people_hear_of_a_broker_that_fails_and_of_its_return_but_not_of_every_attempt(
    fake: Fake, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await fake()
    cluster = await connect(broker)
    port = broker.port
    await broker.stop()
    caplog.set_level(logging.INFO, "klamm.client")
    for _ in range(3):
        with pytest.raises(NotReachable):
            await cluster.connection(1)
    await broker.start(port)
    await cluster.connection(1)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == [
        f"Broker 1 at 127.0.0.1:{port} cannot be used: connection refused",
        f"Broker 1 at 127.0.0.1:{port} is reachable again, after 3 failed attempts.",
    ]
    assert cluster.metrics()["failed-connection-total"] == 3


async def test_each_attempt_in_a_row_has_more_time_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    async def failing(*args: Any, timeout_ms: int, **kwargs: Any) -> Connection:
        given.append(timeout_ms)
        raise TimedOut("too long")

    monkeypatch.setattr(Connection, "open", failing)
    options = {
        "bootstrap.servers": "broker:1",
        "reconnect.backoff.ms": 0,
        "reconnect.backoff.max.ms": 0,
        "socket.connection.setup.timeout.ms": 100,
        "socket.connection.setup.timeout.max.ms": 500,
    }
    nodes = Nodes(real_env(), ClientConfig.from_mapping(options))
    for _ in range(5):
        with pytest.raises(NotReachable):
            await nodes.connection(-1)
    assert given == [100, 200, 400, 500, 500]
    await nodes.close()


async def test_a_connection_that_nobody_uses_is_closed_and_made_anew_when_it_is_wanted(
    fake: Fake, connect: Connect
) -> None:
    broker = await fake()
    cluster = await connect(broker, **{"connections.max.idle.ms": 40})
    connection = await cluster.connection()
    async with asyncio.timeout(30):
        while connection.lost is None:
            await asyncio.sleep(0.005)
    assert "nobody used it" in str(connection.lost)
    assert (await cluster.metadata()).brokers


async def test_a_connection_with_a_question_on_the_way_is_not_idle(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    cluster = await connect(broker, **{"connections.max.idle.ms": 8})
    gate = asyncio.Event()
    answer = broker.answers[MetadataRequest]

    async def slow(request: MetadataRequest, version: int) -> Any:
        await gate.wait()
        return answer(request, version)

    broker.on(MetadataRequest, slow)
    asked = asyncio.ensure_future(cluster.metadata())
    looks = asyncio.get_running_loop().time() + 0.1  # a dozen times what it is allowed to be idle
    while asyncio.get_running_loop().time() < looks:
        await asyncio.sleep(0.001)
    gate.set()
    assert (await asked).brokers
    assert broker.connections <= 2


async def test_requests_bytes_and_latencies_are_counted(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    cluster = await connect(broker)
    before = cluster.metrics()
    await cluster.metadata()
    after = cluster.metrics()
    assert after["request-total"] == before["request-total"] + 1
    assert after["response-total"] == after["request-total"]
    assert after["requests-in-flight"] == 0
    assert after["outgoing-byte-total"] > before["outgoing-byte-total"]
    assert after["incoming-byte-total"] > before["incoming-byte-total"]
    assert 0 < after["Metadata-latency-avg"] <= after["Metadata-latency-max"] <= after["request-latency-max"]
    assert after["connection-count"] == after["connection-creation-total"] == 1
    await cluster.close()
    assert cluster.metrics()["connection-count"] == 0
