"""A topic's options, the broker options behind them, and which of the two decides.

The order is Kafka's: the topic's own value, then the broker's (file or dynamic), then the default. A broker option in
another unit (log.retention.hours) counts when none in a finer unit is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm.core.options.brokers import (
    BOOL,
    BROKER_OPTIONS,
    LIST,
    LONG,
)
from klamm.core.options.option import LONG_MAX, Option, OptionError, Synonym, Value
from klamm.core.options.options import Options, Source, unknown_name

MAX_PROBLEMS = 10
"""Problems that one refusal explains: wording one takes longer than checking a hundred good values."""

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def _same(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _times(name: str, *units: tuple[str, int]) -> tuple[Synonym, ...]:
    return (Synonym(f"{name}.ms"), *(Synonym(f"{name}.{unit}", factor) for unit, factor in units))


def _plain(topic_name: str, broker_name: str, *, at_least: float | None = None) -> Option:
    """A topic option that is the broker option of another name: same type, default, bounds and doc."""
    broker = BROKER_OPTIONS[broker_name]
    return Option(
        topic_name,
        broker.kind,
        broker.default,
        broker.doc,
        at_least=broker.at_least if at_least is None else at_least,
        at_most=broker.at_most,
        choices=broker.choices,
        dynamic=True,
        honoured=broker.honoured,
        synonyms=_same(broker_name),
    )


_TABLE = (
    Option(
        "retention.ms",
        LONG,
        168 * _HOUR_MS,
        "Segments older than this are deleted; -1 never.",
        at_least=-1,
        synonyms=_times("log.retention", ("minutes", _MINUTE_MS), ("hours", _HOUR_MS)),
    ),
    Option(
        "segment.ms",
        LONG,
        168 * _HOUR_MS,
        "Age at which a new segment is begun.",
        at_least=1,
        synonyms=_times("log.roll", ("hours", _HOUR_MS)),
    ),
    Option(
        "segment.jitter.ms",
        LONG,
        0,
        "Random part taken off segment.ms.",
        at_least=0,
        honoured=False,
        synonyms=_times("log.roll.jitter", ("hours", _HOUR_MS)),
    ),
    Option(
        "flush.ms",
        LONG,
        LONG_MAX,
        "Time after which a log is flushed.",
        at_least=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
    _plain("retention.bytes", "log.retention.bytes"),
    _plain("segment.bytes", "log.segment.bytes"),
    _plain("segment.index.bytes", "log.index.size.max.bytes"),
    _plain("index.interval.bytes", "log.index.interval.bytes"),
    _plain("flush.messages", "log.flush.interval.messages"),
    _plain("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _plain("max.message.bytes", "message.max.bytes"),
    _plain("cleanup.policy", "log.cleanup.policy"),
    _plain("message.timestamp.type", "log.message.timestamp.type"),
    _plain("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _plain("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _plain("min.insync.replicas", "min.insync.replicas"),
    _plain("compression.type", "compression.type"),
    _plain("compression.gzip.level", "compression.gzip.level"),
    _plain("compression.lz4.level", "compression.lz4.level"),
    _plain("compression.zstd.level", "compression.zstd.level"),
    _plain("preallocate", "log.preallocate"),
    _plain("unclean.leader.election.enable", "unclean.leader.election.enable"),
    _plain("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _plain("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _plain("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _plain("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    Option("remote.storage.enable", BOOL, False, "Move old segments to an object store.", honoured=False),
    Option("remote.log.copy.disable", BOOL, False, "Stop moving segments to the object store.", honoured=False),
    Option("remote.log.delete.on.disable", BOOL, False, "Delete what was moved when moving ends.", honoured=False),
    Option(
        "local.retention.ms",
        LONG,
        -2,
        "Age kept here when older data is moved; -2: retention.ms.",
        at_least=-2,
        honoured=False,
    ),
    Option(
        "local.retention.bytes",
        LONG,
        -2,
        "Size kept here when older data is moved; -2: retention.bytes.",
        at_least=-2,
        honoured=False,
    ),
    Option(
        "leader.replication.throttled.replicas", LIST, (), "Replicas whose outgoing copies are slowed.", honoured=False
    ),
    Option(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        "Replicas whose incoming copies are slowed.",
        honoured=False,
    ),
)

TOPIC_OPTIONS = {option.name: option for option in _TABLE}


class Resolved(NamedTuple):
    """The value in force for a topic option, where it comes from, and the name it has there."""

    option: Option
    value: Value
    source: Source
    set_as: str


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, Value]:
    """The parsed values of a topic's own configs; OptionError with the problems if they cannot be accepted."""
    values: dict[str, Value] = {}
    problems: list[str] = []
    for name, text in configs.items():
        if len(problems) >= MAX_PROBLEMS:
            raise OptionError(*problems, "and there may be more")
        option = TOPIC_OPTIONS.get(name)
        if option is None:
            problems.append(unknown_name(name, TOPIC_OPTIONS, "topic option"))
        elif text is None:
            problems.append(f"{name} has no value")
        else:
            try:
                values[name] = option.parse(text)
            except OptionError as error:
                problems.extend(error.problems)
    if values.get("remote.storage.enable"):
        problems.append("remote.storage.enable=true cannot be used: this broker has no remote storage")
    least, most = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        problems.append(f"min.compaction.lag.ms={least} is more than max.compaction.lag.ms={most}")
    if problems:
        raise OptionError(*problems)
    return values


def resolve(name: str, configs: Mapping[str, str], options: Options) -> Resolved:
    """One topic option, given the topic's own configs (checked when they were set) and the broker's options."""
    option = TOPIC_OPTIONS[name]
    own = configs.get(name)
    if own is not None:
        return Resolved(option, option.parse(own), Source.TOPIC, name)
    for synonym in option.synonyms:
        source = options.source(synonym.name)
        if source is not Source.DEFAULT:
            return Resolved(option, _scaled(options.get(synonym.name), synonym.factor), source, synonym.name)
    return Resolved(option, option.default, Source.DEFAULT, name)


def resolve_all(configs: Mapping[str, str], options: Options) -> list[Resolved]:
    return [resolve(name, configs, options) for name in TOPIC_OPTIONS]


def _scaled(value: Value, factor: int) -> Value:
    if factor == 1 or not isinstance(value, int) or value < 0:  # negative means "never" in every unit
        return value
    return min(value * factor, LONG_MAX)
