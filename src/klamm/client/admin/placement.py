"""Where replicas are, who leads, and in which folders they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from klamm.client.admin.asking import Part, ask_controller, by_topic, each, needs, places, version_of
from klamm.client.admin.results import Results, failure
from klamm.client.errors import BrokerSaid, ClientError
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

_ELECTION_TYPE: Final = 1  # ElectLeaders, AlterPartitionReassignments: what came with their version 1
_KEEP_FACTOR: Final = 1


class Election(IntEnum):
    """PREFERRED: the first replica of each, if it is in sync. UNCLEAN: any that is there, where no replica in sync is;
    records are lost."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Elected:
    """`needed` is False where the partition had that leader already."""

    needed: bool


@dataclass(frozen=True, slots=True)
class Reassignment:
    """`replicas` are all for now, those to come and those to go among them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    topic: str
    partition: int
    broker: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """`lag` counts offsets up to the log's end; a `future` one is being moved here from another folder."""

    size_bytes: int
    lag: int
    future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A folder that a broker keeps logs in; with its `error`, if it cannot. None: the broker is too old to tell."""

    broker: int
    path: str
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    error: BrokerSaid | None
    cordoned: bool = False


class Placement(Part):
    async def elect_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, election: Election = Election.PREFERRED
    ) -> Results[TopicPartition, Elected]:
        """In these partitions, or in all. Of all, those are in the answer that another leader was elected for."""
        from klamm.wire.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions

        wanted = None if partitions is None else places(partitions)
        if wanted == []:
            return Results({})
        if election is not Election.PREFERRED:
            needs(await version_of(self._cluster, ElectLeadersRequest), _ELECTION_TYPE, "for unclean elections")
        topics = None
        if wanted is not None:
            topics = [TopicPartitions(topic=name, partitions=some) for name, some in by_topic(wanted).items()]
        request = ElectLeadersRequest(
            election_type=election, topic_partitions=topics, timeout_ms=self._cluster.config.request_timeout_ms
        )
        answer = await ask_controller(self._cluster, request, _code)
        if (error := failure(answer.error_code, "elections")) is not None:
            raise error
        told: dict[TopicPartition, Elected | ClientError] = {}
        for topic in answer.replica_election_results:
            for one in topic.partition_result:
                place = TopicPartition(topic.topic, one.partition_id)
                if one.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    told[place] = Elected(needed=False)
                else:
                    told[place] = failure(one.error_code, place, one.error_message) or Elected(needed=True)
        return Results.of(told if wanted is None else wanted, told)

    async def alter_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these replicas; None cancels a move that is under way."""
        from klamm.wire.messages.k45_alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        if not targets:
            return Results({})
        if not allow_replication_factor_change:
            version = await version_of(self._cluster, AlterPartitionReassignmentsRequest)
            needs(version, _KEEP_FACTOR, "to forbid another replication factor")
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in targets.items():
            to = None if replicas is None else list(replicas)
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=to))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.config.request_timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=some) for name, some in topics.items()],
        )
        answer = await ask_controller(self._cluster, request, _code)
        if (error := failure(answer.error_code, "reassignments", answer.error_message)) is not None:
            raise error
        told = {
            (place := TopicPartition(topic.name, one.partition_index)): failure(
                one.error_code, place, one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        }
        return Results.of(places(targets), told)

    async def list_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way, of these partitions or of all."""
        from klamm.wire.messages.k46_list_partition_reassignments import (
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsTopics,
        )

        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=some)
                for name, some in by_topic(places(partitions)).items()
            ]
        timeout_ms = self._cluster.config.request_timeout_ms
        request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)
        answer = await ask_controller(self._cluster, request, _code, reading=True)
        if (error := failure(answer.error_code, "reassignments", answer.error_message)) is not None:
            raise error
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, partitions: Iterable[tuple[str, int]] | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        """The folders of these brokers, or of all, and what is in them: these partitions, or all."""
        from klamm.wire.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

        topics = None
        if partitions is not None:
            some = by_topic(places(partitions))
            topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in some.items()]
        request = DescribeLogDirsRequest(topics=topics)

        async def ask(broker: int) -> tuple[LogDir, ...]:
            answer = await self._cluster.request(request, node=broker)
            if (error := failure(answer.error_code, f"the folders of broker {broker}")) is not None:
                raise error
            return tuple(_log_dir(broker, folder) for folder in answer.results)

        return await each(self._cluster.brokers if brokers is None else brokers, ask)

    async def alter_replica_log_dirs(self, folders: Mapping[tuple[str, int, int], str]) -> Results[Replica, None]:
        """Begin to move replicas (topic, partition, broker) to these folders of the same broker."""
        from klamm.wire.messages.k34_alter_replica_log_dirs import (
            AlterReplicaLogDir,
            AlterReplicaLogDirsRequest,
            AlterReplicaLogDirTopic,
        )

        by_broker: dict[int, dict[str, list[TopicPartition]]] = {}
        for (topic, index, broker), path in folders.items():
            by_broker.setdefault(broker, {}).setdefault(path, []).append(TopicPartition(topic, index))

        async def ask(broker: int) -> dict[Replica, ClientError | None]:
            dirs = [
                AlterReplicaLogDir(path=path, topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=some) for name, some in by_topic(moved).items()
                ])
                for path, moved in by_broker[broker].items()
            ]  # fmt: skip
            answer = await self._cluster.request(AlterReplicaLogDirsRequest(dirs=dirs), node=broker)
            return {
                Replica(topic.topic_name, one.partition_index, broker): failure(
                    one.error_code, TopicPartition(topic.topic_name, one.partition_index)
                )
                for topic in answer.results
                for one in topic.partitions
            }

        wanted = [Replica(*replica) for replica in folders]
        answers = await each(by_broker, ask)
        told: dict[Replica, ClientError | None] = {}
        for answer in answers.values():
            told.update(answer)
        told.update((one, answers.errors[one.broker]) for one in wanted if one.broker in answers.errors)
        return Results.of(wanted, told)


def _code(answer: Any) -> list[int]:
    return [answer.error_code]


def _log_dir(broker: int, folder: Any) -> LogDir:
    return LogDir(
        broker,
        folder.log_dir,
        {
            TopicPartition(topic.name, one.partition_index): ReplicaInfo(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in folder.topics
            for one in topic.partitions
        },
        folder.total_bytes if folder.total_bytes >= 0 else None,
        folder.usable_bytes if folder.usable_bytes >= 0 else None,
        failure(folder.error_code, folder.log_dir),
        folder.is_cordoned,
    )
