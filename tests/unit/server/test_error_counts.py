from __future__ import annotations

import pytest

from klamm.core.errors import ErrorCode
from klamm.server.error_counts import counter_for
from klamm.wire.messages import APIS, response_type
from klamm.wire.messages.k00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData
from klamm.wire.messages.k12_heartbeat import HeartbeatResponse
from klamm.wire.schema import Struct


def counted(message: Struct) -> dict[int, int]:
    counts: dict[int, int] = {}
    counter_for(type(message))(message, counts)
    return counts


def test_errors_are_found_at_every_depth() -> None:
    broken = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    topic = FetchableTopicResponse(partitions=[PartitionData(), broken, broken])
    message = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[topic, topic])
    assert counted(message) == {ErrorCode.OFFSET_OUT_OF_RANGE: 4, ErrorCode.FETCH_SESSION_ID_NOT_FOUND: 1}


def test_an_answer_without_errors_adds_nothing() -> None:
    partition = PartitionProduceResponse(index=0)
    assert counted(ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])) == {}
    assert counted(HeartbeatResponse()) == {}


def test_counts_go_on_from_what_was_there() -> None:
    counts = {int(ErrorCode.REBALANCE_IN_PROGRESS): 2}
    counter_for(HeartbeatResponse)(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), counts)
    assert counts == {ErrorCode.REBALANCE_IN_PROGRESS: 3}


@pytest.mark.parametrize("key", APIS)
def test_every_answer_there_is_can_be_looked_through(key: int) -> None:
    message = response_type(key)
    counts: dict[int, int] = {}
    counter_for(message)(message(), counts)
    assert counts == {}
