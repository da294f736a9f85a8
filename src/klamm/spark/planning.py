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


@dataclass(frozen=True)
class Found:
    """The partitions that a query reads, as of some moment."""

    places: frozenset[TopicPartition]
    ids: Mapping[str, str]
    """Of the topics that have one."""


def to_ask(start: Position, end: Position) -> list[TopicPartition]:
    """The partitions whose first offsets are needed for a plan: those that the query has not read before."""
    new_topics = _made_anew(start.ids, end.ids)
    return [place for place in end.at if place not in start.at or place.topic in new_topics]


def plan(start: Position, end: Position, earliest: Places) -> Plan:
    """`earliest` has the first offsets of the partitions in `to_ask`; what is missing there does not exist any more."""
    ranges: list[Range] = []
    new_topics = _made_anew(start.ids, end.ids)
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
                f"{place} ends at offset {until}, and the query stands at {begin}: the cluster has lost records, "
                "or the query was told to start behind the end."
            )
        if begin < until:
            ranges.append(Range(place, begin, until))
    return Plan(ranges, losses)


def of_now(planned: Plan, end: Position, now: Found) -> Plan:
    """A batch that was planned some time ago, before a restart perhaps, without what is not there any more: the topic
    that has the name now is another one, and its offsets mean other records."""
    new_topics = _made_anew(end.ids, now.ids)
    ranges: list[Range] = []
    losses = list(planned.losses)
    for one in planned.ranges:
        place = one.place
        if place.topic in new_topics:
            losses.append(
                f"Topic {place.topic} was deleted and made anew: of {place}, "
                f"what was from offset {one.start} on is lost."
            )
        elif place not in now.places:
            losses.append(f"{place} is gone: what was from offset {one.start} on is lost.")
        else:
            ranges.append(one)
    return Plan(ranges, losses)


def _made_anew(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {topic for topic, name in after.items() if topic in before and before[topic] != name}


def missing(names: Collection[str], places: Collection[TopicPartition]) -> list[str]:
    """Topics that were named and have no partitions."""
    there = {place.topic for place in places}
    return sorted(set(names) - there)


def behind(start: Places, end: Places) -> int:
    """How many records there are to read."""
    return sum(max(0, offset - start.get(place, 0)) for place, offset in end.items())


def receded(start: Position, latest: Places, ids: Mapping[str, str]) -> list[TopicPartition]:
    """The partitions that end before they were read up to. Those of a topic that was made anew do not count."""
    new_topics = _made_anew(start.ids, ids)
    return [
        place for place, offset in latest.items() if offset < start.at.get(place, 0) and place.topic not in new_topics
    ]
