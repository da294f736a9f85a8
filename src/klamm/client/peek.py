"""When the record at an offset was written, of many partitions at once: a look at single records, without reading on.

Each leader is asked about all its partitions together, for little first and for more each time: a broker sends a batch
that is larger than the limit for one partition only. Whatever cannot be had in a few rounds is left out.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from klamm.client.errors import ClientError
from klamm.client.fetching import Limits, Want, fetch_request, next_offset, read_answer, read_records
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

_FIRST_BYTES: Final = 16 << 10
_GROWTH: Final = 8
_ROUNDS: Final = 5
"""The last one is for batches of up to 64 MiB; gaps in a log that was compacted take some rounds, too."""


async def first_timestamps(cluster: Cluster, wanted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The time of the first record at or after an offset, in milliseconds since 1970, where there is one to be had."""
    left = {TopicPartition(*place): offset for place, offset in wanted.items()}
    if left:
        await cluster.refresh({place.topic for place in left})
    found: dict[tuple[str, int], int] = {}
    partition_bytes = _FIRST_BYTES
    for _ in range(_ROUNDS):
        by_leader: dict[int, list[Want]] = defaultdict(list)
        for place, offset in left.items():
            leader = cluster.leader(*place)
            if leader is not None:
                by_leader[leader.leader].append(Want(place, offset, leader.leader_epoch))
        if not by_leader:
            break
        limits = Limits(0, 0, cluster.config.fetch_max_bytes, partition_bytes)
        left = {}
        for positions in await asyncio.gather(*(_ask(cluster, n, w, limits, found) for n, w in by_leader.items())):
            left |= positions
        partition_bytes *= _GROWTH
    return found


async def _ask(
    cluster: Cluster, node: int, wants: list[Want], limits: Limits, found: dict[tuple[str, int], int]
) -> dict[TopicPartition, int]:
    """One look at one broker's partitions; where to look next for those that have told nothing yet."""
    try:
        connection = await cluster.connection(node)
        request, version = fetch_request(connection.versions, wants, cluster.known.topics, limits, read_committed=False)
        answer = await cluster.request(request, node=node, version=version)
        answers = read_answer(answer, {topic.id: topic.name for topic in cluster.known.topics.values()})
        left = {}
        for place, offset, _ in wants:
            told = answers.get(place)
            if told is None or told.code or told.high_watermark <= offset:
                continue
            records = read_records(place, told, offset)
            if records:
                found[place] = records[0].timestamp
            else:
                left[place] = next_offset(place, told.records, offset)
        return left
    except ClientError:
        return {}
