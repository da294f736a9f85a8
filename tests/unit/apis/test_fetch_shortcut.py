"""The shortcut of Fetch answers as the handler does, for any request; and what it does not answer, it leaves alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from klamm import wire
from klamm.apis import fetch_targets
from klamm.controller import TopicToDelete
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

LONG = "long" * 40
NAMES = ("t", "u", LONG)


@pytest.fixture
def shortcuts() -> bool:
    return True


def any_request(rng: random.Random, version: int, ids: dict[str, bytes], ends: int) -> FetchRequest:
    """Mostly of the shape that takes the shortcut, and every way in which one can miss it."""

    def topic() -> FetchTopic:
        name = rng.choice((*NAMES, *NAMES, "missing"))
        parts = [
            FetchPartition(
                partition=rng.choice((0, 0, 0, 1, 1, 1, 7, -1)),
                current_leader_epoch=rng.choice((-1, -1, -1, 0, 0, 0, 5)),
                fetch_offset=rng.choice((*range(ends), ends, ends + 5, -1)),
                last_fetched_epoch=rng.choice((-1, -1, -1, -1, 0, 3)) if version >= 12 else -1,
                partition_max_bytes=rng.choice((1, 100, 300, 1 << 20, 1 << 20)),
            )
            for _ in range(rng.choice((1,) * 8 + (0, 2)))
        ]
        return FetchTopic(topic=name, topic_id=ids.get(name, b"?" * 16), partitions=parts)

    replica_id = rng.choice((-1,) * 8 + (-2, 1, 4))
    forgotten = ForgottenTopic(topic="t", topic_id=ids["t"], partitions=[0])
    return FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=ReplicaState(replica_id=replica_id if version >= 15 else -1),
        max_wait_ms=0,
        min_bytes=rng.choice((0, 1, 1, 200)),
        max_bytes=rng.choice((1 << 20, 1 << 20, 1 << 20, 1, 150, 0)),
        isolation_level=rng.choice((0, 1)),
        session_id=rng.choice((0,) * 9 + (9,)),
        session_epoch=rng.choice((-1,) * 9 + (0, 1)),
        topics=[topic() for _ in range(rng.choice((1,) * 8 + (0, 2)))],
        forgotten_topics_data=rng.choice(([],) * 9 + ([forgotten],)) if version >= 7 else [],
        rack_id=rng.choice(("", "", "r1")),
    )


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_answers(start: Any, seed: int) -> None:
    rng = random.Random(seed)
    quick, plain = await start(), await start()
    plain.shortcuts = False
    for node in (quick, plain):
        for name in NAMES:
            await node.create(name, 2)
    for _ in range(24):
        name, index, size = rng.choice(NAMES), rng.randrange(2), rng.choice((1, 50, 130, 20_000, 100_000))
        for node in (quick, plain):
            node.append(*[b"v" * size] * 3, topic=name, index=index)
    shortcuts = 0
    for _ in range(400):
        version = rng.choice((4, 10, 11, 11, 11, 12, 12, 13, 14, 15, 16, 17, 18))
        state = rng.getstate()
        answers = []
        for node in (quick, plain):
            rng.setstate(state)
            ids = {name: bytes(node.broker.image.topics[name].id) for name in NAMES}
            request = any_request(rng, version, ids, 12)
            shortcuts += isinstance(node.begin(request, version), list)
            response = await node.call(request, version)
            response.session_id = 0
            for topic in response.responses:
                topic.topic_id = b""
                for partition in topic.partitions:
                    partition.records = _without_time(partition.records)
            answers.append(response)
        assert answers[0] == answers[1]
    assert shortcuts > 20  # the test means something


def _without_time(records: Any) -> bytes:
    """Timestamps differ, and so does the checksum: all but the header's fields for them."""
    data = bytearray(records)
    at = 0
    while at + 61 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        data[at + 17 : at + 21] = bytes(4)
        data[at + 27 : at + 43] = bytes(16)
        at += size
    return bytes(data)


@pytest.mark.parametrize("version", [11, 12, 13, 15, 18])
async def test_frames_that_are_cut_off_or_changed_are_left_to_the_decoder(node: Any, version: int) -> None:
    topic_id = await node.create("t", 2)
    node.append(b"a" * 100)
    node.append(b"b" * 100, index=1)
    topics = [
        FetchTopic(topic="t", topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=999)])
    ]
    frame = wire.encode(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=9999, topics=topics), version)
    read = node.broker.fetch_targets.read
    assert read(version, memoryview(frame), 0) is not None
    for end in range(len(frame)):
        assert read(version, memoryview(frame[:end]), 0) is None
    for place in range(len(frame)):
        for bit in (0x01, 0x80, 0x81):
            changed = bytearray(frame)
            changed[place] ^= bit
            found = read(version, memoryview(changed), 0)
            try:
                request = wire.decode(FetchRequest, changed, version)
            except wire.ProtocolError:
                assert found is None
                continue
            if found is not None:
                node.shortcuts = False
                plain = await node.call(request, version)
                node.shortcuts = True
                assert node.decoded(request, version, found) == plain


async def test_a_topic_that_was_made_anew_is_read_anew(node: Any) -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=999)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    for content in (b"first", b"second"):
        await node.create()
        node.append(content)
        assert isinstance(node.begin(request, 11), list) == node.shortcuts
        response = await node.call(request, 11)
        assert content in bytes(response.responses[0].partitions[0].records)
        await node.controller.delete_topics([TopicToDelete("t")])
        gone = await node.call(request, 11)
        assert gone.responses[0].partitions[0].error_code == 3


async def test_a_reader_at_the_end_waits_as_before(node: Any) -> None:
    await node.create()
    node.append(b"a")
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=999)])]
    request = FetchRequest(max_wait_ms=20_000, min_bytes=1, topics=topics)
    waiting = node.begin(request, 11)
    node.append(b"news")
    response = node.decoded(request, 11, await asyncio.wait_for(_taken(waiting), 20))
    assert b"news" in bytes(response.responses[0].partitions[0].records)


def _taken(pending: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending.then(future.set_result)
    return future


async def test_targets_are_bounded(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_targets, "_MAX_TARGETS", 3)
    await node.create()
    node.append(b"a")
    for wait_ms in range(10):
        topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=999)])]
        response = await node.call(FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics), 11)
        assert response.responses[0].partitions[0].high_watermark == 1
    assert len(node.broker.fetch_targets._by_version[11]) <= 3
