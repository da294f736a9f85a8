"""Fetch (key 1), versions 4-18: read batches from partitions, as they are on disk.

Unusual:
- Records are ranges of files, never copied here. Ranges that are not in the page cache are read ahead in a thread
  first, so that sending them cannot stall the loop.
- A fetch that finds too little is held until there is enough (min_bytes) or its time is up (max_wait_ms).
- Fetch sessions (KIP-227) from v7, topic ids from v13, leader hints (KIP-951) from v16.
- A consumer that reads on in one partition takes a shortcut around the codec (see fetch_targets).
- Followers fetch with their replica id (in the tagged replica state from v15) and see past the high watermark; they
  must be replicas of the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, Pending, ResourceType
from klamm.apis.fetch_targets import FIRST_VERSION
from klamm.core.env import FileRange, Part
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.replica.fetch import CONSUMER, DelayedFetch, Fetched, Limits, Wanted, read_all
from klamm.replica.sessions import FINAL_EPOCH, NO_SESSION, Key, Turn
from klamm.wire.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_REPLICA_STATE = 15
_TOPIC_IDS = 13
_LEADER_HINTS = 16
_READ_COMMITTED = 1


def handle(ctx: Context, request: FetchRequest) -> Answer:
    broker = ctx.broker
    replica_id = request.replica_state.replica_id if ctx.api_version >= _REPLICA_STATE else request.replica_id
    if replica_id < 0:
        replica_id = CONSUMER
    elif not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    max_bytes = min(request.max_bytes, broker.replicas.fetch_max_bytes)
    limits = Limits(
        committed=request.isolation_level == _READ_COMMITTED,
        min_bytes=min(request.min_bytes, max_bytes),  # more than the answer may carry would never come
        max_bytes=max_bytes,
        replica_id=replica_id,
    )
    wanted: Sequence[Wanted] = _wanted(ctx.api_version, request)
    turn: Turn | None = None
    if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION:
        begun = _begin(ctx, request, wanted, replica_id)
        if not isinstance(begun, Turn):
            return FetchResponse(throttle_time_ms=ctx.throttle_time_ms, error_code=begun)
        turn = begun
        wanted = turn.wanted
    denied = None if broker.authorizer is None or replica_id != CONSUMER else _denied(ctx, wanted)
    results, ready = read_all(broker.replicas, wanted, limits, denied)
    if ready or request.max_wait_ms <= 0:
        return _answer(ctx, turn, results)
    return _hold(ctx, request.max_wait_ms / 1000, turn, wanted, limits, results)


def shortcut(ctx: Context, frame: memoryview, body: int) -> list[Part] | None:
    """One partition without a session, where there is something to read. Everything else is `handle`'s."""
    broker = ctx.broker
    if ctx.api_version < FIRST_VERSION or broker.authorizer is not None or ctx.throttle_time_ms:
        return None
    return broker.fetch_targets.read(ctx.api_version, frame, body)


def _wanted(version: int, request: FetchRequest) -> list[Wanted]:
    by_id = version >= _TOPIC_IDS
    return [
        Wanted(
            "" if by_id else topic.topic,
            topic.topic_id if by_id else ZERO_UUID,
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    ]


def _begin(ctx: Context, request: FetchRequest, wanted: Sequence[Wanted], replica_id: int) -> Turn | ErrorCode:
    by_id = ctx.api_version >= _TOPIC_IDS
    forgotten: list[Key] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return ctx.broker.sessions.begin(
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        by_id=by_id,
        privileged=replica_id != CONSUMER,
        now_ms=_now_ms(ctx),
    )


def _now_ms(ctx: Context) -> int:
    return int(ctx.broker.env.clock.monotonic() * 1000)


def _denied(ctx: Context, wanted: Sequence[Wanted]) -> list[Fetched | None]:
    """The answers for partitions that the principal may not read, by slot."""
    verdicts: dict[str, bool] = {}

    def allowed(want: Wanted) -> bool:
        name = want.topic or ctx.broker.replicas.name_of(want.topic_id)
        if name is None:
            return True  # there is nothing to protect
        if name not in verdicts:
            verdicts[name] = ctx.authorize(Operation.READ, ResourceType.TOPIC, name)
        return verdicts[name]

    return [None if allowed(w) else Fetched(w, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for w in wanted]


def _hold(
    ctx: Context,
    timeout_s: float,
    turn: Turn | None,
    wanted: Sequence[Wanted],
    limits: Limits,
    results: Sequence[Fetched],
) -> Answer:
    pending = Pending()

    def done(results: list[Fetched]) -> None:
        if pending.done:
            return  # cancelled meanwhile
        answer = _answer(ctx, turn, results)
        if isinstance(answer, Pending):
            answer.then(pending.set)
        else:
            pending.set(answer)

    delayed = DelayedFetch(ctx.broker.replicas, wanted, limits, results, done)
    if not delayed.hold(ctx.broker.purgatory, results, timeout_s):
        return _answer(ctx, turn, results)  # no room to wait: what there is, now
    pending.on_cancel(delayed.cancel)
    return pending


def _answer(ctx: Context, turn: Turn | None, results: Sequence[Fetched]) -> FetchResponse | Pending:
    """The response, once everything it carries is in the page cache."""
    response = FetchResponse(throttle_time_ms=ctx.throttle_time_ms)
    if turn is not None:
        error, response.session_id, results = turn.answer(results, _now_ms(ctx))
        if error:
            response.error_code = error
            return response
    cold: list[FileRange] | None = None
    for result in results:
        records = result.records
        if records is not None and not records.file.is_cached(records.offset, records.size):
            if cold is None:
                cold = []
            cold.append(records)
    if cold is None:
        _fill(ctx, response, results)
        return response
    return _warm(ctx, response, results, cold)


def _warm(ctx: Context, response: FetchResponse, results: Sequence[Fetched], cold: Sequence[FileRange]) -> Pending:
    """Read ahead in a thread, then answer. The files, also those of the warm ranges, are pinned meanwhile."""
    pending = Pending()
    pinned = [result.records.file for result in results if result.records is not None]
    for file in pinned:
        file.pin()

    def done(future: asyncio.Future[list[FileRange]]) -> None:
        failed = future.result()
        for result in results:
            if result.records is not None and result.records in failed:
                result.records = None
                result.error = ErrorCode.KAFKA_STORAGE_ERROR
        _fill(ctx, response, results)
        pending.set(response)
        for file in pinned:
            file.unpin()

    ctx.broker.env.executor.submit(_read_ahead, cold).add_done_callback(done)
    return pending


def _read_ahead(cold: Sequence[FileRange]) -> list[FileRange]:
    """Runs in a thread. The ranges that could not be read."""
    failed = []
    for part in cold:
        try:
            part.file.read_ahead(part.offset, part.size)
        except OSError:
            failed.append(part)
    return failed


def _fill(ctx: Context, response: FetchResponse, results: Sequence[Fetched]) -> None:
    """The results, in their order; neighbours of one topic share its entry."""
    hints: list[tuple[PartitionData, Fetched]] | None = None
    responses: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    last: Wanted | None = None
    for result in results:
        want = result.wanted
        if last is None or want.topic != last.topic or want.topic_id != last.topic_id:
            partitions = []
            responses.append(FetchableTopicResponse(topic=want.topic, topic_id=want.topic_id, partitions=partitions))
            last = want
        data = PartitionData(
            partition_index=want.index,
            error_code=result.error,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            # Kafka sends empty records rather than null ones, and clients rely on it.
            records=result.records or b"",
            aborted_transactions=None,
        )
        if result.records is not None and result.partition is not None:
            result.partition.sent_bytes += result.records.size
        if result.aborted is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset) for a in result.aborted
            ]
        if result.diverging is not None:
            epoch, end_offset = result.diverging
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if result.preferred_replica >= 0:
            data.preferred_read_replica = result.preferred_replica
        if result.error in _MOVED and ctx.api_version >= _LEADER_HINTS:
            hints = hints or []
            hints.append((data, result))
        partitions.append(data)
    response.responses = responses
    if hints:
        _add_leaders(ctx, response, hints)


_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _add_leaders(ctx: Context, response: FetchResponse, hints: Sequence[tuple[PartitionData, Fetched]]) -> None:
    from klamm.apis.leaders import addresses  # rare

    leaders = []
    for data, result in hints:
        if result.partition is not None:
            leader_id = result.partition.leader_id
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=result.partition.leader_epoch)
            leaders.append(leader_id)
    response.node_endpoints = [
        NodeEndpoint(node_id=a.node_id, host=a.host, port=a.port, rack=a.rack)
        for a in addresses(ctx.broker.image, ctx.listener, leaders)
    ]


def on_error(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse | None:
    return FetchResponse(error_code=code) if version >= 7 else None  # the field for the whole came with v7


API = Api(FetchRequest, handle, key=1, versions=(4, 18), on_error=on_error, shortcut=shortcut)
