"""Reading partitions from given offsets on, from whichever broker leads them.

    async with cluster.fetcher({("topic", 0): 0}) as fetcher:
        async for chunk in fetcher:
            for record in chunk.records: ...

What was fetched ahead waits as the broker sent it, compressed, and is decoded when it is asked for. A broker is asked
again only while less than `prefetch_bytes` wait, and then about all its partitions at once: leaving out the busy ones
would let them stand behind a request that waits for the quiet ones. So memory is bounded by `prefetch_bytes` and one
answer from each broker. With end offsets the fetcher comes to an end by itself.

All decisions are taken in `_pump`, which never waits; see `driver`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.client.backoff import Backoff
from klamm.client.connection import Connection
from klamm.client.driver import Driver
from klamm.client.errors import BrokerSaid, ClientError, Closed, OffsetOutOfRange, error_code
from klamm.client.fetching import Answer, Limits, Want, fetch_request, next_offset, read_answer, read_records
from klamm.client.nodes import Lane
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.record import Record

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

PREFETCH_BYTES: Final = 16 << 20
GONE_AFTER_S: Final = 5.0
"""How long metadata may lack a topic before it counts as deleted: a broker that has just started may be behind."""
_MAX_WAIT_S: Final = 1.0


class Chunk(NamedTuple):
    """Records of one partition that came together. There may be none: then only `next_offset` has moved."""

    topic: str
    partition: int
    records: list[Record]
    next_offset: int
    high_watermark: int


class _Fetched(NamedTuple):
    place: TopicPartition
    answer: Answer
    start: int
    next_offset: int


class _Position:
    """Where in a partition the next fetch begins."""

    __slots__ = ("backoff", "end", "not_before", "offset", "place")

    def __init__(self, place: TopicPartition, offset: int, end: int | None, backoff: Backoff) -> None:
        self.place = place
        self.offset = offset
        self.end = end
        self.not_before = 0.0
        self.backoff = backoff

    @property
    def is_finished(self) -> bool:
        return self.end is not None and self.offset >= self.end


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        start: Mapping[tuple[str, int], int],
        *,
        end: Mapping[tuple[str, int], int] | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        on_trouble: Callable[[ClientError], None] | None = None,
    ) -> None:
        """`start` has the offsets to begin with; `end`, for some or all, the offsets to stop before. `on_trouble` hears
        of what goes wrong and is being tried again."""
        config = cluster.config
        self._cluster = cluster
        self._env = cluster.env
        self._config = config
        self._read_committed = config.isolation_level == "read_committed"
        self._prefetch_bytes = prefetch_bytes
        self._on_trouble = on_trouble
        self._limits = Limits(
            config.fetch_max_wait_ms, config.fetch_min_bytes, config.fetch_max_bytes, config.max_partition_fetch_bytes
        )
        ends = {TopicPartition(*place): offset for place, offset in (end or {}).items()}
        self._positions = {
            (place := TopicPartition(*given)): _Position(place, offset, ends.get(place), self._backoff())
            for given, offset in start.items()
        }
        self._ready: deque[_Fetched] = deque()
        self._ready_bytes = 0
        self._arrived = asyncio.Event()
        self._asked: set[int] = set()  # brokers with a request on the way
        self._node_backoffs: dict[int, Backoff] = defaultdict(self._backoff)
        self._gone: dict[str, float] = {}  # topics that the cluster does not list, and since when
        self._failure: ClientError | None = None
        self._closed = False
        self._turn = 0
        self._driver = Driver(self._pump, self._fail)

    def _backoff(self) -> Backoff:
        return Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._env.rng)

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        await self._driver.close()
        self._ready.clear()
        self._arrived.set()

    # For callers.

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while (chunk := await self.next()) is not None:
            yield chunk

    async def next(self) -> Chunk | None:
        """The next records of some partition, in order within each; None when every partition is at its end."""
        while not self._ready:
            if self._closed:
                raise Closed("This fetcher is closed.")
            if self._failure is not None:
                raise self._failure
            if all(position.is_finished for position in self._positions.values()):
                return None
            self._arrived.clear()
            await self._arrived.wait()
        place, answer, start, after = self._ready.popleft()
        self._ready_bytes -= len(answer.records)
        if self._ready_bytes < self._prefetch_bytes:
            self._driver.wake()
        end = self._positions[place].end
        records = read_records(place, answer, start, end, read_committed=self._read_committed)
        return Chunk(*place, records, after, answer.high_watermark)

    def positions(self) -> dict[TopicPartition, int]:
        """Where the next fetch of each partition begins: behind what waits to be taken."""
        return {place: position.offset for place, position in self._positions.items()}

    # The driver.

    def _fail(self, error: ClientError) -> None:
        self._failure = self._failure or error
        self._arrived.set()

    def _pump(self) -> float:
        """Ask every broker that can be asked; how long until there may be something to do by the clock alone."""
        now = self._env.clock.monotonic()
        nap_s = _MAX_WAIT_S
        homeless: set[str] = set()
        by_node: dict[int, list[Want]] = defaultdict(list)
        if self._failure is not None or self._ready_bytes >= self._prefetch_bytes:
            return nap_s
        for position in self._positions.values():
            if position.is_finished:
                continue
            if position.not_before > now:
                nap_s = min(nap_s, position.not_before - now)
                continue
            leader = self._cluster.leader(*position.place)
            if leader is None:
                homeless.add(position.place.topic)
            elif leader.leader not in self._asked:
                by_node[leader.leader].append(Want(position.place, position.offset, leader.leader_epoch))
        if homeless or self._cluster.is_stale():
            self._driver.start("metadata", self._refresh, homeless)
        for node, wants in by_node.items():
            self._ask(node, wants)
        return nap_s

    def _ask(self, node: int, wants: list[Want]) -> None:
        if self._driver.is_busy(node):
            return
        connection = self._cluster.nodes.existing(node, Lane.FETCH)
        if connection is None:
            self._driver.start(node, self._get_connection, node)
            return
        self._turn += 1
        first = self._turn % len(wants)  # a full answer leaves out the last ones: let it be others each time
        wants = wants[first:] + wants[:first]
        try:
            future = self._send(connection, wants)
        except ClientError as error:
            if error.retriable:
                self._driver.start(node, self._get_connection, node)
            else:
                self._fail(error)
            return
        self._asked.add(node)
        future.add_done_callback(lambda done: self._answered(node, wants, done))

    def _send(self, connection: Connection, wants: list[Want]) -> asyncio.Future[Any]:
        request, version = fetch_request(
            connection.versions,
            wants,
            self._cluster.known.topics,
            self._limits,
            read_committed=self._read_committed,
        )
        timeout_ms = self._config.request_timeout_ms + self._limits.max_wait_ms
        return connection.send(request, version, timeout_ms / 1000)

    # What comes back.

    def _answered(self, node: int, wants: list[Want], future: asyncio.Future[Any]) -> None:
        self._asked.discard(node)
        if self._closed or future.cancelled():
            return
        error = future.exception()
        if isinstance(error, ClientError):
            if error.retriable:
                self._tell(error)
                self._later(node, {want.place.topic for want in wants})
            else:
                self._fail(error)
            return
        answer = future.result()
        if answer.error_code:
            code = BrokerSaid(error_code(answer.error_code), f"fetching from {self._cluster.nodes.address(node)}")
            if code.retriable:
                self._later(node, ())
            else:
                self._fail(code)
        else:
            self._node_backoffs.pop(node, None)
            self._take(wants, answer)
        self._driver.wake()

    def _take(self, wants: list[Want], answer: Any) -> None:
        names = {topic.id: topic.name for topic in self._cluster.known.topics.values()}
        answers = read_answer(answer, names)
        for want in wants:
            found = answers.get(want.place)
            position = self._positions[want.place]
            if found is None or position.offset != want.offset:
                continue
            try:
                self._advance(position, found)
            except ClientError as error:
                self._fail(error)

    def _advance(self, position: _Position, answer: Answer) -> None:
        place, code = position.place, answer.code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(*place, position.offset)
        if code:
            error = BrokerSaid(code, str(place))
            self._tell(error)
            wait_s = position.backoff.next_s()
            position.not_before = self._env.clock.monotonic() + wait_s
            self._driver.start("metadata", self._refresh, (place.topic,))
            return
        position.backoff.reset()
        after = next_offset(place, answer.records, position.offset)
        if after > position.offset:
            self._ready.append(_Fetched(place, answer, position.offset, after))
            self._ready_bytes += len(answer.records)
            position.offset = after
            self._arrived.set()

    # What has to wait.

    async def _refresh(self, topics: Iterable[str]) -> None:
        """Ask for leaders again. A topic that stays away ends the reading: it was deleted."""
        try:
            await self._cluster.refresh(topics)
            self._check_gone()
        except ClientError as error:
            self._tell(error)
        await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    def _check_gone(self) -> None:
        now = self._env.clock.monotonic()
        for topic in {place.topic for place in self._positions}:
            if topic in self._cluster.known.topics:
                self._gone.pop(topic, None)
            elif now - self._gone.setdefault(topic, now) > GONE_AFTER_S:
                self._fail(BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, "the topic was deleted"))

    def _tell(self, error: ClientError) -> None:
        """Trouble that may pass is told and tried again; the other kind is the end."""
        if not error.retriable:
            raise error
        if self._on_trouble is not None:
            self._on_trouble(error)

    def _later(self, node: int, topics: Iterable[str]) -> None:
        self._driver.start(node, self._wait, self._node_backoffs[node].next_s(), topics)

    async def _wait(self, wait_s: float, topics: Iterable[str]) -> None:
        await asyncio.sleep(wait_s)
        await self._refresh(topics)

    async def _get_connection(self, node: int) -> None:
        try:
            await self._cluster.connection(node, Lane.FETCH)
        except ClientError as error:
            self._tell(error)
            await self._wait(self._node_backoffs[node].next_s(), ())
