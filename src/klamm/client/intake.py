"""Fetching what a consumer reads: whom to ask for which partitions, and what their answers mean.

A broker is asked again only while less than `prefetch.max.bytes` wait to be taken, and then about all its partitions at
once: leaving out the busy ones would let them stand behind a request that waits for the quiet ones. So memory is
bounded by that option: once for what can be taken, once for what is set aside, and once for an answer of each broker.

All decisions are taken in `_pump`, which never waits; see `driver`. What a partition needs before it can be read (an
offset to begin with, a look at where its log was cut) is found out by `places`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.connection import Connection
from klamm.client.cursor import Cursor, measure
from klamm.client.deserializing import Deserializing
from klamm.client.driver import Driver
from klamm.client.errors import BadRecords, BrokerSaid, ClientError, OffsetOutOfRange, error_code
from klamm.client.fetch_session import NO_SESSION_EPOCH, FetchSession, Want
from klamm.client.fetching import Answer, Limits, fetch_request, read_answer, read_endpoints
from klamm.client.metadata import Partition
from klamm.client.nodes import Lane
from klamm.client.places import Places, is_of_another_topic, needs_validation
from klamm.client.prefetched import Prefetched
from klamm.client.reset import ResetTo
from klamm.client.subscription import PartitionState, Phase, Subscriptions
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.membership import Membership

_MAX_NAP_S: Final = 1.0
_PATIENCE: Final = 3
"""So many answers in a row that bring a partition no further are an error."""
_logger = logging.getLogger("klamm.client")


class _Asked(NamedTuple):
    """A partition in a request, and which turn of its state it is asked for."""

    state: PartitionState
    turn: int
    offset: int
    from_leader: bool


@dataclass(slots=True)
class Counts:
    fetches: int = 0
    fetched_bytes: int = 0
    taken_bytes: int = 0
    taken_records: int = 0


class Intake:
    """`wake` is called whenever there may be something for the application: records, or an error."""

    def __init__(
        self,
        cluster: Cluster,
        subscriptions: Subscriptions,
        wake: Callable[[], None],
        *,
        group: Membership | None = None,
        deserializing: Deserializing | None = None,
        on_trouble: Callable[[ClientError], None] | None = None,
        create: bool = False,
    ) -> None:
        """`create`: ask for topics that are not there to be made."""
        config = cluster.config
        self._cluster = cluster
        self._env = cluster.env
        self._subscriptions = subscriptions
        self._wake = wake
        self._deserializing = deserializing
        self._on_trouble = on_trouble
        self._create = create
        self._read_committed = config.isolation_level == "read_committed"
        self._limits = Limits(
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            min(config.fetch_max_bytes, config.prefetch_max_bytes),
            config.max_partition_fetch_bytes,
        )
        self.prefetched = Prefetched(subscriptions, config.prefetch_max_bytes)
        self.counts = Counts()
        self.failure: ClientError | None = None  # of no partition in particular; nothing is asked while it stands
        self._sessions: dict[int, FetchSession] = defaultdict(FetchSession)
        self._asked: set[int] = set()  # brokers with a request on the way
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, cluster.env.rng)
        self._node_failures: dict[int, int] = {}
        self._rotation = 0
        self._full = False  # when it was last looked at: then nobody was asked, or something had to be taken first
        self._closed = False
        self._places = Places(cluster, subscriptions, group, self._backoff, wake)
        self._driver = Driver(self._pump, self._fail)

    async def close(self) -> None:
        self._closed = True
        await self._driver.close()
        self.prefetched.clear()

    def now(self) -> float:
        return self._env.clock.monotonic()

    def metrics(self) -> dict[str, float]:
        counts = self.counts
        return {
            "fetch-total": counts.fetches,
            "fetch-size-avg": counts.fetched_bytes / counts.fetches if counts.fetches else 0.0,
            "bytes-fetched-total": counts.fetched_bytes,
            "bytes-consumed-total": counts.taken_bytes,
            "records-consumed-total": counts.taken_records,
            "bytes-prefetched": self.prefetched.size,
            "assigned-partitions": len(self._subscriptions.partitions),
        }

    def look(self) -> None:
        """The subscriptions have changed."""
        self._driver.wake()

    def taken(self, cursor: Cursor) -> None:
        """All of it: there may be room again."""
        self.counts.taken_bytes += cursor.size
        self.counts.taken_records += cursor.decoded
        if self._full:
            self._driver.wake()

    def raise_failure(self) -> None:
        """Tell what went wrong, if anything did, and go on: whoever hears of it may ask again."""
        error, self.failure = self.failure, None
        if error is not None:
            self._driver.wake()
            raise error

    # What is wanted, of whom.

    def _pump(self) -> float:
        """Ask every broker that can be asked; how long until there may be something to do by the clock alone."""
        now = self._env.clock.monotonic()
        nap_s = _MAX_NAP_S
        if self.failure is not None:
            return nap_s
        full = self._full = self.prefetched.size >= self._cluster.config.prefetch_max_bytes
        homeless: set[str] = set()
        by_node: dict[int, list[_Asked]] = defaultdict(list)
        for place, state in self._subscriptions.partitions.items():
            leader = self._cluster.leader(*place)
            if leader is None:
                homeless.add(place.topic)
            elif is_of_another_topic(state, self._cluster.known.topics[place.topic]):
                if state.offset == state.next_offset:
                    self._out_of_range(state)
                else:
                    self._full = True  # what was fetched of the old one comes first
                continue
            elif state.phase is Phase.READING and leader.leader_epoch != state.leader_epoch:
                self._meet_leader(state, leader)
            if state.not_before > now:
                nap_s = min(nap_s, state.not_before - now)
            elif leader is not None and not full and state.is_fetched and state.error is None:
                node = self._whom(state, leader, now)
                by_node[node].append(_Asked(state, state.turn, state.next_offset, node == leader.leader))
        if homeless or self._cluster.is_stale():
            self._driver.start("metadata", self._refresh, homeless)
        self._places.start(self._driver, now)
        for node, asked in by_node.items():
            if node not in self._asked:
                self._ask(node, asked)
        return nap_s

    def _meet_leader(self, state: PartitionState, leader: Partition) -> None:
        """It is another one than before: it may not have all that was read (KIP-320), nor keep to the same replica."""
        state.preferred = None
        if needs_validation(state, leader):
            state.phase = Phase.VALIDATING
        else:
            state.leader_epoch = leader.leader_epoch

    def _whom(self, state: PartitionState, leader: Partition, now: float) -> int:
        """The replica that the leader has named (KIP-392), as long as that counts; else the leader."""
        node = state.preferred
        if node is None:
            return leader.leader
        known = node in self._cluster.brokers and node in leader.replicas and node not in leader.offline
        if now >= state.preferred_until or not known:
            state.preferred = None
            return leader.leader
        return node

    def _ask(self, node: int, asked: list[_Asked]) -> None:
        if self._driver.is_busy(node):
            return
        connection = self._cluster.nodes.existing(node, Lane.FETCH)
        if connection is None:
            self._driver.start(node, self._connect, node)
            return
        self._rotation += 1
        first = self._rotation % len(asked)  # a full answer leaves out the last ones: let it be others each time
        asked = asked[first:] + asked[:first]
        try:
            future, in_session = self._send(node, connection, asked)
        except ClientError as error:
            if error.retriable:
                self._driver.start(node, self._connect, node)
            else:
                self._fail(error)
            return
        self._asked.add(node)
        future.add_done_callback(lambda done: self._answered(node, asked, in_session, done))

    def _send(self, node: int, connection: Connection, asked: list[_Asked]) -> tuple[asyncio.Future[Any], bool]:
        config = self._cluster.config
        request, version = fetch_request(
            connection.versions,
            [Want(state.place, offset, state.leader_epoch) for state, _, offset, _ in asked],
            self._cluster.known.topics,
            self._limits,
            read_committed=self._read_committed,
            rack=config.client_rack,
            session=self._sessions[node],
        )
        timeout_s = (config.request_timeout_ms + self._limits.max_wait_ms) / 1000
        return connection.send(request, version, timeout_s), request.session_epoch != NO_SESSION_EPOCH

    # What comes back.

    def _answered(self, node: int, asked: list[_Asked], in_session: bool, future: asyncio.Future[Any]) -> None:
        self._asked.discard(node)
        if self._closed or future.cancelled():
            return
        error = future.exception()
        if isinstance(error, ClientError):
            self._sessions[node].lost()
            self._failed(node, error, {state.place.topic for state, *_ in asked})
        elif error is not None:
            raise error
        else:
            answer = future.result()
            code = error_code(answer.error_code)
            if in_session:
                self._sessions[node].answered(code, answer.session_id)
            if code in _SESSION_ERRORS:
                pass  # the next request begins a new one
            elif code:
                self._failed(node, BrokerSaid(code, f"fetching from {self._cluster.nodes.address(node)}"), ())
            else:
                self._node_failures.pop(node, None)
                self.counts.fetches += 1
                self._take(asked, answer)
                if answer.throttle_time_ms:  # the broker has answered, and asks to be left alone (KIP-219)
                    self._driver.start(node, asyncio.sleep, answer.throttle_time_ms / 1000)
        self._driver.wake()

    def _take(self, asked: list[_Asked], answer: Any) -> None:
        topics = self._cluster.known.topics
        answers = read_answer(
            answer, {topics[name].id: name for name in {a.state.place.topic for a in asked} if name in topics}
        )
        for state, turn, offset, from_leader in asked:
            found = answers.get(state.place)
            if found is None or state.turn != turn or state.phase is not Phase.READING or state.next_offset != offset:
                continue
            if not found.code:
                state.topic_id = topics[state.place.topic].id
                self._advance(state, found)
            elif self._cluster.learn_leader(state.place, found.leader, read_endpoints(answer)):
                state.preferred = None  # whoever leads it now is asked next
            else:
                self._partition_failed(state, found.code, from_leader)

    def _advance(self, state: PartitionState, answer: Answer) -> None:
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        if answer.log_start_offset >= 0:
            state.log_start_offset = answer.log_start_offset
        if answer.preferred_replica >= 0:
            state.preferred = answer.preferred_replica
            state.preferred_until = self._env.clock.monotonic() + self._cluster.config.metadata_max_age_ms / 1000
        try:
            extent = measure(state.place, answer.records, state.next_offset)
        except ClientError as error:
            self._subscriptions.fail(state, error)
            self._wake()
            return
        if len(answer.records) and extent.next_offset <= state.next_offset:
            self._no_further(state)
            return
        state.failures = 0
        if extent.next_offset > state.next_offset:
            self.counts.fetched_bytes += len(answer.records)
            self.prefetched.put(
                Cursor(state, answer, extent, read_committed=self._read_committed, deserializing=self._deserializing)
            )
            state.next_offset, state.next_epoch = extent.next_offset, extent.epoch
            self._wake()

    def _no_further(self, state: PartitionState) -> None:
        """Bytes, but no whole batch, or none that is new. A broker that does that may do it for ever."""
        error = BadRecords(f"{state.place}: what came has no whole batch from offset {state.next_offset} on.")
        self._try_later(state)
        if state.failures < _PATIENCE:
            self._tell(error)
        else:
            self._subscriptions.fail(state, error)
            self._wake()

    def _try_later(self, state: PartitionState) -> None:
        state.failures += 1
        state.not_before = self._env.clock.monotonic() + self._backoff.after(state.failures)

    def _partition_failed(self, state: PartitionState, code: ErrorCode, from_leader: bool) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and from_leader and state.offset == state.next_offset:
            self._out_of_range(state)
            return
        error = BrokerSaid(code, str(state.place))
        if error.retriable or code in _PASSING:
            self._tell(error)
        else:
            self._fail(error)
        state.preferred = None
        self._try_later(state)
        if code is not ErrorCode.UNKNOWN_LEADER_EPOCH:  # the broker is behind, not we
            self._driver.start("metadata", self._refresh, (state.place.topic,))

    def _out_of_range(self, state: PartitionState) -> None:
        policy = self._subscriptions.default_reset
        if policy.to is ResetTo.NOTHING:
            self._subscriptions.fail(state, OffsetOutOfRange(*state.place, state.offset))
            self._wake()
        else:
            _logger.info("%s: offset %d is gone; going on from %s.", state.place, state.offset, policy.to.value)
            self._subscriptions.reset(state.place)

    # What goes wrong.

    def _fail(self, error: ClientError) -> None:
        self.failure = self.failure or error
        self._wake()

    def _tell(self, error: ClientError) -> None:
        """Of trouble that may pass."""
        _logger.debug("Fetching: %s", error)
        if self._on_trouble is not None:
            self._on_trouble(error)

    def _failed(self, node: int, error: ClientError, topics: Iterable[str]) -> None:
        if not error.retriable:
            self._fail(error)
            return
        self._tell(error)
        self._node_failures[node] = failures = self._node_failures.get(node, 0) + 1
        self._driver.start(node, self._wait, self._backoff.after(failures), topics)

    # What has to wait.

    async def _connect(self, node: int) -> None:
        try:
            await self._cluster.connection(node, Lane.FETCH)
        except ClientError as error:
            if not error.retriable:
                raise
            self._tell(error)
            self._node_failures[node] = failures = self._node_failures.get(node, 0) + 1
            await self._wait(self._backoff.after(failures), ())

    async def _wait(self, wait_s: float, topics: Iterable[str]) -> None:
        await asyncio.sleep(wait_s)
        await self._refresh(topics)

    async def _refresh(self, topics: Iterable[str]) -> None:
        """Ask for leaders again, and leave some time before the next."""
        try:
            await self._cluster.refresh(topics)
            missing = sorted(topic for topic in topics if topic not in self._cluster.known.topics)
            if missing and self._create:
                await self._cluster.metadata(missing, create=True)
        except ClientError as error:
            if not error.retriable:
                raise
            self._tell(error)
        self._driver.wake()  # what there is can be used at once
        await asyncio.sleep(self._cluster.config.retry_backoff_ms / 1000)


_PASSING: Final = frozenset((ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR))
"""Tried again all the same. Out of range: a follower may be behind, and what waits to be taken comes before a reset."""
_SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
