"""Creating and deleting topics so that their fate is known in the end: ask until the answer is definite."""

from __future__ import annotations

from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Lab, Link, error_code, pause
from klamm.testing.sim.broker.model import TopicModel, TopicState, Violation
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

_CREATE_VERSION = 7
_DELETE_VERSION = 6
_METADATA_VERSION = 12


def some_configs(rng: Random) -> dict[str, str]:
    """Small segments and dense indexes, so that little data goes through much code."""
    configs = {}
    if rng.random() < 0.5:
        configs["flush.messages"] = "1"
    if rng.random() < 0.7:
        configs["segment.bytes"] = str(rng.choice((500, 2000, 20_000)))
    if rng.random() < 0.7:
        configs["index.interval.bytes"] = str(rng.choice((0, 100, 1000)))
    if rng.random() < 0.2:
        configs["message.timestamp.type"] = "LogAppendTime"
    if rng.random() < 0.2:
        configs["flush.ms"] = str(rng.choice((10, 500)))
    if rng.random() < 0.25:
        configs["segment.bytes"] = str(rng.choice((500, 2000)))
        configs["retention.bytes"] = str(rng.choice((0, 2000, 10_000)))
        configs["file.delete.delay.ms"] = str(rng.choice((0, 200)))
    if rng.random() < 0.25:
        configs["compression.type"] = rng.choice(("uncompressed", "gzip", "lz4", "zstd"))
    return configs


class Admin:
    def __init__(self, lab: Lab, name: str, rng: Random) -> None:
        self.name = name
        self._lab = lab
        self._rng = rng
        self._link = Link(lab, name)

    async def create(self, name: str, partitions: int, configs: dict[str, str]) -> TopicModel:
        topic = TopicModel(name, partitions, configs)
        self._lab.model.topics.append(topic)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
            ],
            timeout_ms=5_000,
        )
        asked_before = False
        while topic.state is TopicState.CREATING:
            try:
                answer = await (await self._link.client()).call(request, _CREATE_VERSION)
                code = error_code(answer.topics[0].error_code)
                self._lab.note(self.name, f"create {code.name}", name)
                if code is ErrorCode.NONE:
                    topic.id, topic.state = answer.topics[0].topic_id, TopicState.EXISTS
                elif code is ErrorCode.TOPIC_ALREADY_EXISTS and asked_before:
                    topic.id = await self._id_of(name)
                    topic.state = TopicState.EXISTS
                elif not self._may_try_again(code):
                    raise Violation(f"creating {name} failed with {code.name}")
            except Lost as lost:
                await self._lost(lost)
            asked_before = True
        return topic

    async def delete(self, topic: TopicModel) -> None:
        topic.state = TopicState.DELETING
        asked_before = False
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.id)], timeout_ms=5_000)
        while topic.state is TopicState.DELETING:
            try:
                answer = await (await self._link.client()).call(request, _DELETE_VERSION)
                code = error_code(answer.responses[0].error_code)
                self._lab.note(self.name, f"delete {code.name}", topic.name)
                if code is ErrorCode.NONE or (code is ErrorCode.UNKNOWN_TOPIC_ID and asked_before):
                    topic.state = TopicState.DELETED
                elif not self._may_try_again(code):
                    raise Violation(f"deleting {topic.name} failed with {code.name}")
            except Lost as lost:
                await self._lost(lost)
            asked_before = True

    async def _id_of(self, name: str) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = await (await self._link.client()).call(request, _METADATA_VERSION)
        if answer.topics[0].error_code:
            raise Violation(f"{name} exists, and then it does not: {error_code(answer.topics[0].error_code).name}")
        found: bytes = answer.topics[0].topic_id
        return found

    def _may_try_again(self, code: ErrorCode) -> bool:
        return code in TRY_AGAIN or code.retriable

    async def _lost(self, lost: Lost) -> None:
        self._lab.note(self.name, "lost", str(lost))
        self._link.drop()
        await pause(self._rng, 0.2)
