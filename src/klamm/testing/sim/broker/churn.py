"""An actor that makes a topic, fills it, deletes it and makes it again under the same name, all its life."""

from __future__ import annotations

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import producing
from klamm.testing.sim.broker.admin import Admin, some_configs
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Lab, Link, Source, pause
from klamm.testing.sim.broker.model import PartitionModel, TopicModel, Violation
from klamm.testing.sim.broker.producing import ProducerIdentity

_VERSION = 13  # by topic id: what was meant for the old topic must never end up in the new one


class Churn:
    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self._lab = lab
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._admin = Admin(lab, name, self._rng)
        self._lives = 0

    async def run(self) -> None:
        while not self._lab.is_over():
            self._lives += 1
            topic = await self._admin.create(f"topic-{self.name}", self._rng.randint(1, 3), some_configs(self._rng))
            for _ in range(self._rng.randint(0, 6)):
                try:
                    await self._fill(topic)
                except Lost as lost:
                    self._lab.note(self.name, "lost", str(lost))
                    self._link.drop()
                await pause(self._rng, 0.1)
            if self._lab.is_over():
                return  # the last one stays, for the final check
            await self._admin.delete(topic)

    async def _fill(self, topic: TopicModel) -> None:
        partition = self._rng.choice(topic.partitions)
        batch = Source(self._lab, self._unique(), partition, self._rng, idempotent=False).batch()
        producing.mark_sent(partition, batch.entries, idempotent=False)
        data = producing.encode(batch, producing.some_codec(self._rng), ProducerIdentity())
        client = await self._link.client()
        answer = await client.call(producing.request(_VERSION, -1, [(partition, data)]), _VERSION)
        code, base_offset = producing.result(answer, partition)
        self._note(code, partition, base_offset)
        if code is ErrorCode.NONE:
            partition.acknowledged(base_offset, batch.entries)
        elif code not in TRY_AGAIN:
            raise Violation(f"{self.name}: {partition} refused a batch with {code.name}")

    def _unique(self) -> str:
        return f"{self.name}.{self._lives}.{self._rng.randrange(1 << 40)}"

    def _note(self, code: ErrorCode, partition: PartitionModel, offset: int) -> None:
        self._lab.note(self.name, code.name, f"{partition} at {offset}")
