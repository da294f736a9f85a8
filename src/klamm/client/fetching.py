"""Fetch requests and their answers, in every version, and the records in them. Pure: no I/O.

Topics have ids from version 13 on, names before. Records come out as a consumer sees them: without what is before the
offset that was asked for, without control records, and with `read_committed` without those of aborted transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.client.errors import BadRecords, error_code
from klamm.client.fetch_session import NO_SESSION_EPOCH, FetchSession, Turn
from klamm.client.fetch_session import Want as Want
from klamm.client.metadata import Broker, Leader, Topic
from klamm.client.versions import Versions
from klamm.core.env import Buffer
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.ids import NO_TOPIC_ID, TopicPartition
from klamm.records.batch import MAGIC, BatchHeader, iter_batches, magic_offset
from klamm.records.record import ControlType, Record, decode_control, decode_records
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

LAST_WITH_NAMES: Final = 12
FIRST_WITH_SESSIONS: Final = 7
WORTH_A_SESSION: Final = 2
"""Partitions. A request for a single one names it anyway, and is the kind that brokers answer quickest."""
_CONSUMER: Final = -1


class Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int


class Answer(NamedTuple):
    """What a broker says about one partition. `records` is a view into the answer's frame."""

    code: ErrorCode
    records: Buffer
    high_watermark: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions that reach into these records: producer id and first offset."""
    last_stable_offset: int = -1
    preferred_replica: int = -1
    """Whom to ask instead (KIP-392)."""
    leader: Leader = Leader(-1, -1)
    """Who leads it, where the broker that was asked does not (KIP-951)."""


def fetch_request(
    versions: Versions,
    wants: Sequence[Want],
    topics: Mapping[str, Topic],
    limits: Limits,
    *,
    read_committed: bool,
    rack: str = "",
    session: FetchSession | None = None,
) -> tuple[FetchRequest, int]:
    """The request, and the version to send it in."""
    names = {want.place.topic for want in wants}
    ids = {name: topics[name].id if name in topics else NO_TOPIC_ID for name in names}
    version = versions.best(FetchRequest, LAST_WITH_NAMES if NO_TOPIC_ID in ids.values() else None)
    turn = Turn(0, NO_SESSION_EPOCH, wants)
    if session is not None and version >= FIRST_WITH_SESSIONS and (session.is_open or len(wants) >= WORTH_A_SESSION):
        turn = session.next(wants, ids if version > LAST_WITH_NAMES else dict.fromkeys(names, NO_TOPIC_ID))
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(read_committed),
        session_id=turn.session_id,
        session_epoch=turn.epoch,
        topics=_wanted(turn.wants, ids, limits.partition_bytes),
        forgotten_topics_data=_forgotten(turn.forgotten),
        rack_id=rack,
    )
    return request, version


def _wanted(wants: Iterable[Want], ids: Mapping[str, bytes], partition_bytes: int) -> list[FetchTopic]:
    by_topic: dict[str, FetchTopic] = {}
    for place, offset, leader_epoch in wants:
        name, index = place
        entry = by_topic.get(name)
        if entry is None:
            entry = by_topic[name] = FetchTopic(topic=name, topic_id=ids[name], partitions=[])
        entry.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes,
            )
        )
    return list(by_topic.values())


def _forgotten(places: Iterable[tuple[TopicPartition, bytes]]) -> list[ForgottenTopic]:
    by_topic: dict[str, ForgottenTopic] = {}
    for (name, index), topic_id in places:
        entry = by_topic.setdefault(name, ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]))
        entry.partitions.append(index)
    return list(by_topic.values())


def read_answer(answer: FetchResponse, names: Mapping[bytes, str]) -> dict[TopicPartition, Answer]:
    found = {}
    for topic in answer.responses:
        name = topic.topic or names.get(bytes(topic.topic_id), "")
        for partition in topic.partitions:
            records = partition.records
            found[TopicPartition(name, partition.partition_index)] = Answer(
                error_code(partition.error_code),
                b"" if records is None or isinstance(records, tuple) else records,
                partition.high_watermark,
                partition.log_start_offset,
                tuple((txn.producer_id, txn.first_offset) for txn in partition.aborted_transactions or ()),
                partition.last_stable_offset,
                partition.preferred_read_replica,
                Leader(partition.current_leader.leader_id, partition.current_leader.leader_epoch),
            )
    return found


def read_endpoints(answer: FetchResponse) -> dict[int, Broker]:
    """Where the leaders are that the answer names."""
    return {node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints}


def next_offset(place: TopicPartition, records: Buffer, offset: int) -> int:
    """Where to go on after these records; the same offset if there is no whole batch in them."""
    for _, header in _batches(place, records):
        offset = max(offset, header.next_offset)
    return offset


def read_records(
    place: TopicPartition,
    answer: Answer,
    start: int,
    end: int | None = None,
    *,
    read_committed: bool = False,
) -> list[Record]:
    """The records from offset `start` on, up to and without `end`."""
    aborted = Aborted(answer.aborted) if read_committed else None
    found: list[Record] = []
    for position, header in _batches(place, answer.records):
        if header.next_offset <= start and not header.is_control:
            continue
        if end is not None and header.base_offset >= end:
            break
        try:
            if aborted is not None and aborted.hides(header, answer.records, position):
                continue
            if header.is_control:
                continue
            records = decode_records(answer.records, position)
        except BrokerError as error:
            raise BadRecords(f"{place}: the batch at offset {header.base_offset} cannot be read: {error}.") from error
        if header.base_offset < start or (end is not None and header.next_offset > end):
            records = [record for record in records if record.offset >= start and (end is None or record.offset < end)]
        found += records
    return found


def _batches(place: TopicPartition, records: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    if len(records) > magic_offset and records[magic_offset] != MAGIC:
        raise BadRecords(f"{place} has records in message format v{records[magic_offset]}; only v{MAGIC} can be read.")
    try:
        yield from iter_batches(records)
    except BrokerError as error:
        raise BadRecords(f"{place}: what the broker sent is no batch: {error}.") from error


class Aborted:
    """Which batches belong to transactions that were aborted, read in the order of the log. A broker lists for each
    the producer and the first offset; an abort marker of that producer ends it."""

    __slots__ = ("_open", "_to_come")

    def __init__(self, listed: tuple[tuple[int, int], ...]) -> None:
        self._to_come = deque(sorted(listed, key=lambda entry: entry[1]))
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, records: Buffer, position: int) -> bool:
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._open.add(self._to_come.popleft()[0])
        if header.is_control:
            marker = decode_control(decode_records(records, position)[0]) if header.record_count else None
            if marker is not None and marker.type is ControlType.ABORT:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
