"""Members of groups and transactional producers, by hand: many of them on one loop, in as little time as Python allows.

    python bench/members.py join         --to A --topic T --members N --group G [--heartbeat-ms MS]
    python bench/members.py rebalance    --to A --topic T --members N --group G --how leave|silent [--session-ms MS]
    python bench/members.py transactions --to A --topic T --producers N --records R --milliseconds MS [--id ID]

The topic has as many partitions as there are members, each with something in it. A member speaks the classic protocol
as a consumer does: it finds its coordinator, joins (asking for a member id first), syncs, asks for its committed
offsets, and fetches over a second connection while it sends heartbeats over the first. A producer speaks the first
protocol of transactions (AddPartitionsToTxn, Produce, EndTxn), one request after another. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import time
from typing import Any

from crc32c import crc32c

from klamm.core.errors import ErrorCode
from klamm.records.record import Record, encode_batch
from klamm.wire import decode, encode
from klamm.wire.frames import decode_response, encode_request
from klamm.wire.messages import response_type
from klamm.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.k26_end_txn import EndTxnRequest

GROUP, TRANSACTION = 0, 1
RETRY_S = 0.005
REBALANCE_MS = 30_000
TIMEOUT_S = 120
VERSIONS = {0: 7, 1: 11, 9: 5, 10: 2, 11: 5, 12: 3, 13: 2, 14: 3, 22: 1, 24: 1, 26: 1}
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Unexpected(Exception):
    """The broker answered with an error that should not be."""


class Connection(asyncio.Protocol):
    """One request after another. Not asyncio's streams: with a hundred members their time would be measured."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent = 0
        self.received = bytearray()
        self.answer: asyncio.Future[bytes] | None = None

    async def open(self) -> Connection:
        host, _, port = self.address.rpartition(":")
        self.loop = asyncio.get_running_loop()
        self.transport, _ = await self.loop.create_connection(lambda: self, host, int(port))
        return self

    def data_received(self, data: bytes) -> None:
        self.received += data
        size = 4 + int.from_bytes(self.received[:4], "big")
        if len(self.received) >= max(size, 4) and self.answer is not None and not self.answer.done():
            frame = bytes(self.received[4:size])
            del self.received[:size]
            self.answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError(f"{self.address} closed the connection"))

    async def ask(self, request: Any) -> Any:
        version = VERSIONS[request.__api_key__]
        self.sent += 1
        self.answer = self.loop.create_future()
        self.transport.write(b"".join(encode_request(request, version, self.sent, "bench")))  # type: ignore[arg-type]
        return decode_response(response_type(request.__api_key__), await self.answer, version)[1]

    async def insist(self, request: Any) -> Any:
        """Until the coordinator is there."""
        while True:
            response = await self.ask(request)
            if response.error_code not in AGAIN:
                return response
            await asyncio.sleep(RETRY_S)


async def coordinator(address: str, key: str, kind: int) -> Connection:
    connection = await Connection(address).open()
    found = await connection.insist(FindCoordinatorRequest(key=key, key_type=kind))
    expect(found.error_code)
    return connection  # there is only one broker: it is this one


def expect(code: int) -> None:
    if code:
        raise Unexpected(f"error {ErrorCode(code).name}")


class Member:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.member_id = ""
        self.generation = -1
        self.size = 0  # of the group in that generation, as its leader knows it
        self.partitions: list[int] = []
        self.first_record = asyncio.Event()
        self.synced: asyncio.Event = asyncio.Event()
        self.silent = False

    async def run(self) -> None:
        self.connection = await coordinator(self.options.to, self.options.group, GROUP)
        self.fetching = await Connection(self.options.to).open()
        reading: asyncio.Task[None] | None = None
        try:
            while not self.silent:
                await self.join()
                if reading is None:
                    reading = asyncio.ensure_future(self.read())
                await self.stay()
        finally:
            if reading is not None:
                reading.cancel()

    async def join(self) -> None:
        topic = self.options.topic
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=[topic]), 0)
        while True:
            joined = await self.connection.insist(
                JoinGroupRequest(
                    group_id=self.options.group,
                    session_timeout_ms=self.options.session_ms,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
                )
            )
            self.member_id = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            expect(joined.error_code)
            self.generation = joined.generation_id
            if await self.sync(joined):
                return

    async def sync(self, joined: Any) -> bool:
        assignments = []
        if joined.leader == joined.member_id:
            self.size = len(joined.members)
            assignments = shared_out(self.options.topic, self.options.members, joined.members)
        synced = await self.connection.ask(
            SyncGroupRequest(
                group_id=self.options.group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                assignments=assignments,
            )
        )
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        expect(synced.error_code)
        assigned = decode(ConsumerProtocolAssignment, synced.assignment, 0, 2)
        self.partitions = [p for topic in assigned.assigned_partitions for p in topic.partitions]
        self.synced.set()
        return True

    async def stay(self) -> None:
        """Heartbeats until there is a rebalance."""
        heartbeat = HeartbeatRequest(
            group_id=self.options.group, generation_id=self.generation, member_id=self.member_id
        )
        while not self.silent:
            await asyncio.sleep(self.options.heartbeat_ms / 1000)
            if self.silent:
                return
            answer = await self.connection.ask(heartbeat)
            if answer.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                return
            expect(answer.error_code)

    async def read(self) -> None:
        """Where the group stands, then fetches of whatever is assigned, until there is a record."""
        topic = self.options.topic
        while not self.first_record.is_set():
            partitions = list(self.partitions)
            if not partitions:
                await asyncio.sleep(RETRY_S)
                continue
            asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
            await self.fetching.ask(OffsetFetchRequest(group_id=self.options.group, topics=asked))
            wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in partitions]
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=topic, partitions=wanted)]
            )
            answer = await self.fetching.ask(request)
            if any(part.records for found in answer.responses for part in found.partitions):
                self.first_record.set()

    async def leave(self) -> None:
        self.silent = True
        await (await Connection(self.options.to).open()).ask(
            LeaveGroupRequest(group_id=self.options.group, member_id=self.member_id)
        )


def shared_out(topic: str, partitions: int, members: list[Any]) -> list[SyncGroupRequestAssignment]:
    ids = sorted(member.member_id for member in members)
    found = []
    for i, member_id in enumerate(ids):
        mine = list(range(i, partitions, len(ids)))
        assigned = [TopicPartition(topic=topic, partitions=mine)] if mine else []
        found.append(
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 0),
            )
        )
    return found


async def join(options: argparse.Namespace) -> dict[str, Any]:
    """From the first connect until every member has had a record."""
    members = [Member(options) for _ in range(options.members)]
    start = time.perf_counter()
    tasks = [asyncio.ensure_future(member.run()) for member in members]
    await all_of(tasks, (member.first_record.wait() for member in members))
    seconds = time.perf_counter() - start
    for task in tasks:
        task.cancel()
    return {"seconds": seconds, "generation": max(member.generation for member in members)}


async def rebalance(options: argparse.Namespace) -> dict[str, Any]:
    """From one member's leaving, or its last heartbeat, until all others have their share of a group without it."""
    members = [Member(options) for _ in range(options.members)]
    tasks = [asyncio.ensure_future(member.run()) for member in members]
    await all_of(tasks, (member.first_record.wait() for member in members))
    await all_of(tasks, [settled(members, len(members))])
    gone, others = members[-1], members[:-1]
    start = time.perf_counter()
    if options.how == "leave":
        await gone.leave()
    else:
        gone.silent = True
    before = gone.generation
    while not all(member.generation > before for member in others) or not covered(others, options.members):
        await asyncio.sleep(0.001)
        raise_from(task for member, task in zip(members, tasks, strict=True) if member is not gone)
    seconds = time.perf_counter() - start
    for task in tasks:
        task.cancel()
    return {"seconds": seconds}


async def settled(members: list[Member], size: int) -> None:
    """All in one generation, in which each has its partition."""
    while len({member.generation for member in members}) > 1 or not covered(members, size):
        await asyncio.sleep(0.005)


def covered(members: list[Member], partitions: int) -> bool:
    held = [p for member in members for p in member.partitions]
    return sorted(held) == list(range(partitions)) and len({member.generation for member in members}) == 1


async def all_of(tasks: list[asyncio.Future[Any]], waits: Any) -> None:
    waiting = asyncio.gather(*waits)
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_S)
    raise_from(tasks)
    if not waiting.done():
        raise Unexpected(f"not done after {TIMEOUT_S} s")


def raise_from(tasks: Any) -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()


class Producer:
    def __init__(self, options: argparse.Namespace, index: int) -> None:
        self.options = options
        self.id = f"{options.id}-{index}"
        self.partition = index
        self.ended = 0

    async def start(self) -> None:
        self.connection = await coordinator(self.options.to, self.id, TRANSACTION)
        self.writing = await Connection(self.options.to).open()
        begun = await self.connection.insist(
            InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        )
        expect(begun.error_code)
        self.producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        now = int(time.time() * 1000)
        records = [Record(0, now, None, b"x" * 100, ()) for _ in range(self.options.records)]
        self.batch = bytearray(encode_batch(records, base_sequence=0, transactional=True, **self.producer))

    async def run(self, until: float) -> None:
        while time.perf_counter() < until:
            await self.add()
            await self.write()
            expect((await self.connection.insist(self.end())).error_code)
            self.ended += 1

    async def add(self) -> None:
        topics = [AddPartitionsToTxnTopic(name=self.options.topic, partitions=[self.partition])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer["producer_id"],
            v3_and_below_producer_epoch=self.producer["producer_epoch"],
            v3_and_below_topics=topics,
        )
        while True:
            answer = await self.connection.ask(request)
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code not in AGAIN:
                expect(code)
                return
            await asyncio.sleep(RETRY_S / 5)

    async def write(self) -> None:
        sequence = self.ended * self.options.records
        self.batch[53:57] = struct.pack(">i", sequence & 0x7FFFFFFF)
        self.batch[17:21] = struct.pack(">I", crc32c(memoryview(self.batch)[21:]))
        data = [PartitionProduceData(index=self.partition, records=bytes(self.batch))]
        answer = await self.writing.ask(
            ProduceRequest(
                transactional_id=self.id,
                acks=-1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=self.options.topic, partition_data=data)],
            )
        )
        expect(answer.responses[0].partition_responses[0].error_code)

    def end(self) -> EndTxnRequest:
        return EndTxnRequest(transactional_id=self.id, committed=True, **self.producer)


async def transactions(options: argparse.Namespace) -> dict[str, Any]:
    producers = [Producer(options, index) for index in range(options.producers)]
    await asyncio.gather(*(producer.start() for producer in producers))
    start = time.perf_counter()
    await asyncio.gather(*(producer.run(start + options.milliseconds / 1000) for producer in producers))
    seconds = time.perf_counter() - start
    ended = sum(producer.ended for producer in producers)
    return {"transactions": ended, "seconds": seconds, "transactions_per_s": ended / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("join", "rebalance", "transactions"))
    parser.add_argument("--to", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="members")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--heartbeat-ms", type=int, default=3000)
    parser.add_argument("--session-ms", type=int, default=45_000)
    parser.add_argument("--how", choices=("leave", "silent"), default="leave")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--milliseconds", type=int, default=2000)
    parser.add_argument("--id", default="bench")
    options = parser.parse_args()
    run = {"join": join, "rebalance": rebalance, "transactions": transactions}[options.mode]
    try:
        print(json.dumps(asyncio.run(run(options))))
    except (Unexpected, OSError) as error:
        sys.exit(f"{options.mode}: {error}")


if __name__ == "__main__":
    main()
