"""An actor that deletes the oldest records of partitions, now and then."""

from __future__ import annotations

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Lab, Link, error_code, pause
from klamm.testing.sim.broker.model import PartitionModel, TopicModel, Violation
from klamm.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

_VERSION = 2
_EVERYTHING = -1


class Trimmer:
    def __init__(self, lab: Lab, name: str, topic: TopicModel) -> None:
        self.name = name
        self._lab = lab
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._topic = topic
        topic.trimmed = True

    async def run(self) -> None:
        while not self._lab.is_over():
            try:
                await self._trim(self._rng.choice(self._topic.partitions))
            except Lost as lost:
                self._lab.note(self.name, "lost", str(lost))
                self._link.drop()
            await pause(self._rng, 0.5)

    async def _trim(self, partition: PartitionModel) -> None:
        client = await self._link.client()
        offset = self._rng.choice((_EVERYTHING, self._rng.randint(0, partition.acked_end)))
        wanted = DeleteRecordsPartition(partition_index=partition.index, offset=offset)
        topic = DeleteRecordsTopic(name=self._topic.name, partitions=[wanted])
        answer = await client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), _VERSION)
        result = answer.topics[0].partitions[0]
        code = error_code(result.error_code)
        self._lab.note(self.name, code.name, f"{partition} below {offset}: {result.low_watermark}")
        if code is ErrorCode.NONE:
            if result.low_watermark < offset:
                raise Violation(f"{partition}: deleted below {offset}, but it starts at {result.low_watermark}")
            partition.deleted_below(result.low_watermark)
        elif code not in TRY_AGAIN:
            raise Violation(f"{self.name}: deleting records of {partition} failed with {code.name}")
