"""What a running broker counts, as a page for Prometheus.

Everything is read where it is counted anyway; nothing is sampled, and nothing here runs unless somebody asks. A page
of a broker with many partitions is made in slices. The series of single partitions and topics are bounded: above
`MAX_PARTITIONS` they are left out, and the sums stay. This module must never change what it looks at.

The names: `klamm_` and what it is, with its unit; `_total` is what only grows. docs/metrics.md has them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from klamm import __version__
from klamm.core.errors import ErrorCode
from klamm.core.slices import Sliced
from klamm.log.housekeeping import sliced
from klamm.log.manager import LogManager
from klamm.replica.partition import Partition
from klamm.replica.purgatory import Purgatory
from klamm.server.coordinator_metrics import add_coordinators
from klamm.server.dispatch import Dispatcher, Route
from klamm.server.exposition import Exposition, braced
from klamm.server.lag import LoopLag
from klamm.server.listener import Server

if TYPE_CHECKING:
    from klamm.log.compaction.cleaner import Cleaner
    from klamm.server.node import Running

_ERROR_NAMES = {int(code): code.name for code in ErrorCode}

MAX_PARTITIONS = 2_000
_SLICE = 200
"""Logs that are looked at, or written about, before the loop gets its turn: about a millisecond."""


class LogLine(NamedTuple):
    """One partition's log as the page shows it."""

    labels: str
    size_bytes: int
    start_offset: int
    end_offset: int
    durable_offset: int


def add_broker(
    page: Exposition, parts: Running, lag: LoopLag, sizes: dict[str, int], each_partition: bool
) -> Sliced[None]:
    """All that is counted. `sizes` has the logs that nobody has opened since the start, by name."""
    broker = parts.broker
    page.gauge("klamm_info", "What runs here; always 1.")
    page.add(1, version=__version__, cluster_id=broker.cluster_id, node_id=str(broker.node_id))
    routes = [route for _, route in sorted(parts.dispatcher.routes.items()) if route.requests]
    _add_requests(page, routes)
    _add_errors(page, routes, parts.dispatcher)
    _add_network(page, parts.server)
    _add_waiting(page, broker.purgatory, len(broker.sessions))
    page.histogram("klamm_loop_delay_seconds", "How much later than asked the event loop woke a timer.")
    page.add_durations(lag.delays.counts, lag.delays.total_s)
    if parts.logs.cleaner is not None:
        _add_compaction(page, parts.logs.cleaner)
    yield
    yield from add_coordinators(page, broker)
    yield from _add_logs(page, parts, sizes, each_partition)


def _add_requests(page: Exposition, routes: Iterable[Route]) -> None:
    page.counter("klamm_requests_total", "Requests by API.")
    for route in routes:
        page.add(route.requests, api=route.api.name)
    page.counter("klamm_request_bytes_total", "Bytes of requests, without their four bytes of length.")
    for route in routes:
        page.add(route.request_bytes, api=route.api.name)
    page.counter("klamm_response_bytes_total", "Bytes of answers.")
    for route in routes:
        page.add(route.response_bytes, api=route.api.name)
    page.histogram(
        "klamm_request_duration_seconds", "From a whole request to its answer, with the time that it was meant to wait."
    )
    for route in routes:
        page.add_durations(route.durations.counts, route.durations.total_s, api=route.api.name)


def _add_errors(page: Exposition, routes: Iterable[Route], dispatcher: Dispatcher) -> None:
    page.counter("klamm_errors_total", "Error codes in answers, one for each topic or partition that has one.")
    for route in routes:
        for code, count in sorted(route.errors.items()):
            page.add(count, api=route.api.name, error=_ERROR_NAMES.get(code, str(code)))
    page.counter("klamm_request_failures_total", "Requests whose handling failed as a whole; the log says why.")
    for route in routes:
        page.add(route.failures, api=route.api.name)
    page.counter("klamm_requests_not_served_total", "Requests for an API or a version that there is not.")
    page.add(dispatcher.not_served)
    page.counter("klamm_requests_malformed_total", "Requests that made no sense and cost their connection.")
    page.add(dispatcher.malformed)


def _add_network(page: Exposition, server: Server) -> None:
    shared = server.shared
    open_by_listener = Counter(connection.peer.listener for connection in shared.connections.values())
    page.gauge("klamm_connections", "Open connections by listener.")
    for name in server.bound:
        page.add(open_by_listener[name], listener=name)
    page.counter("klamm_connections_opened_total", "Connections that were let in.")
    page.add(shared.count.admitted)
    page.counter("klamm_connections_refused_total", "Connections beyond max.connections or max.connections.per.ip.")
    page.add(shared.count.refused)
    page.gauge("klamm_requests_in_flight", "Requests whose answer is not ready, or waits for its turn.")
    page.add(shared.in_flight.requests)
    page.gauge("klamm_requests_in_flight_bytes", "The bytes that they came as.")
    page.add(shared.in_flight.bytes)
    page.gauge("klamm_frame_memory_bytes", "Memory for large requests that are being read.")
    page.add(shared.frame_memory.used_bytes)
    page.gauge("klamm_frame_memory_limit_bytes", "Its bound; requests wait for memory beyond it.")
    page.add(shared.frame_memory.limit_bytes)


def _add_waiting(page: Exposition, purgatory: Purgatory, sessions: int) -> None:
    held = Counter(type(operation).__name__ for operation in purgatory.operations)
    page.gauge("klamm_purgatory_requests", "Requests that wait: fetches for data, produces to be safe.")
    page.add(held["DelayedFetch"], kind="fetch")
    page.add(held["DelayedProduce"], kind="produce")
    page.gauge("klamm_fetch_sessions", "Incremental fetch sessions that are kept.")
    page.add(sessions)


def _add_compaction(page: Exposition, cleaner: Cleaner) -> None:
    counters = cleaner.counters
    page.counters(
        ("klamm_compaction_rounds_total", counters.rounds, "Rounds of compaction that came to their end."),
        ("klamm_compaction_failures_total", counters.failures, "Rounds that did not; the log says why."),
        ("klamm_compaction_bytes_total", counters.bytes_read_and_written, "Bytes it has read and written."),
        ("klamm_compaction_seconds_total", counters.seconds, "Time that rounds have taken, those that failed too."),
    )
    page.gauge("klamm_compaction_max_dirty_ratio", "The dirtiest log: which share of it is not compacted.")
    page.add(cleaner.max_dirty_ratio)
    page.gauge("klamm_logs_uncleanable", "Logs that are not compacted any more, because they are damaged.")
    page.add(len(cleaner.uncleanable))


def _add_logs(page: Exposition, parts: Running, sizes: dict[str, int], each_partition: bool) -> Sliced[None]:
    image = parts.broker.image
    lines: list[LogLine] = []
    total_bytes = count = behind = 0
    for line, is_behind in _lines(parts.logs, sizes):
        total_bytes += line.size_bytes
        behind += is_behind
        count += 1
        if count <= MAX_PARTITIONS:
            lines.append(line)
        if count % _SLICE == 0:
            yield
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    page.gauges(
        ("klamm_topics", len(image.topics), "Topics."),
        ("klamm_partitions", partitions, "Partitions of all topics."),
        ("klamm_partitions_offline", sum(map(len, parts.logs.offline.values())), "Partitions whose log has failed."),
        ("klamm_logs", count, "Logs that something was written to, or that were opened."),
        ("klamm_logs_behind", behind, "Logs whose disk is slow, so that writes queue up."),
        ("klamm_logs_size_bytes", total_bytes, "What all logs take on disk, without their indexes."),
        ("klamm_metadata_offset", image.offset, "The last metadata record that is in force."),
    )
    yield
    if each_partition and count <= MAX_PARTITIONS:
        yield from _add_partitions(page, lines)
        yield from _add_topics(page, parts.broker.replicas.opened())


def _lines(logs: LogManager, sizes: dict[str, int]) -> Iterator[tuple[LogLine, bool]]:
    """Every log, and whether its writes queue up."""
    for name, (start, end, durable, *_), log in logs.survey():
        topic, _, partition = name.rpartition("-")
        labels = braced({"topic": topic, "partition": partition})
        size = log.size_bytes if log is not None and log.touched else sizes.get(name, 0)
        yield LogLine(labels, size, start, end, durable), log is not None and log.is_behind


def _add_partitions(page: Exposition, lines: list[LogLine]) -> Sliced[None]:
    for field, name, doc in (
        (1, "klamm_log_size_bytes", "What a partition's log takes on disk, without its indexes."),
        (2, "klamm_log_start_offset", "The first offset that there is."),
        (3, "klamm_log_end_offset", "The next offset to be given out; its growth is the rate of records."),
        (4, "klamm_log_durable_offset", "All below it is flushed to the disk."),
    ):
        page.gauge(name, doc)
        for some in sliced(lines, _SLICE):
            for line in some:
                page.add_with(line.labels, line[field])  # type: ignore[arg-type] # only the first is no number
            yield


def _add_topics(page: Exposition, partitions: Iterator[Partition]) -> Sliced[None]:
    received: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for partition in partitions:
        received[partition.topic] += partition.received_bytes
        sent[partition.topic] += partition.sent_bytes
    page.counter("klamm_topic_received_bytes_total", "Bytes of batches that producers have appended.")
    for topic, size in sorted(received.items()):
        page.add(size, topic=topic)
    yield
    page.counter("klamm_topic_sent_bytes_total", "Bytes of batches that fetches have been given.")
    for topic, size in sorted(sent.items()):
        page.add(size, topic=topic)
