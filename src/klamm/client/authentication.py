"""Logging in on a connection, and again before the session ends (KIP-368).

While a connection logs in again, other requests wait: a broker takes nothing else between the first message of a login
and its last. Answers that are still on their way come first; nothing is lost or reordered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from klamm.client.errors import AuthenticationFailed, BrokerSaid, ClientError, ConnectionLost, error_code
from klamm.client.sasl import Mechanism
from klamm.client.sasl.credentials import Credentials
from klamm.core.env import Env
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from klamm.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from klamm.client.connection import Connection

HANDSHAKE_VERSION: Final = 1
"""With 0, of Kafka 0.10, what follows would not be Kafka's protocol."""
EARLIEST_SHARE: Final = 0.85
LATEST_SHARE: Final = 0.95
"""Of a session's life that may pass before logging in again: at random in between, so that not all do at a time."""
MAX_STEPS: Final = 10

log = logging.getLogger("klamm.client")


class Login:
    """That of one connection, for as long as it lives."""

    def __init__(self, env: Env, connection: Connection, credentials: Credentials, timeout_s: float) -> None:
        self._env = env
        self._connection = connection
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """`AuthenticationFailed` says who refused and why."""
        try:
            mechanism = await self._credentials.mechanism()
            lifetime_ms = await self._exchange(mechanism)
        except ClientError:
            self._connection.stats.logins_failed += 1
            raise
        self._connection.stats.logins += 1
        self._schedule(lifetime_ms)

    def _schedule(self, lifetime_ms: int) -> None:
        if lifetime_ms > 0 and self._connection.lost is None:
            wait_s = lifetime_ms / 1000 * self._env.rng.uniform(EARLIEST_SHARE, LATEST_SHARE)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._renew)

    def _renew(self) -> None:
        self._again = asyncio.ensure_future(self._log_in_again())

    async def _log_in_again(self) -> None:
        connection = self._connection
        try:
            mechanism = await self._credentials.mechanism()  # a new token may take a while: nobody waits for that
            connection.hold()
            lifetime_ms = await self._exchange(mechanism)
        except ClientError as error:
            connection.stats.logins_failed += 1
            log.warning("Logging in again failed, so the connection is closed. %s", error)
            connection.fail(error)
            return
        connection.stats.logins_again += 1
        log.debug("Logged in again at %s.", connection.address)
        connection.release()
        self._schedule(lifetime_ms)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._again is not None:
            self._again.cancel()

    # The messages.

    async def _exchange(self, mechanism: Mechanism) -> int:
        """For how many milliseconds the session lasts; 0 for ever."""
        try:
            await self._choose(mechanism.name)
            return await self._convince(mechanism)
        except AuthenticationFailed as error:
            raise AuthenticationFailed(
                f"No login at {self._connection.address} by {mechanism.name}: {error.text.rstrip('.')}.",
                error.hint,
                retriable=error.retriable,
            ) from None
        except ConnectionLost as error:
            raise ConnectionLost(
                f"{error.text.rstrip('.')}, while logging in by {mechanism.name}.", error.hint
            ) from None

    async def _choose(self, name: str) -> None:
        connection = self._connection
        if not connection.versions.has(SaslHandshakeRequest):
            raise AuthenticationFailed("the broker has no SASL", "security.protocol should be PLAINTEXT or SSL there.")
        request = SaslHandshakeRequest(mechanism=name)
        answer: SaslHandshakeResponse = await connection.send(
            request, HANDSHAKE_VERSION, self._timeout_s, even_if_held=True
        )
        code = error_code(answer.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed("the broker does not have it", f"It offers {offered}: see sasl.mechanism.")
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed("this listener wants no login", "Is it the right port, or security.protocol?")
        if code:
            raise BrokerSaid(code, connection.address)

    async def _convince(self, mechanism: Mechanism) -> int:
        connection = self._connection
        version = connection.versions.best(SaslAuthenticateRequest)
        said: bytes | None = mechanism.first()
        for _ in range(MAX_STEPS):
            assert said is not None
            answer: SaslAuthenticateResponse = await connection.send(
                SaslAuthenticateRequest(auth_bytes=said), version, self._timeout_s, even_if_held=True
            )
            if answer.error_code:
                code = error_code(answer.error_code)
                raise AuthenticationFailed(answer.error_message or code.text or code.name, retriable=code.retriable)
            said = mechanism.next(answer.auth_bytes)
            if said is None:
                return answer.session_lifetime_ms
        raise AuthenticationFailed(f"the broker has not enough after {MAX_STEPS} messages")
