"""From where a query was, and where it is to get to, to what its tasks read. Pure.

What cannot be read any more is found out here as far as offsets and ids of topics tell, and said in sentences: whether
they are errors or warnings is for the caller. The rest, records that retention deletes in the meantime, a task finds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from klamm.core.ids import TopicPartition
from klamm.spark.offsets import Places, Position, Range


@dataclass(frozen=True)
class Plan:
    ranges: list[Range]
    losses: list[str]


def to_ask(start: Position, end: Position) -> list[TopicPartition]:
    """The partitions whose first offsets are needed for a plan: those that the query has not read before."""
    new_topics = _made_anew(start, end)
    return [place for place in end.at if place not in start.at or place.topic in new_topics]


def plan(start: Position, end: Position, earliest: Places) -> Plan:
    """`earliest` has the first offsets of the partitions in `to_ask`; what is missing there does not exist any more."""
    ranges: list[Range] = []
    new_topics = _made_anew(start, end)
    losses = [
        f"Topic {topic} was deleted and made anew: what was not read of the former one is lost."
        for topic in sorted(new_topics)
    ]
    losses += [
        f"{place} is gone: what was not read of it, from offset {start.at[place]} on, is lost."
        for place in sorted(start.at.keys() - end.at.keys())
    ]
    for place, until in sorted(end.at.items()):
        begin = None if place.topic in new_topics else start.at.get(place)
        if begin is None:
            begin = earliest.get(place, until)
            if begin > 0 and place.topic not in new_topics:
                losses.append(f"{place} is new and begins at offset {begin}: what was before is lost.")
        elif begin > until:
            losses.append(
                f"{place} ends at offset {until} and was read up to {begin}: records were lost by the cluster."
            )
        if begin < until:
            ranges.append(Range(place, begin, until))
    return Plan(ranges, losses)


def _made_anew(start: Position, end: Position) -> set[str]:
    return {topic for topic, name in end.ids.items() if topic in start.ids and start.ids[topic] != name}


def missing(names: Collection[str], places: Collection[TopicPartition]) -> list[str]:
    """Topics that were named and have no partitions."""
    there = {place.topic for place in places}
    return sorted(set(names) - there)


def behind(start: Places, end: Places) -> int:
    """How many records there are to read."""
    return sum(max(0, offset - start.get(place, 0)) for place, offset in end.items())


def forward(start: Position, latest: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Where a batch may end: where partitions end, and never in front of where it begins. A broker that has just become
    leader may not know the end yet; that is no loss, and will be told another time."""
    return {
        place: max(offset, start.at.get(place, 0)) if start.ids.get(place.topic) == ids.get(place.topic) else offset
        for place, offset in latest.items()
    }
