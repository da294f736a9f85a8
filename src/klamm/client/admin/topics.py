"""Topics and their partitions: listing, describing, creating, deleting; what is in them and what is deleted of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm.client.admin.asking import Part, ask_controller, ask_leaders, by_topic, needs, patiently, several, version_of
from klamm.client.admin.configs import Setting, setting_text
from klamm.client.admin.results import Results, failure
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.offsets import OffsetFound
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition, uuid_text

if TYPE_CHECKING:
    from klamm.client.metadata import Partition, Topic
    from klamm.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicResult
    from klamm.wire.messages.k21_delete_records import DeleteRecordsPartition
    from klamm.wire.messages.k75_describe_topic_partitions import (
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

TO_THE_END: Final = -1
"""Delete all records there are."""
_MAX_PAGES: Final = 10_000  # of DescribeTopicPartitions, each with up to 2,000 partitions: more than a cluster has
_DELETE_BY_NAME: Final = 5  # later versions of DeleteTopics name topics in another field
_DELETE_BY_ID: Final = 6
_DEFAULTS: Final = 4  # CreateTopics: before it, one had to say how many partitions and replicas


@dataclass(frozen=True, slots=True)
class NewTopic:
    """None: the cluster's default. `assignments` gives the replicas of each partition, instead of the numbers."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Setting] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """None where the broker is too old to tell, or does not want to."""

    name: str
    id: bytes
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """`total` counts those that are there already. `assignments`: the replicas of each new one."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    id: bytes
    internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`leader` is None while there is none. The last two (KIP-966) are None where the cluster does not have them."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_eligible_leaders: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: bytes
    internal: bool
    partitions: Mapping[int, PartitionDescription]


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The partition begins here now."""

    low_watermark: int


class Topics(Part):
    async def list_topics(self, *, internal: bool = False) -> dict[str, TopicListing]:
        """All topics that one may see, by name; the brokers' own only with `internal`."""
        found = await patiently(self._cluster, self._cluster.metadata)
        return {
            topic.name: TopicListing(topic.name, topic.id, topic.internal)
            for topic in sorted(found.topics.values(), key=lambda topic: topic.name)
            if not topic.error and (internal or not topic.internal)
        }

    async def describe_topics(self, names: Iterable[str]) -> Results[str, TopicDescription]:
        from klamm.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest

        wanted = sorted(set(several(names)))  # the order in which the pages of an answer come
        if not wanted:
            return Results({})

        async def ask() -> dict[str, TopicDescription | ClientError]:
            if (await self._cluster.connection()).versions.has(DescribeTopicPartitionsRequest):
                return await self._in_pages(wanted)
            told = await self._cluster.metadata(wanted)
            return {name: _from_metadata(topic) for name, topic in told.topics.items()}

        return Results.of(wanted, await patiently(self._cluster, ask))

    async def _in_pages(self, names: Sequence[str]) -> dict[str, TopicDescription | ClientError]:
        """A page may end within a topic, which goes on in the next."""
        from klamm.wire.messages.k75_describe_topic_partitions import (
            DescribeTopicPartitionsRequest,
            DescribeTopicPartitionsResponse,
            TopicRequest,
        )

        found: dict[str, TopicDescription | ClientError] = {}
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
        for _ in range(_MAX_PAGES):
            answer: DescribeTopicPartitionsResponse = await self._cluster.request(request)
            for topic in answer.topics:
                before = found.get(topic.name or "")
                found[topic.name or ""] = _described(topic, before if isinstance(before, TopicDescription) else None)
            if answer.next_cursor is None:
                return found
            rest = [one for one in request.topics if one.name >= answer.next_cursor.topic_name]
            request = DescribeTopicPartitionsRequest(topics=rest, cursor=answer.next_cursor)
        raise BrokerSaid(ErrorCode.UNKNOWN_SERVER_ERROR, "topics", "The list of partitions does not end.")

    async def create_topics(
        self, topics: Iterable[str | NewTopic], *, validate_only: bool = False
    ) -> Results[str, CreatedTopic]:
        """A topic that is only a name gets the cluster's defaults. `validate_only`: they are checked, and not made."""
        from klamm.wire.messages.k19_create_topics import CreateTopicsRequest

        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in several(topics)]
        if not wanted:
            return Results({})
        version = await version_of(self._cluster, CreateTopicsRequest)
        if any(not topic.assignments and not (topic.partitions and topic.replication_factor) for topic in wanted):
            needs(version, _DEFAULTS, "for topics without numbers of partitions and replicas")
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted],
            timeout_ms=self._cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await ask_controller(self._cluster, request, lambda answer: (t.error_code for t in answer.topics))
        told = {topic.name: _created(topic) for topic in answer.topics}
        return Results.of([topic.name for topic in wanted], told)

    async def delete_topics(self, topics: Iterable[str | bytes]) -> Results[str | bytes, None]:
        """By their names, or by their ids (16 bytes): one by id is never another one that has got the same name."""
        from klamm.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

        wanted = list(dict.fromkeys(several(topics)))
        names = [topic for topic in wanted if isinstance(topic, str)]
        if not wanted:
            return Results({})
        timeout_ms = self._cluster.config.request_timeout_ms
        if len(names) == len(wanted):
            version = min(_DELETE_BY_NAME, await version_of(self._cluster, DeleteTopicsRequest))
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
        else:
            version = await version_of(self._cluster, DeleteTopicsRequest)
            needs(version, _DELETE_BY_ID, "to delete topics by their ids")
            states = [DeleteTopicState(name=t) if isinstance(t, str) else DeleteTopicState(topic_id=t) for t in wanted]
            request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        answer = await ask_controller(
            self._cluster, request, lambda answer: (one.error_code for one in answer.responses), version=version
        )
        told: dict[str | bytes, ClientError | None] = {}
        for one in answer.responses:
            item = bytes(one.topic_id) if one.topic_id in wanted else one.name or ""
            if isinstance(item, str):
                told[item] = _topic_failure(one.error_code, item, one.error_message)
            else:
                told[item] = failure(one.error_code, uuid_text(item), one.error_message)
        return Results.of(wanted, told)

    async def create_partitions(
        self, totals: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Topics with how many partitions they are to have. (They can only get more.)"""
        from klamm.wire.messages.k37_create_partitions import (
            CreatePartitionsAssignment,
            CreatePartitionsRequest,
            CreatePartitionsTopic,
        )

        if not totals:
            return Results({})
        topics = []
        for name, given in totals.items():
            new = NewPartitions(given) if isinstance(given, int) else given
            assignments = None
            if new.assignments is not None:
                assignments = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.assignments]
            topics.append(CreatePartitionsTopic(name=name, count=new.total, assignments=assignments))
        timeout_ms = self._cluster.config.request_timeout_ms
        request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
        answer = await ask_controller(self._cluster, request, lambda answer: (t.error_code for t in answer.results))
        told = {one.name: _topic_failure(one.error_code, one.name, one.error_message) for one in answer.results}
        return Results.of(totals, told)

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, read_committed: bool = False
    ) -> Results[TopicPartition, OffsetFound]:
        """For each partition EARLIEST, LATEST, MAX_TIMESTAMP, or the first offset at or after a time in ms."""
        from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

        async def ask(node: int, part: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetFound | ClientError]:
            topics = [
                ListOffsetsTopic(name=name, partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=part[TopicPartition(name, index)])
                    for index in indexes
                ])
                for name, indexes in by_topic(part).items()
            ]  # fmt: skip
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=topics,
                timeout_ms=self._cluster.config.request_timeout_ms,
            )
            answer = await self._cluster.request(request, node=node)
            return {
                (place := TopicPartition(topic.name, p.partition_index)): failure(p.error_code, place)
                or OffsetFound(p.offset, p.timestamp, p.leader_epoch)
                for topic in answer.topics
                for p in topic.partitions
            }

        return await ask_leaders(self._cluster, _typed(wanted), ask)

    async def delete_records(self, before: Mapping[tuple[str, int], int]) -> Results[TopicPartition, DeletedRecords]:
        """Delete all records before these offsets; TO_THE_END for all there are."""
        from klamm.wire.messages.k21_delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        async def ask(
            node: int, part: Mapping[TopicPartition, int]
        ) -> dict[TopicPartition, DeletedRecords | ClientError]:
            topics: dict[str, list[DeleteRecordsPartition]] = {}
            for (topic, index), offset in part.items():
                topics.setdefault(topic, []).append(DeleteRecordsPartition(partition_index=index, offset=offset))
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=some) for name, some in topics.items()],
                timeout_ms=self._cluster.config.request_timeout_ms,
            )
            answer = await self._cluster.request(request, node=node)
            return {
                (place := TopicPartition(topic.name, p.partition_index)): failure(p.error_code, place)
                or DeletedRecords(p.low_watermark)
                for topic in answer.topics
                for p in topic.partitions
            }

        return await ask_leaders(self._cluster, _typed(before), ask)  # deleting twice deletes the same


def _typed(given: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*place): number for place, number in given.items()}


def _creatable(topic: NewTopic) -> CreatableTopic:
    from klamm.wire.messages.k19_create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig

    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions or -1,
        replication_factor=topic.replication_factor or -1,
        assignments=[
            CreatableReplicaAssignment(partition_index=i, broker_ids=list(ids))
            for i, ids in enumerate(topic.assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=setting_text(value)) for name, value in topic.configs.items()],
    )


def _created(told: CreatableTopicResult) -> CreatedTopic | ClientError:
    configs = None
    if told.configs and not told.topic_config_error_code:
        configs = {config.name: config.value for config in told.configs}
    return _topic_failure(told.error_code, told.name, told.error_message) or CreatedTopic(
        told.name,
        bytes(told.topic_id),
        told.num_partitions if told.num_partitions > 0 else None,
        told.replication_factor if told.replication_factor > 0 else None,
        configs,
    )


def _described(
    topic: DescribeTopicPartitionsResponseTopic, before: TopicDescription | None
) -> TopicDescription | ClientError:
    name = topic.name or ""
    partitions = dict(before.partitions) if before is not None else {}
    partitions.update((p.partition_index, _partition(p)) for p in topic.partitions)
    return _topic_failure(topic.error_code, name) or TopicDescription(
        name, bytes(topic.topic_id), topic.is_internal, partitions
    )


def _partition(told: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last = told.eligible_leader_replicas, told.last_known_elr
    return PartitionDescription(
        told.partition_index,
        told.leader_id if told.leader_id >= 0 else None,
        told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        None if eligible is None else tuple(eligible),
        None if last is None else tuple(last),
    )


def _from_metadata(topic: Topic) -> TopicDescription | ClientError:
    def description(p: Partition) -> PartitionDescription:
        leader = p.leader if p.leader >= 0 else None
        return PartitionDescription(p.index, leader, p.leader_epoch, p.replicas, p.isr, p.offline)

    partitions = {index: description(p) for index, p in topic.partitions.items()}
    return _topic_failure(topic.error, topic.name) or TopicDescription(topic.name, topic.id, topic.internal, partitions)


def _topic_failure(number: int, topic: str, message: str | None = None) -> BrokerSaid | None:
    error = failure(number, topic, message)
    if error is not None:
        error.topic = topic
    return error
