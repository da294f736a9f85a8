"""What there is to know about topics, gathered from a cluster in a few requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.cli import admin
from klamm.cli.parsing import Failed, nearest
from klamm.client.offsets import EARLIEST, LATEST
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID, uuid_text

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.configs import Config
    from klamm.client.metadata import Metadata, Partition, Topic

_WILD: Final = "*?["  # none of these can be in a topic's name


class PartitionView(NamedTuple):
    """Offsets and size are None where they are not known: no leader, or a cluster that does not tell."""

    partition: Partition
    start: int | None
    end: int | None
    size: int | None

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


class TopicView(NamedTuple):
    topic: Topic
    partitions: Sequence[PartitionView]

    @property
    def records(self) -> int | None:
        return _sum(partition.records for partition in self.partitions)

    @property
    def size(self) -> int | None:
        return _sum(partition.size for partition in self.partitions)


def is_pattern(word: str) -> bool:
    return any(char in word for char in _WILD)


def select(metadata: Metadata, words: Sequence[str], *, internal: bool = True, missing_ok: bool = False) -> list[Topic]:
    """The topics that these names and shell patterns stand for, by name; all without any. Failed if there is none for
    one of them, unless that is fine."""
    topics = [topic for topic in metadata.topics.values() if internal or not topic.internal]
    if not words:
        return sorted(topics, key=lambda topic: topic.name)
    names = {topic.name for topic in topics if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    chosen: set[str] = set()
    for word in words:
        found = {name for name in names if fnmatchcase(name, word)} if is_pattern(word) else names & {word}
        if not found and not missing_ok:
            raise unknown_topic(word, metadata.topics)
        chosen |= found
    return [metadata.topics[name] for name in sorted(chosen)]


def unknown_topic(word: str, names: Iterable[str]) -> Failed:
    if is_pattern(word):
        return Failed(f"no topic matches {word!r}.", "See the topics there are with: klamm topic list")
    close = nearest(word, (name for name in names if name != word))
    if close:
        return Failed(f"there is no topic {word!r}.", f"Did you mean {close!r}? klamm topic list shows all.")
    return Failed(
        f"there is no topic {word!r}.", f"See those there are with: klamm topic list. Or: klamm topic create {word}"
    )


async def find(cluster: Cluster, words: Sequence[str]) -> list[Topic]:
    """The topics of these names and patterns. All are asked for: a mistake is told with the nearest name."""
    return select(await cluster.metadata(), words)


async def views(cluster: Cluster, topics: Sequence[Topic], *, sizes: bool = True) -> list[TopicView]:
    """The topics with offsets and sizes: two rounds of ListOffsets, and DescribeLogDirs of the leaders."""
    starts = await end_offsets(cluster, topics, EARLIEST)
    ends = await end_offsets(cluster, topics)
    found = await leader_sizes(cluster, topics) if sizes else {}
    result = []
    for topic in topics:
        partitions = []
        for p in topic.partitions.values():
            key = topic.name, p.index
            partitions.append(PartitionView(p, starts.get(key), ends.get(key), found.get(key)))
        result.append(TopicView(topic, partitions))
    return result


async def end_offsets(cluster: Cluster, topics: Sequence[Topic], at: int = LATEST) -> dict[tuple[str, int], int]:
    """Where the led partitions of these topics end (or begin): of those that one may read."""
    from klamm.client.admin.topics import Topics

    led = [(topic.name, p.index) for topic in topics for p in topic.partitions.values() if p.leader >= 0]
    found = await Topics(cluster).list_offsets(dict.fromkeys(led, at))
    return {(place.topic, place.partition): position.offset for place, position in found.items()}


async def leader_sizes(cluster: Cluster, topics: Sequence[Topic]) -> dict[tuple[str, int], int]:
    leaders = {(topic.name, p.index): p.leader for topic in topics for p in topic.partitions.values() if p.leader >= 0}
    folders = await admin.log_dirs(cluster, sorted(set(leaders.values())), leaders)
    return {
        (place.topic, place.partition): replica.size_bytes
        for folder in folders or ()
        for place, replica in folder.replicas.items()
        if leaders.get(place) == folder.broker
    }


async def topic_configs(cluster: Cluster, topics: Sequence[Topic]) -> dict[str, Config]:
    """Of those that may be read."""
    from klamm.client.admin.configs import Configs, Resource

    found = await Configs(cluster).describe_configs(Resource.topic(topic.name) for topic in topics)
    return {resource.name: config for resource, config in found.items()}


def notes(topic: Topic) -> str:
    """What a person should know about a topic at a glance; "" if all is well."""
    remarks = ["internal"] if topic.internal else []
    if topic.error:
        remarks.append(topic.error.name)
    leaderless = sum(p.leader < 0 for p in topic.partitions.values())
    behind = sum(len(p.isr) < len(p.replicas) for p in topic.partitions.values() if p.leader >= 0)
    if leaderless:
        remarks.append(f"{leaderless} without leader")
    if behind:
        remarks.append(f"{behind} under-replicated")
    return ", ".join(remarks)


def replication(topic: Topic) -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


def own_configs(configs: Config | None) -> dict[str, str | None]:
    """What was set on the topic itself."""
    from klamm.client.admin.configs import ConfigSource

    return {
        name: config.value
        for name, config in (configs or {}).items()
        if config.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def topic_json(view: TopicView, configs: Config | None = None) -> dict[str, Any]:
    topic = view.topic
    return {
        "name": topic.name,
        "id": None if topic.id == NO_TOPIC_ID else uuid_text(topic.id),
        "internal": topic.internal,
        "error": topic.error.name if topic.error else None,
        "replication_factor": replication(topic),
        "records": view.records,
        "size_bytes": view.size,
        "configs": None if configs is None else own_configs(configs),
        "partitions": [partition_json(partition) for partition in view.partitions],
    }


def partition_json(view: PartitionView) -> dict[str, Any]:
    partition = view.partition
    return {
        "partition": partition.index,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch if partition.leader_epoch >= 0 else None,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.isr),
        "offline": list(partition.offline),
        "error": partition.error.name if partition.error else None,
        "start_offset": view.start,
        "end_offset": view.end,
        "size_bytes": view.size,
    }


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None if all are unknown: a sum of nothing must not look like an empty topic."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
