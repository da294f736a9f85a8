"""Markers on their way to the leaders: what is tried again, what is not, and when the coordinator is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from klamm.coordinator.machine import Now, Outcome, Producer
from klamm.coordinator.runtime import TRANSACTIONS_TOPIC, Coordinator
from klamm.coordinator.transactions import markers as module
from klamm.coordinator.transactions.machine import TxnMachine, WriteMarkers
from klamm.coordinator.transactions.markers import MarkerWriter
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import EMPTY, NO_LEADER, Image
from klamm.metadata.records import PartitionChangeRecord, PartitionRecord, TopicRecord
from klamm.metadata.replay import replay
from klamm.replica.pending import Pending
from klamm.wire.messages.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE = ErrorCode.NONE
EFFECT = WriteMarkers("x", Producer(7, 3), True, {"t": (0, 1), "u": (0,)}, 2)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


def image(*, leaders: dict[tuple[str, int], int]) -> Image:
    names = dict.fromkeys(topic for topic, _ in leaders)
    records: list[Any] = [TopicRecord(topic_id=topic_id(name), name=name) for name in names]
    for (name, index), leader in leaders.items():
        replicas = [max(leader, 1)]
        records.append(
            PartitionRecord(
                topic_id=topic_id(name),
                partition_id=index,
                leader=leader,
                leader_epoch=4,
                replicas=replicas,
                isr=replicas,
            )
        )
    return replay(EMPTY, records, offset=len(records), epoch=1)[0]


LEADERS = {("t", 0): 1, ("t", 1): 2, ("u", 0): 1, ("__transaction_state", 0): 1}


class World:
    """A coordinator that only counts, and leaders that answer as they are told."""

    def __init__(self) -> None:
        self.image = image(leaders=LEADERS)
        self.topic = TRANSACTIONS_TOPIC
        self.errors: dict[tuple[str, int], list[ErrorCode]] = {}
        self.sent: list[tuple[int, dict[str, list[int]]]] = []
        self.requests: list[WriteTxnMarkersRequest] = []
        self.completed: list[WriteMarkers] = []
        self.finished = asyncio.Event()
        self.held: list[tuple[Pending, WriteTxnMarkersResponse]] | None = None
        self.there = True
        self.refuses = False
        self.writer = MarkerWriter(cast("Coordinator[TxnMachine]", self), lambda: self.image, self.send)

    def shards(self) -> Iterator[tuple[int, Any]]:
        if self.there:
            yield 0, self

    def run(self, partition: int, decide: Callable[[Any, Now], Outcome]) -> asyncio.Future[None]:
        decide(self, Now(0, 0))
        self.finished.set()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.refuses:
            done.set_exception(BrokerError(ErrorCode.NOT_COORDINATOR))
        else:
            done.set_result(None)
        return done

    def send(self, broker: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Pending:
        (marker,) = request.markers
        self.requests.append(request)
        self.sent.append((broker, {topic.name: list(topic.partition_indexes) for topic in marker.topics}))
        response = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self._error(topic.name, index)
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
            ]
        )
        if self.held is None:
            return response
        pending = Pending()
        self.held.append((pending, response))
        return pending

    def _error(self, topic: str, index: int) -> ErrorCode:
        left = self.errors.get((topic, index))
        return left.pop(0) if left else NONE


class Counting(World):
    """Stands in for the machine as well."""

    def run(self, partition: int, decide: Callable[[Any, Now], Outcome]) -> asyncio.Future[None]:
        class Machine:
            @staticmethod
            def completed(markers: WriteMarkers, now: Now) -> Outcome:
                self.completed.append(markers)
                return Outcome()

        return super().run(partition, lambda _, now: decide(Machine, now))


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.0)
    return Counting()


async def finished(world: World) -> None:
    await asyncio.wait_for(world.finished.wait(), 20)


async def settled() -> None:
    """Everything that is due at once has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_leader_gets_one_request_and_then_it_is_complete(world: Counting) -> None:
    world.writer.on_effect(0, EFFECT)
    assert world.sent == [(1, {"t": [0], "u": [0]}), (2, {"t": [1]})]
    assert world.completed == [EFFECT], "in the same call, if nobody has to be waited for"
    (marker,) = world.requests[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (4, 2)


async def test_only_what_failed_is_tried_again(world: Counting) -> None:
    world.errors["t", 0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
    world.errors["u", 0] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.writer.on_effect(0, EFFECT)
    assert not world.completed
    await finished(world)
    assert world.sent[2:] == [(1, {"t": [0], "u": [0]}), (1, {"t": [0]})]
    assert world.completed == [EFFECT]


async def test_it_is_complete_when_the_last_leader_has_answered(world: Counting) -> None:
    world.held = []
    world.writer.on_effect(0, EFFECT)
    (first, answer), (second, other) = world.held
    second.set(other)
    assert not world.completed
    first.set(answer)
    assert world.completed == [EFFECT]


async def test_partitions_of_deleted_topics_need_no_marker(world: Counting) -> None:
    world.image = image(leaders={("t", 0): 1, ("__transaction_state", 0): 1})
    world.writer.on_effect(0, EFFECT)
    assert world.sent == [(1, {"t": [0]})] and world.completed == [EFFECT]


async def test_a_transaction_without_partitions_is_complete_at_once(world: Counting) -> None:
    empty = EFFECT._replace(partitions={})
    world.writer.on_effect(0, empty)
    assert world.sent == [] and world.completed == [empty]


async def test_a_partition_without_a_leader_is_waited_for(world: Counting) -> None:
    world.image = image(leaders={**LEADERS, ("u", 0): NO_LEADER})
    world.writer.on_effect(0, EFFECT)
    await settled()
    assert (1, {"t": [0]}) in world.sent and not world.completed
    elected = PartitionChangeRecord(topic_id=topic_id("u"), partition_id=0, leader=5, leader_epoch=5, partition_epoch=1)
    world.image = replay(world.image, [elected], offset=world.image.offset + 1, epoch=1)[0]
    await finished(world)
    assert world.sent[-1] == (5, {"u": [0]})


async def test_a_partition_that_is_past_the_transaction_needs_no_marker(world: Counting) -> None:
    world.errors["t", 0] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.writer.on_effect(0, EFFECT)
    assert world.completed == [EFFECT]


async def test_a_coordinator_that_was_replaced_gives_up(world: Counting) -> None:
    world.errors["t", 0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    world.errors["u", 0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.writer.on_effect(0, EFFECT)
    await settled()
    assert not world.completed and len(world.sent) == 2


async def test_a_coordinator_that_starts_anew_asks_again_and_the_old_attempt_ends(world: Counting) -> None:
    world.errors["t", 0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.writer.on_effect(0, EFFECT)
    world.there = False
    await settled()
    assert len(world.sent) == 2 and not world.completed
    world.there = True
    world.writer.on_effect(0, EFFECT)
    await settled()
    assert world.completed == [EFFECT] and len(world.sent) == 4


async def test_an_answer_to_an_attempt_that_was_replaced_completes_nothing(world: Counting) -> None:
    world.held = []
    world.writer.on_effect(0, EFFECT)
    late, world.held = world.held, None
    world.writer.on_effect(0, EFFECT)
    assert world.completed == [EFFECT]
    for pending, response in late:
        pending.set(response)
    assert world.completed == [EFFECT]


async def test_a_completion_that_cannot_be_written_is_the_coordinators_to_repeat(world: Counting) -> None:
    world.refuses = True
    world.writer.on_effect(0, EFFECT)
    await settled()
    assert world.completed == [EFFECT]


async def test_an_error_that_nobody_expects_is_told_of_and_tried_again(
    world: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    world.errors["t", 0] = [ErrorCode.MESSAGE_TOO_LARGE]
    world.writer.on_effect(0, EFFECT)
    await finished(world)
    assert "t-0 did not take its marker: MESSAGE_TOO_LARGE" in caplog.text
