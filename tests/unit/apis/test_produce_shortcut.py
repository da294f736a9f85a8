"""The shortcut of Produce does what the handler does: the same answers, the same logs, for any request."""

from __future__ import annotations

import random
from typing import Any

import pytest

from klamm import wire
from klamm.apis import produce_targets
from klamm.controller import TopicToDelete
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

LONG = "long" * 40
LIMIT_MS = 60_000
"""Whether a disk is quick enough is not what is tried here."""


@pytest.fixture
def shortcuts() -> bool:
    return True


def any_request(rng: random.Random, ids: dict[str, bytes], tools: Any) -> ProduceRequest:
    """Mostly of the shape that takes the shortcut, and every way in which one can miss it."""

    def records() -> bytes | None:
        size = rng.choice((0, 1, 40, 60, 61, 120, 126, 127, 128, 16_300, 16_400))
        data = bytearray(tools.batch(*[b"v" * size] * rng.choice((1, 1, 1, 3)), timestamp=rng.choice((None, -1))))
        match rng.randrange(12):
            case 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1:
                del data[rng.randrange(len(data)) :]
            case 2:
                return None
        return bytes(data)

    def topic() -> TopicProduceData:
        name = rng.choice(("t", "t", "u", LONG, "missing"))
        parts = [
            PartitionProduceData(index=rng.choice((0, 0, 1, 1, 7, -1)), records=records())
            for _ in range(rng.choice((1, 1, 1, 1, 0, 2)))
        ]
        return TopicProduceData(name=name, topic_id=ids.get(name, b"?" * 16), partition_data=parts)

    return ProduceRequest(
        transactional_id=rng.choice((None, None, None, None, "", "x")),
        acks=rng.choice((-1, -1, -1, 1, 1, 2)),
        timeout_ms=rng.choice((LIMIT_MS, LIMIT_MS + 1)),
        topic_data=[topic() for _ in range(rng.choice((1, 1, 1, 1, 0, 2)))],
    )


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_answers_and_logs(start: Any, tools: Any, seed: int) -> None:
    rng = random.Random(seed)
    quick, plain = await start(), await start()
    plain.shortcuts = False
    ids = {}
    for name in ("t", "u", LONG):
        await quick.create(name, 2)
        await plain.create(name, 2)
    for _ in range(300):
        version = rng.choice((3, 6, 7, 7, 8, 9, 9, 9, 12, 13))
        # ids differ between the two brokers, as everything random does
        state = rng.getstate()
        answers = []
        for node in (quick, plain):
            rng.setstate(state)
            ids = {name: bytes(node.broker.image.topics[name].id) for name in ("t", "u", LONG)}
            request = any_request(rng, ids, tools)
            response = await node.call(request, version)
            for topic in response.responses:
                topic.topic_id = b""
            answers.append(response)
        assert answers[0] == answers[1]
    for name in ("t", "u", LONG):
        for index in (0, 1):
            ours, theirs = (node.partition(name, index) for node in (quick, plain))
            assert (ours.high_watermark, ours.log.size_bytes) == (theirs.high_watermark, theirs.log.size_bytes)


@pytest.mark.parametrize("version", [7, 9, 13])
async def test_frames_that_are_cut_off_or_changed_are_left_to_the_decoder(node: Any, tools: Any, version: int) -> None:
    topic_id = await node.create()
    data = [
        TopicProduceData(
            name="t", topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=tools.batch(b"a"))]
        )
    ]
    frame = wire.encode(ProduceRequest(acks=-1, timeout_ms=LIMIT_MS, topic_data=data), version)
    find = node.broker.produce_targets.find
    assert find(version, memoryview(frame), 0) is not None
    for end in range(len(frame)):
        assert find(version, memoryview(frame[:end]), 0) is None
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 0x81
        found = find(version, memoryview(changed), 0)
        try:
            request = wire.decode(ProduceRequest, changed, version)
        except wire.ProtocolError:
            assert found is None
            continue
        if found is not None:
            target, records = found
            (topic,) = request.topic_data
            (partition,) = topic.partition_data
            assert (target.acks, target.timeout_ms, target.index) == (request.acks, request.timeout_ms, partition.index)
            assert (target.name, target.topic_id) == (topic.name, topic.topic_id)
            assert bytes(records) == bytes(partition.records)


async def test_a_topic_that_was_made_anew_is_found_anew(node: Any, tools: Any) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=LIMIT_MS,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=tools.batch(b"a"))])
        ],
    )
    for _ in range(2):
        await node.create()
        for expected in (0, 1):
            response = await node.call(request, 9)
            assert response.responses[0].partition_responses[0].base_offset == expected
        await node.controller.delete_topics([TopicToDelete("t")])
        gone = await node.call(request, 9)
        assert gone.responses[0].partition_responses[0].error_code == 3


async def test_targets_are_bounded(node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_targets, "_MAX_TARGETS", 3)
    await node.create()
    for number in range(10):
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=tools.batch(b"a"))])]
        response = await node.call(ProduceRequest(acks=1, timeout_ms=LIMIT_MS + number, topic_data=data), 9)
        assert response.responses[0].partition_responses[0].base_offset == number
    assert len(node.broker.produce_targets._by_version[9]) <= 3
