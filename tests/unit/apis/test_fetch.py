"""Fetch: what is found, how much of it, and when the answer comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

VERSIONS = range(4, 19)
MANY = 1 << 20


def fetch(
    *parts: FetchPartition | int,
    topic: str = "t",
    topic_id: bytes = ZERO_UUID,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MANY,
    session: tuple[int, int] = (0, -1),
    **options: Any,
) -> FetchRequest:
    """Integers are offsets in partition 0, 1, ..."""
    partitions = [
        FetchPartition(partition=i, fetch_offset=p, partition_max_bytes=MANY) if isinstance(p, int) else p
        for i, p in enumerate(parts)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)] if partitions else [],
        **options,
    )


def at(offset: int = 0, index: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(**{"partition": index, "fetch_offset": offset, "partition_max_bytes": MANY, **fields})


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_come_back_at_every_version(node: Any, tools: Any, version: int) -> None:
    topic_id = await node.create()
    node.append(b"a", b"b")
    node.append(b"c")
    response = await node.call(fetch(0, topic_id=topic_id), version)
    answer = only(response)
    assert tools.values_of(answer.records) == [b"a", b"b", b"c"]
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (ErrorCode.NONE, 3, 3)
    assert answer.aborted_transactions is None
    if version >= 13:
        assert response.responses[0].topic_id == topic_id
    else:
        assert response.responses[0].topic == "t"


async def test_a_fetch_in_the_middle_of_a_batch_gives_that_batch(node: Any, tools: Any) -> None:
    await node.create()
    node.append(b"a", b"b", b"c")
    node.append(b"d")
    assert tools.values_of(only(await node.call(fetch(2), 11)).records) == [b"a", b"b", b"c", b"d"]
    assert tools.values_of(only(await node.call(fetch(3), 11)).records) == [b"d"]


async def test_the_first_batch_is_whole_however_small_the_limits(node: Any, tools: Any) -> None:
    await node.create(partitions=2)
    for index in (0, 1):
        node.append(b"x" * 1000, index=index)
        node.append(b"y" * 1000, index=index)
    response = await node.call(fetch(at(partition_max_bytes=1), at(index=1, partition_max_bytes=1), max_bytes=1), 11)
    first, second = response.responses[0].partitions
    assert tools.values_of(first.records) == [b"x" * 1000]
    assert tools.values_of(second.records) == []


async def test_the_broker_s_own_limit_counts_too(start: Any, tools: Any) -> None:
    node = await start(fetch_max_bytes="1024")
    await node.create()
    for _ in range(10):
        node.append(b"x" * 500)
    assert len(only(await node.call(fetch(0), 11)).records) == 1024


async def test_the_end_is_empty_and_beyond_it_is_out_of_range(node: Any) -> None:
    await node.create()
    node.append(b"a")
    end = only(await node.call(fetch(1), 11))
    assert (end.error_code, bytes(end.records), end.high_watermark) == (ErrorCode.NONE, b"", 1)
    assert only(await node.call(fetch(2), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert only(await node.call(fetch(-1), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_unknown_topics_partitions_and_ids(node: Any) -> None:
    topic_id = await node.create()
    unknown = only(await node.call(fetch(0, topic="no"), 11))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = only(await node.call(fetch(0, topic_id=b"x" * 16), 13))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    unknown = only(await node.call(fetch(at(index=5), topic_id=topic_id), 13))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-5, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
async def test_the_leader_epoch_is_checked(node: Any, epoch: int, error: ErrorCode) -> None:
    await node.create()
    assert only(await node.call(fetch(at(current_leader_epoch=epoch)), 11)).error_code == error


async def test_a_fenced_fetcher_is_told_the_leader(node: Any) -> None:
    topic_id = await node.create()
    request = fetch(at(current_leader_epoch=-5), topic_id=topic_id)
    response = await node.call(request, 16)
    assert only(response).current_leader.leader_id == 1
    assert [(e.node_id, e.host, e.port) for e in response.node_endpoints] == [(1, "localhost", 9092)]
    assert not (await node.call(request, 15)).node_endpoints


async def test_a_log_that_went_another_way_is_told_where(node: Any) -> None:
    await node.create()
    node.append(b"a")
    node.append(b"b")
    same = only(await node.call(fetch(at(2, last_fetched_epoch=0)), 12))
    assert same.diverging_epoch.epoch == -1
    longer = only(await node.call(fetch(at(5, last_fetched_epoch=0)), 12))
    assert (longer.diverging_epoch.epoch, longer.diverging_epoch.end_offset) == (0, 2)
    assert longer.error_code == ErrorCode.NONE


async def test_a_follower_must_be_a_replica(node: Any) -> None:
    topic_id = await node.create()
    node.append(b"a")
    old = only(await node.call(fetch(0, replica_id=3), 14 - 3))
    new = only(
        await node.call(fetch(0, topic_id=topic_id, replica_state=ReplicaState(replica_id=3, replica_epoch=1)), 15)
    )
    assert old.error_code == new.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.partition().followers = (3,)
    assert only(await node.call(fetch(0, replica_id=3), 11)).error_code == ErrorCode.NONE


async def test_a_read_committed_fetch_has_a_list_of_aborted_transactions(node: Any, tools: Any) -> None:
    await node.create()
    node.append(b"a")
    answer = only(await node.call(fetch(0, isolation_level=1), 11))
    assert answer.aborted_transactions == []
    assert tools.values_of(answer.records) == [b"a"]


async def test_a_principal_that_may_not_read(node: Any, tools: Any) -> None:
    topic_id = await node.create()
    node.append(b"a")
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.TOPIC, "t"))
    for version in (11, 13):
        answer = only(await node.call(fetch(0, topic_id=topic_id, wait_ms=60_000), version))
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_log_that_is_offline_or_unreadable_is_a_storage_error_for_its_partition(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klamm.log.log import Log

    await node.create(partitions=2)
    node.append(b"a", index=0)
    node.append(b"b", index=1)
    node.partition(index=0).log.failure = "the disk is gone"
    first, second = (await node.call(fetch(0, 0), 11)).responses[0].partitions
    assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert tools.values_of(second.records) == [b"b"]

    def unreadable(*args: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Log, "aborted_transactions", unreadable)
    answer = only(await node.call(fetch(at(index=1), isolation_level=1), 11))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# Waiting


async def test_a_fetch_at_the_end_waits_for_the_next_batch(node: Any, tools: Any) -> None:
    await node.create()
    request = fetch(0, wait_ms=60_000)
    answer = node.begin(request, 11)
    assert isinstance(answer, Pending) and not answer.done
    node.append(b"a")
    response = node.decoded(request, 11, await tools.finished(answer))
    assert tools.values_of(only(response).records) == [b"a"]
    assert node.broker.purgatory.held == 0


async def test_a_fetch_waits_for_min_bytes(node: Any, tools: Any) -> None:
    await node.create(partitions=2)
    request = fetch(0, 0, wait_ms=60_000, min_bytes=1500)
    answer = node.begin(request, 11)
    node.append(b"x" * 1000, index=0)
    await asyncio.sleep(0)
    assert not answer.done
    node.append(b"x" * 1000, index=1)
    response = node.decoded(request, 11, await tools.finished(answer))
    assert [len(tools.values_of(p.records)) for p in response.responses[0].partitions] == [1, 1]


async def test_min_bytes_above_what_an_answer_can_carry_is_no_reason_to_wait(start: Any, tools: Any) -> None:
    node = await start(fetch_max_bytes="1024")
    await node.create()
    node.append(b"x" * 3000)
    for limits in ({"max_bytes": 500, "min_bytes": 10_000}, {"min_bytes": 10_000}):
        answer = node.begin(fetch(0, wait_ms=60_000, **limits), 11)
        assert not isinstance(answer, Pending)


async def test_a_batch_above_the_partition_s_limit_ends_the_wait_for_min_bytes(node: Any, tools: Any) -> None:
    await node.create()
    request = fetch(at(partition_max_bytes=200), wait_ms=60_000, min_bytes=100)
    answer = node.begin(request, 11)
    node.append(b"x" * 1000)
    response = node.decoded(request, 11, await tools.finished(answer))
    assert tools.values_of(only(response).records) == [b"x" * 1000]


async def test_a_fetch_whose_time_is_up_is_empty(node: Any) -> None:
    await node.create()
    node.append(b"a")
    answer = only(await node.call(fetch(1, wait_ms=1), 11))
    assert (answer.error_code, bytes(answer.records), answer.high_watermark) == (ErrorCode.NONE, b"", 1)


async def test_deleting_the_topic_ends_the_wait(node: Any, tools: Any) -> None:
    from klamm.controller import TopicToDelete

    await node.create()
    request = fetch(0, wait_ms=60_000)
    answer = node.begin(request, 11)
    await node.controller.delete_topics([TopicToDelete("t")])
    response = node.decoded(request, 11, await tools.finished(answer))
    assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_connection_that_goes_away_takes_its_held_fetch_along(node: Any) -> None:
    await node.create()
    answer = node.begin(fetch(0, wait_ms=60_000), 11)
    answer.cancel()
    assert node.broker.purgatory.held == 0 and not node.partition().waiters


# Cold data


class ColdFile:
    """A file whose pages are not in memory until somebody has read ahead."""

    def __init__(self, file: Any, broken: bool = False) -> None:
        self.file = file
        self.broken = broken
        self.warm = False
        self.pins = 0

    def is_cached(self, offset: int, size: int) -> bool:
        return self.warm

    def read_ahead(self, offset: int, size: int) -> None:
        if self.broken:
            raise OSError("unreadable")
        assert self.pins == 1
        self.warm = True

    def pread(self, size: int, offset: int) -> bytes:
        assert self.warm, "cold data is never read on the loop"
        return bytes(self.file.pread(size, offset))

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1


def chill(node: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[ColdFile]:
    from klamm.log.log import Log

    real, cold = Log.read, []

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(self, *args, **kwargs)
        if hasattr(found, "file"):
            file = next((c for c in cold if c.file is found.file), None)
            if file is None:
                file = ColdFile(found.file, **options)
                cold.append(file)
            return found._replace(file=file)
        return found

    monkeypatch.setattr(Log, "read", read)
    return cold


async def test_cold_data_is_read_ahead_off_the_loop_with_the_file_pinned(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create()
    node.append(b"a")
    cold = chill(node, monkeypatch)
    request = fetch(0)
    answer = node.begin(request, 11)
    assert isinstance(answer, Pending) and not answer.done
    response = await tools.finished(answer)
    assert response.responses[0].partitions[0].records.file is cold[0]
    assert cold[0].warm
    await asyncio.sleep(0)
    assert cold[0].pins == 0


async def test_cold_data_that_cannot_be_read_is_a_storage_error(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create()
    node.append(b"a")
    cold = chill(node, monkeypatch, broken=True)
    assert only(await node.call(fetch(0), 11)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cold[0].pins == 0


# Sessions


async def test_a_session_remembers_its_partitions(node: Any, tools: Any) -> None:
    topic_id = await node.create(partitions=3)
    node.append(b"a", index=1)
    first = await node.call(fetch(0, 0, 0, topic_id=topic_id, session=(0, 0)), 15)
    assert first.session_id != 0 and len(first.responses[0].partitions) == 3
    node.append(b"b", index=2)
    second = await node.call(fetch(topic_id=topic_id, session=(first.session_id, 1)), 15)
    assert second.session_id == first.session_id
    # Partition 1 still has data at its offset, partition 2 has got some; partition 0 is not news.
    assert sorted(p.partition_index for p in second.responses[0].partitions) == [1, 2]
    request = fetch(at(1, 1), at(1, 2), topic_id=topic_id, session=(first.session_id, 2))
    assert (await node.call(request, 15)).responses == []
    request = fetch(at(0, 1), topic_id=topic_id, session=(first.session_id, 3))
    request.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id, partitions=[1, 2])]
    assert (await node.call(request, 15)).responses == []
    assert node.broker.sessions.partition_count == 1


async def test_sessions_by_name(node: Any) -> None:
    await node.create(partitions=2)
    first = await node.call(fetch(0, 0, session=(0, 0)), 11)
    node.append(b"a", index=1)
    second = await node.call(fetch(session=(first.session_id, 1)), 11)
    assert [(t.topic, [p.partition_index for p in t.partitions]) for t in second.responses] == [("t", [1])]


async def test_session_errors_are_for_the_whole_answer(node: Any) -> None:
    topic_id = await node.create()
    response = await node.call(fetch(session=(77, 1)), 11)
    assert (response.error_code, response.session_id, response.responses) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        0,
        [],
    )
    opened = (await node.call(fetch(0, topic_id=topic_id, session=(0, 0)), 13)).session_id
    assert (await node.call(fetch(session=(opened, 9)), 13)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await node.call(fetch(session=(opened, 1)), 12)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_held_session_fetch_answers_with_what_came(node: Any, tools: Any) -> None:
    await node.create(partitions=2)
    first = await node.call(fetch(0, 0, session=(0, 0)), 11)
    request = fetch(session=(first.session_id, 1), wait_ms=60_000)
    answer = node.begin(request, 11)
    node.append(b"a", index=1)
    response = node.decoded(request, 11, await tools.finished(answer))
    assert tools.values_of(only(response).records) == [b"a"]
