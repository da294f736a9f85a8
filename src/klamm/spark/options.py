"""The options of `format("klamm")`, by the names that Spark's Kafka source and sink have. Pure.

Everything is checked here, before anything runs: `BadOption` says which option, what was given, and what it can be.
`kafka.*` goes to the client as it is, with the exception of what a query decides itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from klamm.core.ids import TopicPartition
from klamm.spark.errors import BadOption

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1
"""What stands for them in JSON, as in Kafka's protocol."""

OWN_TOPICS: Final = "__klamm_"
SERVERS: Final = "kafka.bootstrap.servers"
_KAFKA: Final = "kafka."
_TIME_UNITS: Final = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_REFUSED: Final = {
    "auto.offset.reset": "Where to begin is decided by startingOffsets.",
    "key.deserializer": "Keys are bytes: use functions of DataFrames.",
    "value.deserializer": "Values are bytes: use functions of DataFrames.",
    "key.serializer": "Keys are bytes or strings: use functions of DataFrames.",
    "value.serializer": "Values are bytes or strings: use functions of DataFrames.",
    "enable.auto.commit": "Where a query has got to stands in its checkpoint.",
    "interceptor.classes": "They could change records.",
    "transactional.id": "Transactions are the sink's own affair.",
}


class Texts:
    """Options as text, whatever the case of their names, with an error that names what is wrong."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = {name.lower(): str(value) for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.given

    def get(self, name: str) -> str | None:
        value = self.given.get(name.lower())
        return None if value is None else value.strip()

    def parsed(self, name: str, parse: Callable[[str], T], what: str) -> T | None:
        value = self.get(name)
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise BadOption(f"The option {name} is {value!r}.", f"It is {what}.") from error

    def number(self, name: str, least: int = 1) -> int | None:
        return self.parsed(name, lambda value: _at_least(int(value), least), f"a number from {least} on")

    def flag(self, name: str, default: bool) -> bool:
        found = self.parsed(name, lambda value: {"true": True, "false": False}[value.lower()], "true or false")
        return _or_else(found, default)

    def client(self) -> dict[str, str]:
        """What goes to the Kafka client: `kafka.*` without the prefix."""
        found = {name.removeprefix(_KAFKA): value for name, value in self.given.items() if name.startswith(_KAFKA)}
        if not found.get("bootstrap.servers"):
            raise BadOption(f"The option {SERVERS} is missing.", "It is the address of a broker: localhost:9092, say.")
        for name, why in _REFUSED.items():
            if name in found:
                raise BadOption(f"The option {_KAFKA}{name} cannot be used here.", why)
        return found


def _or_else(found: T | None, default: T) -> T:
    return default if found is None else found


def _at_least(number: int, least: int) -> int:
    if number < least:
        raise ValueError(number)
    return number


# Which topics.


@dataclass(frozen=True)
class Which:
    """Exactly one of them is given."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def fits(self, topic: str) -> bool:
        """A pattern may fit a part of the name, as for Spark's own source. Our own topics fit none: a query that read
        the decisions of its sink would never come to rest."""
        return not topic.startswith(OWN_TOPICS) and re.search(self.pattern, topic) is not None


def _which(texts: Texts) -> Which:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in texts]
    if len(given) != 1:
        found = f"{' and '.join(given)} were given" if given else "None was given"
        raise BadOption(f"{found}, and exactly one is needed.", "It is subscribe, subscribePattern or assign.")
    assigned = texts.parsed("assign", _assigned, 'JSON like {"clicks": [0, 1]}')
    if assigned is not None:
        return Which(partitions=assigned)
    pattern = texts.parsed("subscribePattern", _pattern, "a regular expression for names of topics")
    if pattern is not None:
        return Which(pattern=pattern)
    names = texts.parsed("subscribe", _names, "names of topics with commas between them")
    assert names is not None
    return Which(names=names)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(text)
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    if not text:
        raise ValueError(text)
    return text


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    data: dict[str, Any] = json.loads(text)
    places = tuple(TopicPartition(topic, _at_least(_whole(index), 0)) for topic in data for index in _list(data[topic]))
    if not places:
        raise ValueError(text)
    return places


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(value)
    return value


# Where to begin and to end.


@dataclass(frozen=True)
class Bound:
    """A place in all partitions: `everywhere` (EARLIEST, LATEST) or `offsets` of each, or `time_ms` or `times_ms`."""

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None


def _bound(texts: Texts, which: str, default: int, forbidden: int | None) -> Bound:
    """`forbidden` is the place where a batch can not begin, or not end."""
    time_ms = texts.number(f"{which}Timestamp", least=0)
    if time_ms is not None:
        return Bound(time_ms=time_ms)
    form = '{"clicks": {"0": 17, "1": 4}}'
    times = texts.parsed(f"{which}OffsetsByTimestamp", _by_partition, f"JSON with times in ms, like {form}")
    if times is not None:
        return Bound(times_ms=times)
    name = f"{which}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = (texts.get(name) or "").lower()
    if not text or text in words:
        everywhere = words.get(text, default)
        if everywhere == forbidden:
            raise BadOption(f"The option {name} is {text!r}.", "A batch that begins or ends there would be empty.")
        return Bound(everywhere=everywhere)
    offsets = texts.parsed(name, _by_partition, f"earliest, latest, or JSON like {form}; -2 is earliest, -1 latest")
    assert offsets is not None
    for place, offset in offsets.items():
        if offset == forbidden:
            raise BadOption(f"The option {name} has {offset} for {place}.", "That batch would be empty.")
        if offset < EARLIEST:
            raise BadOption(f"The option {name} has {offset} for {place}.", "There are no such offsets.")
    return Bound(offsets=offsets)


def _by_partition(text: str) -> dict[TopicPartition, int]:
    data: dict[str, dict[str, Any]] = json.loads(text)
    return {
        TopicPartition(topic, int(index)): _whole(number)
        for topic, partitions in data.items()
        for index, number in partitions.items()
    }


def _whole(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise ValueError(number)
    return int(number)


# The source.


class NoMatch(Enum):
    """Where to begin in a partition that has no record at or after the time: `startingOffsetsByTimestampStrategy`."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class SourceOptions:
    which: Which
    client: Mapping[str, str]
    starting: Bound
    ending: Bound
    """For batch queries."""
    no_match: NoMatch = NoMatch.ERROR
    headers: bool = False
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    """`maxOffsetsPerTrigger`."""
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000
    """`maxTriggerDelay`: with `minOffsetsPerTrigger`, how long to wait for so many."""
    min_tasks: int | None = None
    """`minPartitions`."""
    max_records: int | None = None
    """`maxRecordsPerPartition`."""
    poll_timeout_ms: int = 120_000
    retries: int = 3
    """`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`: how often to look again at a partition that seems to end
    before it was read up to, and after what time, before that is believed."""
    retry_interval_ms: int = 1000
    group_id: str | None = None
    """`kafka.group.id`: under which the query's progress is shown."""
    group_prefix: str = "spark-klamm-source"

    @property
    def read_committed(self) -> bool:
        return self.client["isolation.level"].strip() == "read_committed"  # as the client takes it

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        texts = Texts(given)
        if streaming:
            for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
                if name in texts:
                    raise BadOption(f"The option {name} has no meaning for a stream.", "A stream has no end.")
        client = texts.client()
        group_id = client.pop("group.id", None)
        client.setdefault("isolation.level", "read_committed")
        found = cls(
            which=_which(texts),
            client=client,
            starting=_bound(texts, "starting", LATEST if streaming else EARLIEST, None if streaming else LATEST),
            ending=_bound(texts, "ending", LATEST, EARLIEST),
            no_match=texts.parsed("startingOffsetsByTimestampStrategy", lambda v: NoMatch(v.lower()), "error or latest")
            or NoMatch.ERROR,
            headers=texts.flag("includeHeaders", False),
            fail_on_data_loss=texts.flag("failOnDataLoss", True),
            max_offsets=texts.number("maxOffsetsPerTrigger"),
            min_offsets=texts.number("minOffsetsPerTrigger"),
            max_delay_ms=_or_else(
                texts.parsed("maxTriggerDelay", duration_ms, "a time like 15m or 30s"), cls.max_delay_ms
            ),
            min_tasks=texts.number("minPartitions"),
            max_records=texts.number("maxRecordsPerPartition"),
            poll_timeout_ms=texts.number("kafkaConsumer.pollTimeoutMs") or cls.poll_timeout_ms,
            retries=_or_else(texts.number("fetchOffset.numRetries", least=0), cls.retries),
            retry_interval_ms=_or_else(texts.number("fetchOffset.retryIntervalMs", least=0), cls.retry_interval_ms),
            group_id=group_id,
            group_prefix=texts.get("groupIdPrefix") or cls.group_prefix,
        )
        found._check()
        return found

    def _check(self) -> None:
        low, high = self.min_offsets, self.max_offsets
        if low is not None and high is not None and low > high:
            raise BadOption(f"minOffsetsPerTrigger is {low}, more than maxOffsetsPerTrigger, {high}.")
        for name, begins, ends in (
            ("offsets", self.starting.offsets, self.ending.offsets),
            ("times", self.starting.times_ms, self.ending.times_ms),
        ):
            if begins is None or ends is None:
                continue
            if begins.keys() != ends.keys():
                lone = ", ".join(map(str, sorted(begins.keys() ^ ends.keys())))
                raise BadOption(f"The {name} to begin and to end with are not of the same partitions: {lone}.")
            for place, begin in begins.items():
                if begin > ends[place] >= 0:
                    raise BadOption(f"The {name} of {place} are turned round: from {begin} on, before {ends[place]}.")


def duration_ms(text: str) -> int:
    """A time as Spark's configuration has it: a number with a unit, or of milliseconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or (found[2] and found[2] not in _TIME_UNITS):
        raise ValueError(text)
    return int(int(found[1]) * _TIME_UNITS[found[2] or "ms"])


# The sink.


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class SinkOptions:
    client: Mapping[str, str]
    topic: str | None = None
    """For all rows; else each has it in its column `topic`."""
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    app_id: str | None = None
    """`txnAppId` and `txnVersion`: the name of a sequence of batch writes, and the number of this one in it. One that
    was written is not written again."""
    version: int | None = None
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        texts = Texts(given)
        words = " or ".join(each.value for each in Guarantee)
        found = cls(
            client=texts.client(),
            topic=texts.get("topic") or None,
            guarantee=texts.parsed("deliveryGuarantee", lambda value: Guarantee(value.lower()), words)
            or Guarantee.EXACTLY_ONCE,
            app_id=texts.get("txnAppId") or None,
            version=texts.number("txnVersion", least=0),
            fail_on_data_loss=texts.flag("failOnDataLoss", True),
        )
        if (found.app_id is None) != (found.version is None):
            raise BadOption("txnAppId and txnVersion belong together, and only one of them was given.")
        if found.app_id is not None and found.guarantee is Guarantee.AT_LEAST_ONCE:
            raise BadOption("txnAppId makes writing exactly once, and deliveryGuarantee is at-least-once.")
        return found
