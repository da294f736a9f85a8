"""From a frame to its API's handler, and from the handler's answer to a frame.

Which versions are served comes from the APIs themselves. Whatever a peer sends, and whatever a handler does, the
broker goes on: a request that makes no sense, or a version that is not served, costs that connection; a handler that
fails is logged and answered with the API's error answer, or costs that connection. Only a broken invariant (an
AssertionError) stops the broker, through `on_broken`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from struct import Struct as Packer
from typing import Any

from klamm.apis.api import Answer, Api, Broker, Context, Pending, Response
from klamm.core.env import Clock, Part
from klamm.core.errors import BrokerError, ErrorCode
from klamm.server.connection import Connection
from klamm.server.error_counts import Counter, counter_for
from klamm.server.histogram import Histogram
from klamm.server.logging import LimitedLog
from klamm.server.outbox import Slot
from klamm.wire import ProtocolError, Struct, decode
from klamm.wire.frames import API_VERSIONS, decode_request_header, encode_response, size_of
from klamm.wire.messages import NEVER, first_flexible
from klamm.wire.schema import Request

_logger = logging.getLogger(__name__)

_KEY_VERSION_ID = Packer(">hhi")  # the first bytes of every request header there ever was
_HEAD = Packer(">ii")  # size, correlation id
_FLEXIBLE_HEAD = Packer(">iix")  # and no tagged fields


class Route:
    """One API as the dispatcher uses it, with its counters. Times are from frame to answer, with what it waited for."""

    __slots__ = (
        "_count_errors",
        "_counts",
        "api",
        "durations",
        "errors",
        "failures",
        "first",
        "flexible",
        "handle",
        "last",
        "request",
        "request_bytes",
        "requests",
        "response_bytes",
        "shortcut",
    )

    def __init__(self, api: Api) -> None:
        self.api = api
        self.first, self.last = api.versions
        self.request: type[Request] | None = None  # asked for when it is needed: its module may not be there yet
        self.handle = api.handle
        self.shortcut = api.shortcut
        # ApiVersions always answers with the old header, because who asks does not know yet what we understand.
        self.flexible = first_flexible(api.key) if api.key != API_VERSIONS else NEVER
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.failures = 0
        self.errors: dict[int, int] = {}  # by code, as answers carry them; a shortcut's answers have none
        self.durations = Histogram()
        self._counts = self.durations.counts
        self._count_errors: Counter = self._count_first_errors

    def load(self) -> type[Request]:
        request = self.request = self.api.request
        return request

    def frame(self, body: bytes, version: int, correlation_id: int) -> bytes:
        """A response whose body is encoded already."""
        if version >= self.flexible:
            return _FLEXIBLE_HEAD.pack(len(body) + 5, correlation_id) + body
        return _HEAD.pack(len(body) + 4, correlation_id) + body

    def frame_parts(self, body: list[Part], version: int, correlation_id: int) -> tuple[list[Part], int]:
        """The same for a body with records: its parts, and their size."""
        size = 0
        for part in body:
            size += part.size if isinstance(part, tuple) else len(part)
        flexible = version >= self.flexible
        head = _FLEXIBLE_HEAD.pack(size + 5, correlation_id) if flexible else _HEAD.pack(size + 4, correlation_id)
        body[0] = head + body[0]  # type: ignore[operator] # the first is bytes
        return body, size + len(head)

    def encode(self, response: Response, version: int, correlation_id: int) -> list[Part]:
        parts = encode_response(response, self.api.key, version, correlation_id)
        self._count_errors(response, self.errors)
        return parts

    def _count_first_errors(self, response: Response, errors: dict[int, int]) -> None:
        """Only now, because a broker that starts has no time to look through the tables of all answers."""
        self._count_errors = counter_for(type(response))
        self._count_errors(response, errors)

    def answered(self, response_bytes: int, took_s: float) -> None:
        self.response_bytes += response_bytes
        # `durations.add`, without the call
        self._counts[int(took_s * 1_000_000).bit_length()] += 1
        self.durations.total_s += took_s


class Dispatcher:
    """The `Handler` of the broker's connections."""

    __slots__ = ("_broker", "log", "malformed", "not_served", "now", "on_broken", "routes", "tasks")

    def __init__(
        self, broker: Broker, apis: Iterable[Api], clock: Clock, on_broken: Callable[[BaseException], None]
    ) -> None:
        self._broker = broker
        self.now = clock.monotonic
        self.log = LimitedLog(_logger, clock)
        self.on_broken = on_broken
        self.routes = {api.key: Route(api) for api in apis}
        self.not_served = 0  # requests for an API or a version that there is not
        self.malformed = 0
        self.tasks: set[asyncio.Future[Any]] = set()  # the loop itself holds them only weakly

    def handle(self, connection: Connection, frame: memoryview) -> None:
        started = self.now()
        try:
            key, version, correlation_id, client_id, body = decode_request_header(frame)
        except ProtocolError as error:
            self._malformed(connection, frame, error)
            return
        route = self.routes.get(key)
        if route is None or not route.first <= version <= route.last:
            self._refuse(connection, key, version, correlation_id)
            return
        size = len(frame)
        route.requests += 1
        route.request_bytes += size
        context = Context(self._broker, connection.peer, version, client_id)
        answer: bytes | list[Part] | Answer = None
        failure: Exception | None = None
        if route.shortcut is not None:
            try:
                answer = route.shortcut(context, frame, body)
            except Exception as error:  # noqa: BLE001 - as below
                failure = error
            if type(answer) is bytes:
                response = route.frame(answer, version, correlation_id)
                connection.outbox.answer([response])
                route.answered(len(response), self.now() - started)
                return
            if type(answer) is list:
                parts, size = route.frame_parts(answer, version, correlation_id)
                connection.outbox.answer(parts)
                route.answered(size, self.now() - started)
                return
        try:
            # As with Kafka, bytes behind the last field are let pass.
            request = decode(route.request or route.load(), frame, version, body, allow_trailing=True)
        except ProtocolError as error:
            self._malformed(connection, frame, error)
            return
        try:
            if failure is not None:
                raise failure
            if answer is None:
                answer = route.handle(context, request)
            if isinstance(answer, Struct):
                parts = route.encode(answer, version, correlation_id)
                connection.outbox.answer(parts)
                route.answered(size_of(parts), self.now() - started)
            elif answer is None:
                route.answered(0, self.now() - started)
            else:
                assert not isinstance(answer, (bytes, list))
                _Call(self, connection, route, version, correlation_id, request, started).take(answer, size)
        except Exception as error:  # noqa: BLE001 - whatever a handler does, the broker goes on
            _Call(self, connection, route, version, correlation_id, request, started).fail(error)

    def _refuse(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """An API or a version that is not served. Only ApiVersions has an answer to that (KIP-511)."""
        self.not_served += 1
        route = self.routes.get(key)
        if route is None:
            connection.abort(f"API key {key} (version {version}) is not served")
        elif key == API_VERSIONS:
            connection.outbox.answer(_supported_api_versions(route.api, correlation_id))
        else:
            connection.abort(f"{route.api.name} version {version} is not served, {route.first} to {route.last} are")

    def _malformed(self, connection: Connection, frame: memoryview, error: ProtocolError) -> None:
        # A header of the future may be one that we cannot read; the client still has to learn what we speak.
        if len(frame) >= _KEY_VERSION_ID.size:
            key, version, correlation_id = _KEY_VERSION_ID.unpack_from(frame)
            route = self.routes.get(key)
            if route is not None and key == API_VERSIONS and version > route.last:
                self._refuse(connection, key, version, correlation_id)
                return
        self.malformed += 1
        connection.abort(f"malformed request: {error}")


class _Call:
    """A request whose answer is not simply there: it comes later, or the handler failed."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_dispatcher",
        "_request",
        "_route",
        "_slot",
        "_started",
        "_version",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        connection: Connection,
        route: Route,
        version: int,
        correlation_id: int,
        request: Struct,
        started: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        self._route = route
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._started = started
        self._slot: Slot | None = None

    def take(self, answer: Pending | Awaitable[Response], frame_bytes: int) -> None:
        slot = self._slot = self._connection.outbox.reserve(frame_bytes)
        if isinstance(answer, Pending):
            slot.cancel = answer.cancel
            slot.alone = answer.alone
            answer.then(self._respond)
            return
        # It has not begun to run, and will look at its request when it does.
        self._connection.keep_frame()
        task: asyncio.Future[Response] = asyncio.ensure_future(answer)
        self._dispatcher.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Future[Response]) -> None:
        self._dispatcher.tasks.discard(task)
        if task.cancelled():
            self._connection.abort(None)
            return
        error = task.exception()
        if error is None:
            self._respond(task.result())
        elif isinstance(error, Exception):
            self.fail(error)
        else:
            raise error

    def _respond(self, response: Response | None) -> None:
        if not self._connection.is_open:
            return
        try:
            self._deliver(self._encode(response))
        except Exception as error:  # noqa: BLE001 - a response that cannot be encoded must not hurt who completed it
            self.fail(error)

    def _encode(self, response: Response | None) -> list[Part]:
        if response is None:
            return []
        return self._route.encode(response, self._version, self._correlation_id)

    def _deliver(self, parts: list[Part]) -> None:
        if self._slot is None:
            self._connection.outbox.answer(parts)
        else:
            self._slot.fill(parts)
        self._route.answered(size_of(parts), self._dispatcher.now() - self._started)

    def fail(self, error: Exception) -> None:
        """The handler failed as a whole. Must not raise."""
        route, dispatcher, connection = self._route, self._dispatcher, self._connection
        route.failures += 1
        what = f"{route.api.name} v{self._version}"
        if isinstance(error, AssertionError):
            _logger.critical("a broken invariant in %s stops the broker", what, exc_info=error)
            connection.abort(None)
            dispatcher.on_broken(error)
            return
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, BrokerError):
            code = error.code
        else:
            dispatcher.log.error("%s of %s failed", what, connection, failure=error)
        if not connection.is_open:
            return
        try:
            response = route.api.on_error(self._request, self._version, code) if route.api.on_error else None
            if response is not None:
                self._deliver(self._encode(response))
                return
        except Exception as second:  # noqa: BLE001 - the answer failed as the request did; the connection goes
            dispatcher.log.error("no error answer for %s", what, failure=second)
        connection.abort(f"{what} failed: {error}")


def _supported_api_versions(api: Api, correlation_id: int) -> list[Part]:
    """Error 35 in a body of version 0, with the one entry that says which versions of ApiVersions there are."""
    from klamm.wire.messages.k18_api_versions import ApiVersion, ApiVersionsResponse

    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=api.advertised.first, max_version=api.advertised.last)],
    )
    return encode_response(response, API_VERSIONS, 0, correlation_id)
