"""Where a partition begins and ends, and where in it a time is (ListOffsets), asked of the leaders."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from klamm.client.errors import BrokerSaid, ClientError, error_code
from klamm.client.partitioner import partitions_of
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NO_OFFSET: Final = -1
CONSUMER: Final = -1  # the replica id of everybody who is no broker

Wanted: TypeAlias = Mapping[tuple[str, int], int]


class OffsetFound(NamedTuple):
    """For a time: the first record at or after it, and its own time; the offset is -1 if there is none. For the ends
    of a partition: the offset, and -1 for the time."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


async def find_offsets(
    cluster: Cluster, wanted: Wanted, *, read_committed: bool = False
) -> dict[TopicPartition, OffsetFound]:
    """The offset for each partition's timestamp, EARLIEST or LATEST. `BrokerSaid` if one of them cannot be had."""
    retrying = Retrying(cluster.env, cluster.config, "Looking up offsets")
    left = {TopicPartition(*place): timestamp for place, timestamp in wanted.items()}
    found: dict[TopicPartition, OffsetFound] = {}
    await cluster.topics(sorted({place.topic for place in left}))
    while left:
        trouble: ClientError | None = None
        for place, result in (await ask_once(cluster, left, read_committed=read_committed)).items():
            if isinstance(result, OffsetFound):
                found[place] = result
                del left[place]
            elif trouble is None or trouble.retriable:
                trouble = result
        if trouble is None:
            continue
        await retrying.pause(trouble)
        try:
            await cluster.refresh({place.topic for place in left})
        except ClientError as error:
            await retrying.pause(error)
    return found


async def ask_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, OffsetFound | ClientError]:
    """Ask every leader once: for each partition what was found, or what stood in the way."""
    results: dict[TopicPartition, OffsetFound | ClientError] = {}
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for place, timestamp in wanted.items():
        leader = cluster.leader(*place)
        if leader is None:
            results[place] = _no_leader(cluster, place)
        else:
            by_leader[leader.leader][place] = timestamp
    asked = [_ask(cluster, node, part, read_committed) for node, part in by_leader.items()]
    for part, answer in zip(by_leader.values(), await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, ClientError):
            results.update(dict.fromkeys(part, answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for place in part:
                results[place] = answer.get(place) or BrokerSaid(ErrorCode.UNKNOWN_SERVER_ERROR, str(place))
    return results


def _no_leader(cluster: Cluster, place: TopicPartition) -> BrokerSaid:
    topic = cluster.known.topics.get(place.topic)
    if topic is not None and place.partition not in topic.partitions:
        there = f"{place.topic} has {partitions_of(topic)}"
        error = BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(place), there)
        error.retriable = False
        return error
    return BrokerSaid(ErrorCode.LEADER_NOT_AVAILABLE, str(place))


async def _ask(
    cluster: Cluster, node: int, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, OffsetFound | ClientError]:
    topics: dict[str, ListOffsetsTopic] = {}
    for place, timestamp in wanted.items():
        topic = topics.setdefault(place.topic, ListOffsetsTopic(name=place.topic, partitions=[]))
        leader = cluster.leader(*place)
        epoch = -1 if leader is None else leader.leader_epoch
        topic.partitions.append(
            ListOffsetsPartition(partition_index=place.partition, current_leader_epoch=epoch, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(read_committed),
        topics=list(topics.values()),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    answer: ListOffsetsResponse = await cluster.request(request, node=node)
    results: dict[TopicPartition, OffsetFound | ClientError] = {}
    for told in answer.topics:
        for partition in told.partitions:
            place = TopicPartition(told.name, partition.partition_index)
            if partition.error_code:
                results[place] = BrokerSaid(error_code(partition.error_code), str(place))
            else:
                results[place] = OffsetFound(partition.offset, partition.timestamp, partition.leader_epoch)
    return results
