"""One connection to one broker: requests go out one after the other, answers come back in the same order.

A connection that has missed an answer is of no use to anybody, since all later ones would wait behind it: a time-out,
a wrong correlation id or an answer that cannot be decoded closes it, and every request on it fails. Whether to try
again is the caller's decision; nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import klamm
from klamm import wire
from klamm.client.errors import (
    BadAnswer,
    BrokerSaid,
    ClientError,
    ConnectionLost,
    TimedOut,
    UnsupportedVersion,
)
from klamm.client.errors import error_code as code_of
from klamm.client.idle import Idle
from klamm.client.reaching import ENDED, reach, reason_of, tls_failed, who_answers
from klamm.client.receive import BadFrame, FrameReceiver
from klamm.client.reply import Reply
from klamm.client.stats import Stats
from klamm.client.versions import Versions, api_name
from klamm.core.env import Buffer, Env
from klamm.core.errors import ErrorCode
from klamm.wire import frames
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from klamm.client.authentication import Login
    from klamm.client.sasl.credentials import Credentials
    from klamm.client.security import Security
    from klamm.wire.stencil import Stencil

MAX_IN_FLIGHT: Final = 128
"""Requests without an answer on one connection; `request` waits for room beyond that."""
_MAX_CORRELATION_ID: Final = 0x7FFFFFFF
_FIRST_REQUESTS: Final = 3
"""Correlation ids up to this are those of ApiVersions, at most asked twice, and of one request after it."""


class _Pending(NamedTuple):
    correlation_id: int
    response: type[wire.Response]
    version: int
    future: asyncio.Future[Any] | Reply
    timer: asyncio.TimerHandle
    sent_at: float


class Connection(asyncio.BufferedProtocol):
    """`address` is for people. `versions` is there once `open` has returned."""

    versions: Versions

    def __init__(self, address: str, client_id: str, stats: Stats | None = None) -> None:
        self.address = address
        self.lost: ClientError | None = None
        self.stats = stats or Stats()
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver = FrameReceiver()
        self._pending: deque[_Pending] = deque()
        self._held: list[tuple[bytes, _Pending | None]] | None = None  # what is to be sent when a login is over
        self._gathered: list[bytes] | None = None  # what is sent in one piece
        self._room: asyncio.Future[None] | None = None  # done when callers who wait to send should look again
        self._paused = False
        self.last_id = 0
        self._login: Login | None = None
        self._idle = Idle(self)

    # Opening.

    @classmethod
    async def open(
        cls,
        env: Env,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        max_idle_ms: int = -1,
        security: Security | None = None,
        stats: Stats | None = None,
    ) -> Connection:
        """Connect, ask what the broker can do, and log in if that is wanted. `ClientError` if there is no broker to
        talk to; a host's addresses are tried one after the other, each for the whole time."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        tls = None if security is None else await security.tls(host)
        made = await reach(env, host, port, timeout_ms / 1000, tls, lambda: cls(address, client_id, stats))
        connection = cast(Connection, made)
        try:
            await connection._negotiate(timeout_ms / 1000)
            if security is not None and security.credentials is not None:
                await connection._log_in(env, security.credentials, timeout_ms / 1000)
        except BaseException:
            connection.close()
            raise
        if max_idle_ms > 0:
            connection._idle.watch(max_idle_ms / 1000)
        return connection

    async def _log_in(self, env: Env, credentials: Credentials, timeout_s: float) -> None:
        from klamm.client.authentication import Login

        self._login = Login(env, self, credentials, timeout_s)
        await self._login.begin()

    async def _negotiate(self, timeout_s: float) -> None:
        """A broker that does not know our version of ApiVersions says so in version 0, and lists its own (KIP-511)."""
        version = wire.versions_of(ApiVersionsRequest)[-1]
        answer = await self._ask_versions(version, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = next((api.max_version for api in answer.api_keys if api.api_key == frames.API_VERSIONS), 0)
            answer = await self._ask_versions(min(theirs, version - 1), timeout_s)
        if answer.error_code:
            raise BrokerSaid(code_of(answer.error_code), self.address)
        self.versions = Versions.from_answer(answer, self.address)

    async def _ask_versions(self, version: int, timeout_s: float) -> ApiVersionsResponse:
        # A version such as 1.2+local has characters that brokers refuse.
        release = "".join(char if char.isalnum() or char in ".-" else "-" for char in klamm.__version__)
        message = ApiVersionsRequest(client_software_name="klamm", client_software_version=release)
        return cast(ApiVersionsResponse, await self.send(message, version, timeout_s))

    # Requests.

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def request(self, message: wire.Request, *, timeout_s: float, version: int | None = None) -> Any:
        """Send when there is room, and wait for the answer."""
        if version is None:
            version = self.versions.best(type(message))
        while self.lost is None and (not self.is_writable or len(self._pending) >= MAX_IN_FLIGHT):
            await self._wait_for_room(timeout_s)
        return await self.send(message, version, timeout_s)

    def send(
        self, message: wire.Request, version: int, timeout_s: float, *, even_if_held: bool = False
    ) -> asyncio.Future[Any]:
        """Send at once; the answer, or a `ClientError`, comes through the future. For callers that count for
        themselves how much they have on the way."""
        future = self._loop.create_future()
        self._send(message, version, timeout_s, future, even_if_held)
        return future

    def send_for(self, reply: Reply, message: wire.Request, version: int, timeout_s: float) -> None:
        """The same, with the answer to this."""
        self._send(message, version, timeout_s, reply, False)

    def send_records(self, reply: Reply, stencil: Stencil, records: Buffer, timeout_s: float) -> None:
        """The same with a request that only differs in its records from the one before."""
        self._take_id()
        data = stencil.frame(self.last_id, records)
        answer = wire.response_type(stencil.key)
        api = answer.__name__.removesuffix("Response")
        timer = self._loop.call_later(timeout_s, self._timed_out, api, timeout_s, reply)
        self._put(data, _Pending(self.last_id, answer, stencil.version, reply, timer, self._loop.time()), False)

    def _send(
        self,
        message: wire.Request,
        version: int,
        timeout_s: float,
        future: asyncio.Future[Any] | Reply,
        even_if_held: bool,
    ) -> None:
        data = self._encode(message, version)
        timer = self._loop.call_later(timeout_s, self._timed_out, api_name(type(message)), timeout_s, future)
        answer = wire.response_type(message.__api_key__)
        pending = _Pending(self.last_id, answer, version, future, timer, self._loop.time())
        self._put(data, pending, even_if_held)

    def send_only(self, message: wire.Request, version: int) -> None:
        """Send what has no answer (Produce with acks=0)."""
        self._put(self._encode(message, version), None, False)

    def _put(self, data: bytes, pending: _Pending | None, even_if_held: bool) -> None:
        if self._held is not None and not even_if_held:
            self._held.append((data, pending))
            return
        assert self._transport is not None
        if self._gathered is not None:
            self._gathered.append(data)
        else:
            self._transport.write(data)
        self.stats.requests += pending is not None
        self.stats.bytes_out += len(data)
        if pending is not None:
            self._pending.append(pending)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is sent in this block goes out in one piece at its end. Nothing may be awaited in it."""
        self._gathered = []
        try:
            yield
        finally:
            gathered, self._gathered = self._gathered, None
            if gathered and self.lost is None:
                assert self._transport is not None
                self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def hold(self) -> None:
        """From now on keep what is sent, but for what says `even_if_held`."""
        assert self._held is None
        self._held = []

    def release(self) -> None:
        """Send what was kept, and go on."""
        kept, self._held = self._held or [], None
        if self.lost is None:
            for data, pending in kept:
                if pending is None or not pending.future.done():
                    self._put(data, pending, False)
                else:
                    pending.timer.cancel()
        self._make_room()

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes what it is sent. If not, sending more only fills our memory."""
        return not self._paused and self._held is None

    async def wait_writable(self, timeout_s: float) -> None:
        while not self.is_writable and self.lost is None:
            await self._wait_for_room(timeout_s)

    @property
    def client_id(self) -> str:
        return self._client_id

    def _take_id(self) -> None:
        """The next request has `last_id`."""
        if self.lost is not None:
            raise self.lost.with_traceback(None)  # the same object for everybody: it must not collect their frames
        assert self._transport is not None
        if self._transport.is_closing():  # a send has failed, and `connection_lost` is on its way
            self.fail(ConnectionLost(f"The connection to {self.address} is gone."))
            raise ConnectionLost(f"The connection to {self.address} is gone.")
        self.last_id = self.last_id + 1 & _MAX_CORRELATION_ID

    def _encode(self, message: wire.Request, version: int) -> bytes:
        """The request under the next correlation id."""
        self._take_id()
        try:
            parts = frames.encode_request(message, version, self.last_id, self._client_id)
        except wire.ProtocolError as error:
            if error.__cause__ is not None:  # not a field that this version lacks, but something that fits no version
                raise ClientError(f"{error}.", "Has an argument another type than it should have?") from error
            raise UnsupportedVersion(f"The broker at {self.address} is too old for this: {error}.") from error
        # Joined, because three small sends cost more than the copy.
        return b"".join(cast("list[Buffer]", parts))

    async def _wait_for_room(self, timeout_s: float) -> None:
        if self._room is None:
            self._room = self._loop.create_future()
        done, _ = await asyncio.wait((self._room,), timeout=timeout_s)
        if not done:
            raise TimedOut(f"{self.address} has taken no requests for {timeout_s:g} s.")

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.stats.connections_opened += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.stats.bytes_in += nbytes
        try:
            for frame in self._receiver.received(nbytes):
                self._answered(frame)
        except BadFrame as error:
            self.fail(BadAnswer(f"{self.address} does not speak Kafka's protocol.", who_answers(error.first_bytes)))
        except wire.ProtocolError as error:
            self.fail(BadAnswer(f"An answer of {self.address} cannot be read: {error}."))

    def _answered(self, frame: Buffer) -> None:
        if not self._pending:
            raise wire.ProtocolError("it answers what nobody asked")
        correlation_id, response, version, future, timer, sent_at = self._pending.popleft()
        timer.cancel()
        try:
            if response is ApiVersionsResponse and _is_unsupported(frame):
                version = 0
            found_id, answer = frames.decode_response(response, frame, version)
            if found_id != correlation_id:
                raise wire.ProtocolError(f"correlation id {found_id} instead of {correlation_id}")
        except wire.ProtocolError as error:
            if not future.done():
                future.set_exception(BadAnswer(f"An answer of {self.address} cannot be read: {error}."))
            raise
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        self.stats.answered(response.__name__, self._loop.time() - sent_at, throttle_ms)
        if not future.done():
            future.set_result(answer)
        self._make_room()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._make_room()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ENDED) and not hasattr(self, "versions"):
            self.fail(tls_failed(self.address, error))  # the other side said only now that it does not accept ours
            return
        reason = reason_of(error) if isinstance(error, OSError) else "it was closed by the broker"
        self.fail(ConnectionLost(f"The connection to {self.address} is gone: {reason}.", self._why_closed()))

    def _why_closed(self) -> str:
        """A broker ends a connection that should have logged in at the first request after ApiVersions."""
        if self._login is None and self._pending and self._pending[0].correlation_id <= _FIRST_REQUESTS:
            return "If this listener wants a login, security.protocol has to be SASL_PLAINTEXT or SASL_SSL."
        return ""

    # The end.

    def close(self) -> None:
        self.fail(ConnectionLost(f"The connection to {self.address} was closed."))

    def _timed_out(self, api: str, timeout_s: float, future: asyncio.Future[Any] | Reply) -> None:
        self.stats.timeouts += 1
        if not future.done():
            future.set_exception(TimedOut(f"{self.address} did not answer {api} within {timeout_s:g} s."))
            future.exception()
        self.fail(ConnectionLost(f"The connection to {self.address} was given up: no answer within {timeout_s:g} s."))

    def fail(self, error: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        self._idle.stop()
        if self._login is not None:
            self._login.end()
        if self._transport is not None:
            self._transport.abort()
            self.stats.connections_closed += 1
            self.stats.unanswered += len(self._pending)
        kept, self._held = self._held or (), None
        for pending in (*self._pending, *(pending for _, pending in kept if pending is not None)):
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(error)
                pending.future.exception()  # looked at: whoever waited may have gone
        self._pending.clear()
        self._make_room()


def _is_unsupported(frame: Buffer) -> bool:
    """Whether an ApiVersions answer says UNSUPPORTED_VERSION; its error code comes first in every version."""
    return int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
