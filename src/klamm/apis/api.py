"""What an API is, and what its handler sees: `Api`, `Context`, `Pending`, `Broker`.

The server codes against this module alone. A handler is called on the loop with a decoded request:

    def handle(ctx: Context, request: ProduceRequest) -> Answer

and answers with a response message, with a `Pending` that is set later, with a coroutine, or with None for "no answer
is sent" (Produce with acks=0).

Two rules about memory. The buffers of a request (records are views into the frame) are valid only until `handle`
returns or first awaits; a handler copies what must live longer. A response may carry `FileRange`s that are not pinned:
whoever keeps a response over a return to the loop, instead of handing it to the `Sender`, pins its files.

This module must never import a handler: the registry does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from klamm.core.acls import CLUSTER_NAME as CLUSTER_NAME  # handlers take it from here
from klamm.core.acls import AclOperation, AclResource
from klamm.core.errors import BrokerError, ErrorCode
from klamm.replica.pending import Pending as Pending  # handlers and the server take it from here

if TYPE_CHECKING:
    from klamm.apis.fetch_targets import FetchTargets
    from klamm.apis.metadata_cache import MetadataCache
    from klamm.apis.produce_targets import ProduceTargets
    from klamm.apis.registry import Registry
    from klamm.apis.transactional import Verifier
    from klamm.apis.versions_cache import VersionsCache
    from klamm.controller import Controller
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.runtime import Coordinator
    from klamm.coordinator.transactions.machine import TxnMachine
    from klamm.core.env import Env, Part
    from klamm.core.options import Options
    from klamm.metadata.image import Image
    from klamm.metadata.publisher import Publisher
    from klamm.replica.manager import ReplicaManager
    from klamm.replica.producer_ids import ProducerIds
    from klamm.replica.purgatory import Purgatory
    from klamm.replica.sessions import FetchSessions
    from klamm.wire.schema import Request
    from klamm.wire.schema import Response as Message


class Versions(tuple[int, int]):
    """An inclusive range of versions of one API."""

    __slots__ = ()

    def __new__(cls, first: int, last: int) -> Versions:
        return super().__new__(cls, (first, last))

    @property
    def first(self) -> int:
        return self[0]

    @property
    def last(self) -> int:
        return self[1]

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self[0] <= version <= self[1]


Response: TypeAlias = "Message"


class Hangup(BrokerError):
    """A handler's wish to close the connection: the only way to tell of an error where no answer is expected. The
    API's `on_error` has no answer to it either."""


Answer: TypeAlias = "Response | Pending | Awaitable[Response] | None"
Handler: TypeAlias = "Callable[[Context, Any], Answer]"
ErrorAnswer: TypeAlias = "Callable[[Any, int, ErrorCode], Response | None]"
Shortcut: TypeAlias = "Callable[[Context, memoryview, int], bytes | list[Part] | Answer]"


class Api:
    """One API key: its request type, the versions it serves, the versions it advertises, its handler.

    Advertised is what ApiVersions says. It differs from what is served only where a real client needs the lie: a
    request at an advertised version that is not served is refused like any other unsupported one.

    `on_error(request, version, code)` makes the answer for a request whose handler failed as a whole; without one
    (or where it returns None) the server closes the connection.

    `shortcut(ctx, frame, body)` may answer a request of a frequent shape without decoding it: with the encoded body of
    the answer (bytes, or a list of parts that begins with bytes), or with what `handle` would return. None means that
    it has done nothing, and that the request goes to `handle`. It must do exactly what `handle` would; it is only
    quicker.
    """

    __slots__ = ("_request", "advertised", "gate", "handle", "key", "name", "on_error", "shortcut", "versions")

    def __init__(
        self,
        request: type[Request],
        handle: Handler,
        *,
        key: int,
        versions: tuple[int, int],
        advertised: tuple[int, int] | None = None,
        on_error: ErrorAnswer | None = None,
        shortcut: Shortcut | None = None,
        gate: tuple[int, str] | None = None,
    ) -> None:
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self._request = request
        self.versions = Versions(*versions)
        self.advertised = Versions(*(advertised or versions))
        self.handle = handle
        self.on_error = on_error
        self.shortcut = shortcut
        self.gate = gate

    def with_options(self, options: Options | None) -> Api:
        """As it is served where these are the options; without any, all gates are closed."""
        if self.gate is None:
            return self
        version, option = self.gate
        if options is not None and options.get_bool(option):
            return self
        return Api(
            self.request,
            self.handle,
            key=self.key,
            versions=(self.versions.first, version - 1),
            on_error=self.on_error,
            shortcut=self.shortcut,
        )

    @property
    def request(self) -> type[Request]:
        return self._request

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.versions.first}-{self.versions.last}>"


Operation: TypeAlias = AclOperation
"""What a principal wants to do."""
ResourceType: TypeAlias = AclResource
"""What it wants to do it to."""

MAX_ERROR_TEXT = 1000
"""Characters of an error message: what it quotes of the request may be as long as any string on the wire."""


def error_text(code: ErrorCode, message: str | None = None) -> str:
    """The message if there is one, else the code's own text; never too long to be sent."""
    text = message or code.text
    return text if len(text) <= MAX_ERROR_TEXT else f"{text[:MAX_ERROR_TEXT]}..."


class Authorizer(Protocol):
    """The seam for ACLs. A broker without one allows everything."""

    def allows(self, ctx: Context, operation: Operation, resource: ResourceType, name: str) -> bool: ...


class Peer:
    """What is known of the other end of a connection; one object for its life.

    The software name and version come with ApiVersions (KIP-511), the principal with authentication.
    """

    __slots__ = ("connection_id", "host", "listener", "principal", "software_name", "software_version")

    def __init__(self, connection_id: int, listener: str, host: str, principal: str = "User:ANONYMOUS") -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.host = host
        self.principal = principal
        self.software_name = ""
        self.software_version = ""


class Context:
    """One request's surroundings. The server makes it, the handler reads it.

    `throttle_time_ms` is what the handler puts into the response's field of that name: quotas set it before the call.
    """

    __slots__ = ("api_version", "broker", "client_id", "peer", "throttle_time_ms")

    def __init__(
        self, broker: Broker, peer: Peer, api_version: int, client_id: str | None = None, throttle_time_ms: int = 0
    ) -> None:
        self.broker = broker
        self.peer = peer
        self.api_version = api_version
        self.client_id = client_id
        self.throttle_time_ms = throttle_time_ms

    @property
    def listener(self) -> str:
        return self.peer.listener

    def authorize(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        authorizer = self.broker.authorizer
        return authorizer is None or authorizer.allows(self, operation, resource, name)


class Broker:
    """The services that handlers call. Plain attributes, set once by whoever wires the node; but for `options`, which
    are replaced when a dynamic one changes: take them once per request."""

    __slots__ = (
        "apis",
        "authorizer",
        "cluster_id",
        "controller",
        "env",
        "fetch_targets",
        "groups",
        "metadata",
        "metadata_cache",
        "node_id",
        "options",
        "produce_targets",
        "producer_ids",
        "purgatory",
        "replicas",
        "sessions",
        "transactions",
        "verifier",
        "versions_cache",
    )

    def __init__(
        self,
        *,
        env: Env,
        node_id: int,
        cluster_id: str,
        options: Options,
        metadata: Publisher,
        controller: Controller,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        sessions: FetchSessions,
        producer_ids: ProducerIds,
        apis: Registry,
        metadata_cache: MetadataCache,
        versions_cache: VersionsCache,
        produce_targets: ProduceTargets,
        fetch_targets: FetchTargets,
        groups: Coordinator[GroupMachine],
        transactions: Coordinator[TxnMachine],
        authorizer: Authorizer | None = None,
    ) -> None:
        self.env = env
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.options = options
        self.metadata = metadata
        self.controller = controller
        self.replicas = replicas
        self.purgatory = purgatory
        self.sessions = sessions
        self.producer_ids = producer_ids
        self.apis = apis
        self.metadata_cache = metadata_cache
        self.versions_cache = versions_cache
        self.produce_targets = produce_targets
        self.groups = groups
        self.transactions = transactions
        self.fetch_targets = fetch_targets
        self.authorizer = authorizer
        self.verifier: Verifier | None = None  # from the first transactional batch on

    @property
    def image(self) -> Image:
        """The latest metadata. Take it once per request, so that an answer is of one piece."""
        return self.metadata.image
