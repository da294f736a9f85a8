"""Ends transactions in their partitions: markers go to the leaders, and when all have them the coordinator is told.

What is decided is in the coordinator's log before this begins, so nothing here has to be durable: after a crash the
machine asks for the same markers again, and a partition that has one already is none the worse for another. A partition
that does not take its marker is tried again until it does, or is deleted, or another coordinator has taken over. There
is at most one attempt for each transactional id, so what is under way is bounded by the transactions themselves.

This module must never decide how a transaction ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from klamm.coordinator.machine import Now, Outcome
from klamm.coordinator.transactions.machine import TxnMachine, WriteMarkers
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.ids import TopicPartition
from klamm.metadata.image import NO_LEADER
from klamm.replica.pending import Pending
from klamm.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from klamm.coordinator.runtime import Coordinator
    from klamm.metadata.image import Image

Send: TypeAlias = Callable[[int, WriteTxnMarkersRequest], "WriteTxnMarkersResponse | Pending"]
"""To the broker of this id. An answer that cannot be had is one in which every partition has failed."""

FIRST_RETRY_S: Final = 0.02
LONGEST_RETRY_S: Final = 1.0

_NOT_NEEDED: Final = frozenset(
    (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
)
"""There can be no records of the transaction in a partition that knows of no transactions."""

_logger = logging.getLogger(__name__)


class _Ending:
    """One transaction whose markers are being written."""

    __slots__ = ("attempts", "epoch", "markers", "open", "shard", "waiting")

    def __init__(self, shard: int, epoch: int, markers: WriteMarkers) -> None:
        self.shard = shard
        self.epoch = epoch  # of the coordinator that decided it
        self.markers = markers
        self.open = {TopicPartition(topic, index): None for topic, ids in markers.partitions.items() for index in ids}
        self.attempts = 0
        self.waiting = 0  # brokers that have not answered


class MarkerWriter:
    def __init__(self, coordinator: Coordinator[TxnMachine], image: Callable[[], Image], send: Send) -> None:
        self._coordinator = coordinator
        self._image = image
        self._send = send
        self._endings: dict[str, _Ending] = {}

    def on_effect(self, partition: int, effect: object) -> None:
        assert isinstance(effect, WriteMarkers), effect
        state = self._image().partition(self._coordinator.topic.name, partition)
        ending = _Ending(partition, -1 if state is None else state.leader_epoch, effect)
        self._endings[effect.transactional_id] = ending  # an earlier one is of a coordinator that has started anew
        self._attempt(ending)

    def _is_current(self, ending: _Ending) -> bool:
        return self._endings.get(ending.markers.transactional_id) is ending

    def _drop(self, ending: _Ending) -> None:
        if self._is_current(ending):
            del self._endings[ending.markers.transactional_id]

    def _retry(self, ending: _Ending) -> None:
        """Later; unless the coordinator has started anew: then it has asked again, or will."""
        if not self._is_current(ending):
            return
        if ending.shard in dict(self._coordinator.shards()):
            self._attempt(ending)
        else:
            self._drop(ending)

    def _attempt(self, ending: _Ending) -> None:
        requests = self._requests(ending)
        if not ending.open:
            self._finish(ending)
            return
        ending.attempts += 1
        ending.waiting = len(requests) + 1  # the one is for this function
        for broker, request in requests.items():
            answer = self._send(broker, request)
            if isinstance(answer, Pending):
                answer.then(partial(self._answered, ending))
            else:
                self._answered(ending, answer)
        self._settle(ending)

    def _requests(self, ending: _Ending) -> dict[int, WriteTxnMarkersRequest]:
        """By leader. Partitions without one wait for the next attempt; those of deleted topics need no marker."""
        image, markers = self._image(), ending.markers
        by_leader: dict[int, dict[str, list[int]]] = {}
        for one in list(ending.open):
            state = image.partition(one.topic, one.partition)
            if state is None:
                del ending.open[one]
            elif state.leader != NO_LEADER:
                by_leader.setdefault(state.leader, {}).setdefault(one.topic, []).append(one.partition)
        return {
            leader: WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=markers.producer.id,
                        producer_epoch=markers.producer.epoch,
                        transaction_result=markers.committed,
                        topics=[
                            WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in topics.items()
                        ],
                        coordinator_epoch=ending.epoch,
                        transaction_version=markers.version,
                    )
                ]
            )
            for leader, topics in by_leader.items()
        }

    def _answered(self, ending: _Ending, response: object) -> None:
        assert isinstance(response, WriteTxnMarkersResponse)
        for marker in response.markers:
            for topic in marker.topics:
                for partition in topic.partitions:
                    self._take(ending, TopicPartition(topic.name, partition.partition_index), partition.error_code)
        self._settle(ending)

    def _take(self, ending: _Ending, partition: TopicPartition, error_code: int) -> None:
        code = ErrorCode(error_code)  # type: ignore[call-arg]  # the lookup by value, which mypy takes for the constructor
        transactional_id = ending.markers.transactional_id
        if code in _NOT_NEEDED:
            ending.open.pop(partition, None)
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # The producer is past this transaction there, which it can only be by the marker of another attempt.
            _logger.warning("%s: %s has a newer epoch of its producer than its marker", transactional_id, partition)
            ending.open.pop(partition, None)
        elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            _logger.info("%s: another coordinator has written to %s and will end it", transactional_id, partition)
            self._drop(ending)
        elif not code.retriable:
            _logger.error("%s: %s did not take its marker: %s", transactional_id, partition, code.name)

    def _settle(self, ending: _Ending) -> None:
        """One of those that were waited for is there."""
        ending.waiting -= 1
        if ending.waiting or not self._is_current(ending):
            return
        if not ending.open:
            self._finish(ending)
            return
        pause_s = min(FIRST_RETRY_S * 2 ** min(ending.attempts, 10), LONGEST_RETRY_S)
        asyncio.get_running_loop().call_later(pause_s, self._retry, ending)

    def _finish(self, ending: _Ending) -> None:
        self._drop(ending)
        done = self._coordinator.run(ending.shard, partial(_completed, ending.markers))
        if done.done():
            _heard(done)
        else:
            done.add_done_callback(_heard)


def _completed(markers: WriteMarkers, machine: TxnMachine, now: Now) -> Outcome:
    return machine.completed(markers, now)


def _heard(done: asyncio.Future[None]) -> None:
    """If it could not be written down, the coordinator starts anew, and asks for the markers again."""
    error = None if done.cancelled() else done.exception()
    if error is not None and not isinstance(error, BrokerError):
        raise error
