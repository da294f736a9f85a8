"""What the driver of a query asks brokers: which partitions there are, and offsets in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from klamm.admin import EARLIEST, LATEST
from klamm.blocking import Admin
from klamm.core.ids import NO_TOPIC_ID, TopicPartition, uuid_text
from klamm.spark.errors import BadOption, is_gone
from klamm.spark.offsets import Places
from klamm.spark.options import Bound, NoMatch, SourceOptions, Which
from klamm.spark.planning import Found


class Lookup:
    """One connection for the life of a query's driver. Not for several threads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            admin = Admin(config=dict(self._options.client))
            admin.start()
            self._admin = admin
        return self._admin

    def partitions(self) -> Found:
        """Those that the query reads, as of now. Topics that do not exist have none, unless they were named."""
        which = self._options.which
        names = self._names(which)
        described = self.admin.describe_topics(names)
        places: set[TopicPartition] = set()
        ids: dict[str, str] = {}
        for name in names:
            if (error := described.errors.get(name)) is not None:
                if is_gone(error):
                    continue
                raise error
            topic = described[name]
            places |= {TopicPartition(name, index) for index in topic.partitions}
            if topic.id != NO_TOPIC_ID:
                ids[name] = uuid_text(topic.id)
        if which.partitions:
            places &= set(which.partitions)
        return Found(frozenset(places), ids)

    def _names(self, which: Which) -> list[str]:
        if which.pattern:
            return sorted(name for name in self.admin.list_topics() if which.fits(name))
        return sorted(set(which.names) | {place.topic for place in which.partitions})

    def earliest(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Without those that are gone meanwhile."""
        return self._offsets(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Behind the last record that can be read, with read_committed in front of open transactions. Without those
        that are gone meanwhile."""
        return self._offsets(dict.fromkeys(places, LATEST))

    def log_ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Behind the last record, whether it can be read or not."""
        return self._offsets(dict.fromkeys(places, LATEST), read_committed=False)

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked: dict[tuple[str, int], int] = dict(wanted.items())
        level = self._options.read_committed if read_committed is None else read_committed
        found = self.admin.list_offsets(asked, read_committed=level)
        for error in found.errors.values():
            if not is_gone(error):
                raise error
        return {place: found[place].offset for place in wanted if place in found}

    def resolve(self, bound: Bound, places: Collection[TopicPartition], *, starting: bool) -> dict[TopicPartition, int]:
        """The offset that a bound means in each of these partitions."""
        if bound.everywhere is not None:
            return self._offsets(dict.fromkeys(places, bound.everywhere))
        if bound.time_ms is not None:
            return self._at_times(dict.fromkeys(places, bound.time_ms), starting)
        if bound.times_ms is not None:
            _same_partitions(bound.times_ms, places)
            return self._at_times(bound.times_ms, starting)
        assert bound.offsets is not None
        _same_partitions(bound.offsets, places)
        asked = self._offsets({place: offset for place, offset in bound.offsets.items() if offset < 0})
        return {**bound.offsets, **asked}

    def _at_times(self, times_ms: Places, starting: bool) -> dict[TopicPartition, int]:
        """Where no record is as late as that, a batch ends behind the last one; where to begin is an option."""
        found = self._offsets(times_ms)
        late = [place for place, offset in found.items() if offset < 0]
        if late and starting and self._options.no_match is NoMatch.ERROR:
            times = ", ".join(f"{place} at {times_ms[place]}" for place in late)
            raise BadOption(
                f"There is no record at or after the time to begin with: {times}.",
                "startingOffsetsByTimestampStrategy=latest begins behind the last record then.",
            )
        return {**found, **self.latest(late)}


def _same_partitions(given: Places, places: Collection[TopicPartition]) -> None:
    lone = given.keys() ^ set(places)
    if lone:
        raise BadOption(
            f"The partitions to read and those with an offset to begin or to end with are not the same: "
            f"{', '.join(map(str, sorted(lone)))}.",
            "Give one for each partition; -2 stands for the earliest, -1 for the latest.",
        )
