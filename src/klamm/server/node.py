"""One broker, put together: what is made in which order, and how it comes down again.

Start: open the page for health checks, lock the folder, load the metadata, know (and where needed recover) the logs,
bind the listeners, become the controller, register with the addresses that were bound, and only then let requests
through. Stop is the way back. Nothing here knows the operating system: the environment is handed in, and the
simulation hands in its own.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.apis import registry, txn_markers
from klamm.apis.api import Broker
from klamm.apis.fetch_targets import FetchTargets
from klamm.apis.metadata_cache import MetadataCache
from klamm.apis.produce_targets import ProduceTargets
from klamm.apis.versions_cache import VersionsCache
from klamm.controller import BrokerRegistration, Controller
from klamm.coordinator.services import group_coordinator, transaction_coordinator
from klamm.core.env import Env
from klamm.core.errors import BrokerError
from klamm.core.options import ListenerSpec, OptionError, Options, listener_warnings, parse_listeners
from klamm.log.closing import MANY_LOGS
from klamm.log.config import LogConfig
from klamm.log.folder import DataFolder, FolderError
from klamm.log.handles import MAX_OPEN_SEGMENTS
from klamm.log.housekeeping import Intervals
from klamm.log.manager import LogManager
from klamm.metadata import features
from klamm.metadata.image import BrokerEndpoint, Image
from klamm.metadata.live_options import LiveOptions
from klamm.metadata.local import LocalStore
from klamm.metadata.publisher import Publisher
from klamm.metadata.replay import Delta
from klamm.metadata.store import MetadataCorrupt
from klamm.metadata.topic_config import log_config, warn_of_idle_options
from klamm.replica.manager import ReplicaManager
from klamm.replica.producer_ids import ProducerIds
from klamm.replica.purgatory import Purgatory
from klamm.replica.recoding import INLINE_BYTES
from klamm.replica.sessions import FetchSessions
from klamm.server.dispatch import Dispatcher
from klamm.server.lag import LoopLag
from klamm.server.limits import Limits
from klamm.server.listener import Server

if TYPE_CHECKING:
    from klamm.server.monitor import Monitor

_TOPICS_NAMED = 5  # in one line of the log

STOP_GRACE_S = 10.0
"""How long a stopping broker waits for clients to take their last answers."""

_logger = logging.getLogger(__name__)


class StartError(Exception):
    """Why the broker cannot start: one sentence for the user."""


class Running(NamedTuple):
    """The parts of a started node, for whoever has to look at them or play tricks on them (klamm.testing)."""

    broker: Broker
    server: Server
    dispatcher: Dispatcher
    logs: LogManager


class Node:
    """A standalone broker: the only node of its cluster, and its controller."""

    def __init__(
        self,
        env: Env,
        data: str,
        options: Options,
        *,
        max_open_segments: int = MAX_OPEN_SEGMENTS,
        many_logs: int = MANY_LOGS,
        recode_inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self.env = env
        self.data = data
        self.options = options
        self.lag = LoopLag(env.clock)
        self._max_open_segments = max_open_segments
        self._many_logs = many_logs
        self._recode_inline_bytes = recode_inline_bytes
        self.running: Running | None = None
        self._started = False
        self._broken = asyncio.Event()
        self._folder: DataFolder | None = None
        self._store: LocalStore | None = None
        self._controller: Controller | None = None
        self._logs: LogManager | None = None
        self._server: Server | None = None
        self._monitor: Monitor | None = None
        self._purgatory = Purgatory(asyncio.get_running_loop(), options.get_int("klamm.delayed.requests"))

    # ---- start

    async def start(self) -> None:
        """StartError if it cannot be; what was opened until then is closed again."""
        for warning in self.options.warnings:
            _logger.warning("%s", warning)
        try:
            await self._start()
        except (FolderError, MetadataCorrupt, OptionError, BrokerError) as error:
            await self.stop(clean=False)
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop(clean=False)
            raise

    async def _start(self) -> None:
        env, options = self.env, self.options
        await self._open_monitor()
        listeners = parse_listeners(options)
        node_id = options.node_id
        folder = self._folder = await env.executor.submit(lambda: DataFolder.open(env, self.data, node_id=node_id))
        store = self._store = LocalStore(env, f"{folder.path}/metadata")
        store.on_failure = self._on_store_failure
        publisher = Publisher(await store.load())
        store.follow(publisher.replay, publisher.reset)
        live = LiveOptions(node_id, options)
        publisher.subscribe(live.apply)
        controller = self._controller = Controller(env, store, publisher, live.current)
        logs = self._logs = await self._open_logs(folder, publisher, live)
        replicas = ReplicaManager(node_id, logs, live.current, recode_inline_bytes=self._recode_inline_bytes)
        publisher.subscribe(replicas.apply)
        groups = group_coordinator(env, lambda: live.current, replicas, controller, publisher)
        producer_ids = ProducerIds(lambda: controller.allocate_producer_ids(node_id))
        transactions = transaction_coordinator(env, lambda: live.current, replicas, controller, publisher, producer_ids)
        apis = registry.load(options)
        broker = Broker(
            env=env,
            node_id=node_id,
            cluster_id=folder.cluster_id,
            options=live.current,
            metadata=publisher,
            controller=controller,
            replicas=replicas,
            purgatory=self._purgatory,
            sessions=FetchSessions(
                lambda: env.rng.randrange(1, 2**31),
                slots=options.get_int("max.incremental.fetch.session.cache.slots"),
            ),
            producer_ids=producer_ids,
            apis=apis,
            metadata_cache=MetadataCache(),
            versions_cache=VersionsCache(),
            produce_targets=ProduceTargets(replicas),
            groups=groups,
            transactions=transactions,
            fetch_targets=FetchTargets(replicas),
        )
        txn_markers.connect(broker)
        dispatcher = Dispatcher(broker, apis, env.clock, self._on_broken)
        limits = limits_from(live.current)
        server = self._server = Server(env, limits, dispatcher)
        live.follow(lambda changed: _take_options(changed, controller, broker, replicas, limits))
        await self._bind(server, listeners)
        for warning in listener_warnings(options, server.bound.values()):
            _logger.warning("%s", warning)
        await controller.start(node_id)
        await controller.register_broker(self._registration(server, logs))
        self.running = Running(broker, server, dispatcher, logs)
        server.open()
        groups.start()
        transactions.start()
        logs.start()
        self.lag.start()
        if self._monitor is not None:
            self._monitor.ready(self.running)
        _logger.info("node %d of cluster %s serves %s", node_id, folder.cluster_id, ", ".join(self.addresses))
        publisher.subscribe(self._log_topics)
        publisher.subscribe(warn_of_idle_options)

    async def _open_monitor(self) -> None:
        """First of all, so that a health check learns of a recovery that takes long."""
        address = self.options.get_optional_str("klamm.metrics.listener")
        if not address:
            return
        from klamm.server.monitor import Monitor  # only for those who ask for it: start-up time is a feature

        self._monitor = Monitor(self.env, self.options, self.lag)
        try:
            await self._monitor.start(address)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise StartError(f"Metrics cannot be served on {address}: {why}; see klamm.metrics.listener.") from error
        _logger.info("metrics and health are on port %d", self._monitor.port)

    async def _open_logs(self, folder: DataFolder, publisher: Publisher, live: LiveOptions) -> LogManager:
        options = self.options

        def config_for(topic: str) -> LogConfig:
            return log_config(publisher.image, topic, live.current)

        def topic_id_for(topic: str, index: int) -> bytes | None:
            state = publisher.image.topics.get(topic)
            return state.id if state is not None and index < len(state.partitions) else None

        try:
            return await LogManager.open(
                self.env,
                folder,
                config_for=config_for,
                topic_id_for=topic_id_for,
                max_open_segments=self._max_open_segments,
                many_logs=self._many_logs,
                intervals=Intervals(
                    log_retention_check_interval_ms=options.get_int("log.retention.check.interval.ms"),
                    producer_id_expiration_check_interval_ms=options.get_int(
                        "producer.id.expiration.check.interval.ms"
                    ),
                    log_flush_offset_checkpoint_interval_ms=options.get_int("log.flush.offset.checkpoint.interval.ms"),
                ),
            )
        except OSError as error:
            raise StartError(f"The data folder {folder.path} cannot be used: {error.strerror or error}.") from error

    async def _bind(self, server: Server, listeners: tuple[ListenerSpec, ...]) -> None:
        for spec in listeners:
            try:
                await server.bind(spec)
            except OSError as error:
                raise StartError(_why_not_bound(spec, error)) from error

    def _registration(self, server: Server, logs: LogManager) -> BrokerRegistration:
        endpoints = [
            BrokerEndpoint(spec.name, spec.advertised_host, spec.advertised_port, spec.protocol)
            for spec in server.bound.values()
        ]
        return BrokerRegistration(
            self.options.node_id,
            self.env.uuid(),
            endpoints,
            rack=self.options.get_optional_str("broker.rack"),
            features=features.SUPPORTED,
            clean=logs.was_clean,
        )

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as HOST:PORT."""
        assert self._server is not None, "not started"
        return [_address(spec.host, spec.port) for spec in self._server.bound.values()]

    @property
    def metrics_port(self) -> int | None:
        return None if self._monitor is None else self._monitor.port

    # ---- while it runs

    def _on_broken(self, error: BaseException) -> None:
        self._broken.set()

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What no handler caught, in a timer say. A broken invariant stops the broker there too."""
        error = context.get("exception")
        if isinstance(error, AssertionError):
            _logger.critical("a broken invariant stops the broker: %s", context.get("message"), exc_info=error)
            self._broken.set()
        else:
            loop.default_exception_handler(context)

    def _on_store_failure(self, why: str) -> None:
        # Records go on; changes of topics are refused until a restart has seen what the disk really holds.
        _logger.critical("the metadata log cannot be written, restart the broker once the disk works: %s", why)
        if self._monitor is not None:
            self._monitor.broken = f"the metadata log cannot be written: {why}"

    async def failed(self) -> None:
        """Returns when an invariant is broken and the broker must not go on."""
        await self._broken.wait()

    def _log_topics(self, image: Image, delta: Delta) -> None:
        if not self._started:  # the subscription itself comes with all topics that there are
            self._started = True
            return
        for what, topics in (("created", delta.created), ("deleted", delta.removed)):
            if topics:
                names = ", ".join(topic.name for topic in topics[:_TOPICS_NAMED])
                _logger.info("%d topics %s: %s%s", len(topics), what, names, ", ..." * (len(topics) > _TOPICS_NAMED))

    def log_lag(self) -> None:
        """Write how late the loop was at worst since the last time somebody asked."""
        _logger.warning("loop lag max_ms=%.1f", self.lag.max_s * 1000)
        self.lag.reset()

    # ---- stop

    async def stop(self, *, clean: bool = True) -> None:
        """Finish what is in flight, flush, and mark the stop as clean, unless something is broken."""
        clean = clean and not self._broken.is_set()
        _logger.info("stopping")
        self.lag.stop()
        if self._monitor is not None:
            self._monitor.stopping()
        if self._server is not None:
            self._server.stop_accepting()
            self._purgatory.hurry()
            if self.running is not None:
                self.running.broker.groups.close()
                self.running.broker.transactions.close()
            await self._server.stop(STOP_GRACE_S if clean else 0)
        if self._controller is not None:
            await self._controller.close()
        if self.running is not None:
            self.running.broker.replicas.close()
        if self._logs is not None:
            await self._logs.close(clean)
        if self._store is not None:
            await self._store.close()
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._monitor is not None:
            self._monitor.close()


def limits_from(options: Options) -> Limits:
    in_flight_bytes = options.get_int("klamm.inflight.bytes")
    queued_bytes = options.get_int("queued.max.request.bytes")
    return Limits(
        max_frame_bytes=options.get_int("socket.request.max.bytes"),
        max_frame_memory_bytes=queued_bytes if queued_bytes > 0 else in_flight_bytes,
        max_in_flight_per_connection=options.get_int("klamm.connection.inflight.requests"),
        max_in_flight_bytes_per_connection=options.get_int("klamm.connection.inflight.bytes"),
        max_in_flight_bytes=in_flight_bytes,
        max_connections=options.get_int("max.connections"),
        max_connections_per_host=options.get_int("max.connections.per.ip"),
        per_host_overrides=options.connection_limits(),
        idle_s=options.get_int("connections.max.idle.ms") / 1000,
        accept_backlog=options.get_int("socket.listen.backlog.size"),
    )


def _take_options(
    options: Options, controller: Controller, broker: Broker, replicas: ReplicaManager, limits: Limits
) -> None:
    """Options were changed while the broker runs: whoever uses one has the new value from here on."""
    controller.options = broker.options = options
    replicas.reconfigure(options)
    limits.take_connection_limits(limits_from(options))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why_not_bound(spec: ListenerSpec, error: OSError) -> str:
    where = _address(spec.host, spec.port)
    if error.errno == errno.EADDRINUSE:
        return f"The address {where} is in use; stop what listens there, or choose another with --listen."
    if error.errno == errno.EACCES:
        return f"The port {spec.port} may not be opened by this user; choose one above 1023."
    return f"Cannot listen on {where}: {os.strerror(error.errno) if error.errno else error}."
