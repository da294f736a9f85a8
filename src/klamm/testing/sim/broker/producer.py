"""Producers: one that is idempotent and never gives up, and one that hopes for the best."""

from __future__ import annotations

import asyncio
from collections import deque

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import producing
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Batch, Lab, Link, Source, error_code, pause
from klamm.testing.sim.broker.model import PartitionModel, Violation
from klamm.testing.sim.broker.producing import ProducerIdentity
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

MAX_IN_FLIGHT = 5  # as many as the broker remembers for each producer


class IdempotentProducer:
    """Sends up to five batches at a time and, after any trouble, all that were not acknowledged again, in order."""

    def __init__(self, lab: Lab, name: str, partition: PartitionModel) -> None:
        self.name = name
        self._lab = lab
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._partition = partition
        self._source = Source(lab, name, partition, self._rng, idempotent=True)
        self._version = self._rng.choice(producing.PRODUCE_VERSIONS)
        self._codec = producing.some_codec(self._rng)
        self._acks = self._rng.choice((-1, -1, 1))
        self._window = self._rng.randint(1, MAX_IN_FLIGHT)
        self._identity: ProducerIdentity | None = None
        self._unacked: deque[Batch] = deque()
        self._trouble: Lost | ErrorCode | None = None  # the first thing that went wrong in this round
        self._last_acked = -1  # offset
        self._cuts_seen = 0

    async def run(self) -> None:
        while self._unacked or not self._lab.is_over():
            try:
                await self._round(await self._link.client())
            except Lost as lost:
                self._lab.note(self.name, "lost", str(lost))
                self._link.drop()
                await pause(self._rng, 0.2)

    async def _round(self, client: Client) -> None:
        if self._identity is None or self._partition.lost_since(self._cuts_seen, self._last_acked):
            await self._start_session(client)
        while len(self._unacked) < self._window and not self._lab.is_over():
            self._unacked.append(self._source.batch())
        self._trouble = None
        calls = [self._send(client, batch) for batch in self._unacked]
        for failure in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, Lost):
                raise failure
        if isinstance(self._trouble, Lost):
            raise self._trouble
        await pause(self._rng, 0.5 if self._trouble else 0.03)

    async def _start_session(self, client: Client) -> None:
        """A new producer id. What the old session had on its way is abandoned: it may be in the log or not."""
        cuts = len(self._partition.cuts)
        answer = await client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        if answer.error_code:
            self._lab.note(self.name, "no producer id", error_code(answer.error_code).name)
            await pause(self._rng, 0.5)
            raise Lost("no producer id")
        self._lab.model.got_producer_id(answer.producer_id)
        self._identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._source.new_session()
        self._unacked.clear()
        self._last_acked, self._cuts_seen = -1, cuts
        self._lab.note(self.name, "session", str(self._identity.producer_id))

    async def _send(self, client: Client, batch: Batch) -> None:
        """Send one batch. An answer counts when it comes, not when those of the other batches are there as well."""
        assert self._identity is not None
        producing.mark_sent(self._partition, batch.entries, idempotent=True)
        data = producing.encode(batch, self._codec, self._identity)
        request = producing.request(self._version, self._acks, [(self._partition, data)])
        try:
            answer = await client.call(request, self._version)
        except Lost as lost:
            self._trouble = self._trouble or lost
            return
        code, base_offset = producing.result(answer, self._partition)
        self._lab.note(self.name, code.name, f"{self._partition} {batch.base_sequence} at {base_offset}")
        if code is ErrorCode.NONE:
            self._acknowledged(batch, base_offset)
        elif code in TRY_AGAIN or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._trouble):
            self._trouble = self._trouble or code
        else:
            raise Violation(f"{self.name}: {self._partition} refused {batch.base_sequence} with {code.name}")

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        if self._trouble:
            raise Violation(f"{self.name}: {batch.base_sequence} accepted after trouble before it: {self._trouble}")
        self._partition.acknowledged(base_offset, batch.entries)
        self._last_acked = base_offset + len(batch.entries) - 1
        self._unacked.remove(batch)


class PlainProducer:
    """Without sequences, to several partitions in one request. Sometimes it sends again, sometimes it forgets."""

    def __init__(self, lab: Lab, name: str, partitions: list[PartitionModel]) -> None:
        self.name = name
        self._lab = lab
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._sources = [Source(lab, name, partition, self._rng, idempotent=False) for partition in partitions]
        self._version = self._rng.choice(producing.PRODUCE_VERSIONS)
        self._acks = self._rng.choice((-1, 1, 1, 0))

    async def run(self) -> None:
        batches: list[tuple[PartitionModel, Batch]] = []
        while not self._lab.is_over():
            if not batches:
                sources = self._rng.sample(self._sources, self._rng.randint(1, len(self._sources)))
                batches = [(source.partition, source.batch()) for source in sources]
            try:
                batches = await self._send(await self._link.client(), batches)
                await pause(self._rng, 0.1)
            except Lost as lost:
                self._lab.note(self.name, "lost", str(lost))
                self._link.drop()
                await pause(self._rng, 0.2)
            if self._rng.random() < 0.5:
                batches = []

    async def _send(
        self, client: Client, batches: list[tuple[PartitionModel, Batch]]
    ) -> list[tuple[PartitionModel, Batch]]:
        """What should be sent again."""
        data = []
        for partition, batch in batches:
            producing.mark_sent(partition, batch.entries, idempotent=False)
            data.append((partition, producing.encode(batch, producing.some_codec(self._rng), ProducerIdentity())))
        request = producing.request(self._version, self._acks, data)
        if self._acks == 0:
            client.send(request, self._version)
            return []
        answer = await client.call(request, self._version)
        again = []
        for partition, batch in batches:
            code, base_offset = producing.result(answer, partition)
            self._lab.note(self.name, code.name, f"{partition} {batch.base_sequence} at {base_offset}")
            if code is ErrorCode.NONE:
                partition.acknowledged(base_offset, batch.entries)
            elif code in TRY_AGAIN:
                again.append((partition, batch))
            else:
                raise Violation(f"{self.name}: {partition} refused a batch with {code.name}")
        return again
