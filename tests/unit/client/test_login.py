"""Logging in on a connection, and again on the same one, under a broker that is strict about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import FakeBroker, HangUp

from klamm.client import AuthenticationFailed, Cluster, ConnectionLost, NotReachable
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from klamm.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest
from klamm.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]
PLAIN: dict[str, object] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


class Guard:
    """Makes a fake broker ask for a login, as Kafka does: nothing else may come in the middle of one."""

    def __init__(self, broker: FakeBroker, *, lifetime_ms: int = 0) -> None:
        self.lifetime_ms = lifetime_ms
        self.logins = 0
        self.password = b"secret"
        self.answering: Callable[[], Awaitable[None]] | None = None
        self._in_login = False
        self._metadata = broker.answers[MetadataRequest]
        broker.on(SaslHandshakeRequest, self._handshake)
        broker.on(SaslAuthenticateRequest, self._authenticate)
        broker.on(MetadataRequest, self._serve)

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        assert version == 1
        self._in_login = True
        if request.mechanism != "PLAIN":
            code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN", "OTHER"])
        return SaslHandshakeResponse(mechanisms=["PLAIN"])

    async def _authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        assert self._in_login
        if self.answering is not None:
            await self.answering()
        self._in_login = False
        if request.auth_bytes != b"\0alice\0" + self.password:
            return SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message="Authentication failed: no."
            )
        self.logins += 1
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)

    def _serve(self, request: MetadataRequest, version: int) -> MetadataResponse:
        if self._in_login or not self.logins:
            raise HangUp
        answer: MetadataResponse = self._metadata(request, version)
        return answer


async def test_a_broker_without_sasl_is_told_from_one_that_is_not_there(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    with pytest.raises(AuthenticationFailed, match=r"the broker has no SASL\. security.protocol should be PLAINTEXT"):
        await connect(broker, **PLAIN)


async def test_the_login_comes_after_the_versions_and_before_everything_else(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    guard = Guard(broker)
    cluster = await connect(broker, **PLAIN)
    kinds = [type(message) for message in broker.asked[:4]]
    assert kinds == [ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest, MetadataRequest]
    assert guard.logins == 1
    assert cluster.metrics()["successful-authentication-total"] == 1


async def test_a_refusal_is_told_in_the_brokers_words_and_by_no_other_address(fake: Fake, connect: Connect) -> None:
    one, two = await fake(), await fake()
    guards = [Guard(broker) for broker in (one, two)]
    for guard in guards:
        guard.password = b"another"
    with pytest.raises(AuthenticationFailed, match="by PLAIN: Authentication failed: no"):
        await connect(one, two, **PLAIN)
    assert one.connections + two.connections == 1


async def test_a_mechanism_that_is_not_there_is_told_with_those_that_are(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    Guard(broker)
    with pytest.raises(AuthenticationFailed, match="PLAIN, OTHER"):
        await connect(broker, **{**PLAIN, "sasl.mechanism": "SCRAM-SHA-256"})


async def test_a_broker_that_hangs_up_in_a_login_may_be_asked_again(fake: Fake, connect: Connect) -> None:
    broker = await fake()

    def hang_up(request: Any, version: int) -> None:
        raise HangUp

    broker.on(SaslHandshakeRequest, hang_up)
    broker.on(SaslAuthenticateRequest, hang_up)
    with pytest.raises(NotReachable, match="while logging in by PLAIN") as caught:
        await connect(broker, **PLAIN)
    assert caught.value.retriable


async def test_without_a_login_the_broker_hangs_up_and_the_hint_says_why(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    Guard(broker)
    with pytest.raises(ConnectionLost, match="SASL_PLAINTEXT"):
        await connect(broker)


async def test_requests_wait_while_a_connection_logs_in_again_and_go_in_order(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    guard = Guard(broker, lifetime_ms=1)
    cluster = await connect(broker, **PLAIN)
    in_login, go_on = asyncio.Event(), asyncio.Event()

    async def answering() -> None:
        in_login.set()
        guard.lifetime_ms = 0  # this one lasts
        await go_on.wait()

    guard.answering = answering
    connection = await cluster.connection()
    await in_login.wait()
    assert not connection.is_writable
    version = connection.versions.best(MetadataRequest)
    asked = [connection.send(MetadataRequest(topics=[]), version, 30) for _ in range(5)]
    late = asyncio.ensure_future(connection.request(MetadataRequest(topics=[]), timeout_s=30))
    asked[2].cancel()
    await asyncio.sleep(0)
    assert connection.in_flight == 1
    go_on.set()
    answers = await asyncio.gather(*asked[:2], *asked[3:], late)
    assert all(answer.brokers for answer in answers)
    assert connection.lost is None
    assert cluster.metrics()["successful-reauthentication-total"] == 1


async def test_a_login_that_fails_later_ends_the_connection_and_what_waited(fake: Fake, connect: Connect) -> None:
    broker = await fake()
    guard = Guard(broker, lifetime_ms=1)
    cluster = await connect(broker, **PLAIN)
    in_login, go_on = asyncio.Event(), asyncio.Event()

    async def answering() -> None:
        in_login.set()
        guard.password = b"changed"
        await go_on.wait()

    guard.answering = answering
    connection = await cluster.connection()
    await in_login.wait()
    asked = connection.send(MetadataRequest(topics=[]), connection.versions.best(MetadataRequest), 30)
    go_on.set()
    with pytest.raises(AuthenticationFailed, match="Authentication failed: no"):
        await asked
    guard.answering = None
    with pytest.raises(AuthenticationFailed):  # and so does whoever comes next
        await cluster.metadata()
    assert cluster.metrics()["failed-authentication-total"] == 2
