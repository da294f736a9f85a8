"""One connection to one broker: requests go out one after the other, answers come back in the same order.

A connection that has missed an answer is of no use to anybody, since all later ones would wait behind it: a time-out,
a wrong correlation id or an answer that cannot be decoded closes it, and every request on it fails. Whether to try
again is the caller's decision; nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from typing import Any, Final, NamedTuple, TypeVar, cast

import klamm
from klamm import wire
from klamm.client.errors import BadAnswer, BrokerSaid, ClientError, ConnectionLost, TimedOut, UnsupportedVersion
from klamm.client.errors import error_code as code_of
from klamm.client.receive import BadFrame, FrameReceiver
from klamm.client.versions import Versions, api_name
from klamm.core.env import Buffer, Env
from klamm.core.errors import ErrorCode
from klamm.wire import frames
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

MAX_IN_FLIGHT: Final = 128
"""Requests without an answer on one connection; `request` waits for room beyond that."""
_MAX_CORRELATION_ID: Final = 0x7FFFFFFF

C = TypeVar("C", bound="Connection")


class _Pending(NamedTuple):
    correlation_id: int
    response: type[wire.Response]
    version: int
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection(asyncio.BufferedProtocol):
    """`address` is for people. `versions` is there once `open` has returned."""

    versions: Versions

    def __init__(self, address: str, client_id: str) -> None:
        self.address = address
        self.lost: ClientError | None = None
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._receiver = FrameReceiver()
        self._pending: deque[_Pending] = deque()
        self._room: asyncio.Future[None] | None = None  # done when callers who wait to send should look again
        self._paused = False
        self._last_id = 0

    # Opening.

    @classmethod
    async def open(cls, env: Env, host: str, port: int, *, client_id: str, timeout_ms: int) -> Connection:
        """Connect and ask what the broker can do. `ClientError` if there is no broker to talk to."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, made = await env.network.connect(host, port, lambda: cls(address, client_id))
        except TimeoutError:
            raise TimedOut(f"connecting took longer than {timeout_ms / 1000:g} s") from None
        except OSError as error:
            raise ConnectionLost(_reason(error)) from None
        connection = cast(Connection, made)
        try:
            await connection._negotiate(timeout_ms / 1000)
        except BaseException:
            connection.close()
            raise
        return connection

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
        while self.lost is None and (self._paused or len(self._pending) >= MAX_IN_FLIGHT):
            await self._wait_for_room(timeout_s)
        return await self.send(message, version, timeout_s)

    def send(self, message: wire.Request, version: int, timeout_s: float) -> asyncio.Future[Any]:
        """Send at once; the answer, or a `ClientError`, comes through the future. For callers that count for
        themselves how much they have on the way."""
        correlation_id = self._write(message, version)
        future = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._timed_out, api_name(type(message)), timeout_s, future)
        answer = wire.response_type(message.__api_key__)
        self._pending.append(_Pending(correlation_id, answer, version, future, timer))
        return future

    def send_only(self, message: wire.Request, version: int) -> None:
        """Send what has no answer (Produce with acks=0)."""
        self._write(message, version)

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes what it is sent. If not, sending more only fills our memory."""
        return not self._paused

    async def wait_writable(self, timeout_s: float) -> None:
        while self._paused and self.lost is None:
            await self._wait_for_room(timeout_s)

    def _write(self, message: wire.Request, version: int) -> int:
        if self.lost is not None:
            raise self.lost.with_traceback(None)  # the same object for everybody: it must not collect their frames
        assert self._transport is not None
        if self._transport.is_closing():  # a send has failed, and `connection_lost` is on its way
            self._fail(ConnectionLost(f"The connection to {self.address} is gone."))
            raise ConnectionLost(f"The connection to {self.address} is gone.")
        self._last_id = self._last_id + 1 & _MAX_CORRELATION_ID
        try:
            parts = frames.encode_request(message, version, self._last_id, self._client_id)
        except wire.ProtocolError as error:
            raise UnsupportedVersion(f"The broker at {self.address} is too old for this: {error}.") from error
        # Joined, because three small sends cost more than the copy.
        self._transport.write(b"".join(cast("list[Buffer]", parts)))
        return self._last_id

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

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.received(nbytes):
                self._answered(frame)
        except BadFrame as error:
            self._fail(BadAnswer(f"{self.address} does not speak Kafka's protocol.", _who_answers(error.first_bytes)))
        except wire.ProtocolError as error:
            self._fail(BadAnswer(f"An answer of {self.address} cannot be read: {error}."))

    def _answered(self, frame: Buffer) -> None:
        if not self._pending:
            raise wire.ProtocolError("it answers what nobody asked")
        correlation_id, response, version, future, timer = self._pending.popleft()
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
        reason = _reason(error) if isinstance(error, OSError) else "it was closed by the broker"
        self._fail(ConnectionLost(f"The connection to {self.address} is gone: {reason}."))

    # The end.

    def close(self) -> None:
        self._fail(ConnectionLost(f"The connection to {self.address} was closed."))

    def _timed_out(self, api: str, timeout_s: float, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(TimedOut(f"{self.address} did not answer {api} within {timeout_s:g} s."))
            future.exception()
        self._fail(ConnectionLost(f"The connection to {self.address} was given up: no answer within {timeout_s:g} s."))

    def _fail(self, error: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._transport is not None:
            self._transport.abort()
        for pending in self._pending:
            pending.timer.cancel()
            if not pending.future.done():
                pending.future.set_exception(error)
                pending.future.exception()  # looked at: whoever waited may have gone
        self._pending.clear()
        self._make_room()


def _is_unsupported(frame: Buffer) -> bool:
    """Whether an ApiVersions answer says UNSUPPORTED_VERSION; its error code comes first in every version."""
    return int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _reason(error: OSError) -> str:
    """What a person wants to know of an OSError, without numbers and addresses."""
    number = error.errno
    if number is None:  # asyncio joins the errors of several addresses of a host into one text
        found = re.search(r"\[Errno (\d+)\]", str(error))
        number = int(found[1]) if found else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()


def _who_answers(first_bytes: bytes) -> str:
    if first_bytes[:1] in (b"\x15", b"\x16"):
        return "It looks like TLS; this client can only do PLAINTEXT so far."
    if first_bytes.startswith(b"HTTP"):
        return "It is a web server; check the port."
    return "Check the port."
