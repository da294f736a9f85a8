"""A topic's options, the broker options behind them, and which of the two decides.

The order is Kafka's: the topic's own value, then the broker's (dynamic or from its file), then the default. A broker
option in another unit (log.retention.hours) counts when none in a finer unit is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm.core.options.brokers import BOOL, BROKER_OPTIONS, INT, LEAST_SEGMENT_BYTES, LIST, LONG
from klamm.core.options.option import LONG_MAX, Kind, Option, OptionError, Synonym, Value
from klamm.core.options.options import Options, Source, unknown_name

MAX_PROBLEMS = 10
"""Problems that one refusal explains: wording one takes longer than checking a hundred good values."""

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


def _times(name: str, *units: tuple[str, int]) -> tuple[Synonym, ...]:
    return (Synonym(f"{name}.ms"), *(Synonym(f"{name}.{unit}", factor) for unit, factor in units))


def _as(topic_name: str, broker_name: str) -> Option:
    """A topic option that is the broker option of another name: same type, default, bounds and doc."""
    broker = BROKER_OPTIONS[broker_name]
    return Option(
        topic_name,
        broker.kind,
        broker.default,
        broker.doc,
        at_least=broker.at_least,
        at_most=broker.at_most,
        or_else=broker.or_else,
        choices=broker.choices,
        synonyms=(Synonym(broker_name),),
    )


def _unused(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    broker_name: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Option:
    """A topic option that is taken and changes nothing (yet)."""
    synonyms = (Synonym(broker_name),) if broker_name else ()
    return Option(name, kind, default, doc, at_least=at_least, at_most=at_most, honoured=False, synonyms=synonyms)


def _throttled(value: Value) -> str | None:
    replicas = value if isinstance(value, tuple) else ()
    if replicas == ("*",):
        return None
    for replica in replicas:
        partition, colon, broker = replica.partition(":")
        if not (colon and partition.isdecimal() and broker.isdecimal()):
            return "is neither * nor a list of PARTITION:BROKER"
    return None


def _throttle(name: str, doc: str) -> Option:
    return Option(name, LIST, (), doc, check=_throttled, honoured=False)


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
        "Random part, up to this much, taken off segment.ms: logs that began together do not roll together.",
        at_least=0,
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
    _as("retention.bytes", "log.retention.bytes"),
    _as("segment.bytes", "log.segment.bytes"),
    Option(
        "internal.segment.bytes",
        INT,
        None,
        "Size of a segment file, before segment.bytes; Kafka has it for tests that want small ones.",
        at_least=LEAST_SEGMENT_BYTES,
        internal=True,
    ),
    _as("segment.index.bytes", "log.index.size.max.bytes"),
    _as("index.interval.bytes", "log.index.interval.bytes"),
    _as("flush.messages", "log.flush.interval.messages"),
    _as("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _as("max.message.bytes", "message.max.bytes"),
    _as("cleanup.policy", "log.cleanup.policy"),
    _as("message.timestamp.type", "log.message.timestamp.type"),
    _as("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _as("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _as("min.insync.replicas", "min.insync.replicas"),
    _as("compression.type", "compression.type"),
    _as("compression.gzip.level", "compression.gzip.level"),
    _as("compression.lz4.level", "compression.lz4.level"),
    _as("compression.zstd.level", "compression.zstd.level"),
    _unused("preallocate", BOOL, False, "Allocate a segment's file at once.", "log.preallocate"),
    _unused(
        "unclean.leader.election.enable",
        BOOL,
        False,
        "Let a replica lead that may lack committed records.",
        "unclean.leader.election.enable",
    ),
    _as("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _as("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _as("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _as("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _unused("remote.storage.enable", BOOL, False, "Move old segments to an object store."),
    _unused("remote.log.copy.disable", BOOL, False, "Stop moving segments to the object store."),
    _unused("remote.log.delete.on.disable", BOOL, False, "Delete what was moved when moving ends."),
    _unused(
        "local.retention.ms",
        LONG,
        -2,
        "Age kept here when older data is moved; -2: retention.ms.",
        "log.local.retention.ms",
        -2,
    ),
    _unused(
        "local.retention.bytes",
        LONG,
        -2,
        "Size kept here when older data is moved; -2: retention.bytes.",
        "log.local.retention.bytes",
        -2,
    ),
    _throttle("leader.replication.throttled.replicas", "Replicas whose outgoing copies are slowed."),
    _throttle("follower.replication.throttled.replicas", "Replicas whose incoming copies are slowed."),
)

TOPIC_OPTIONS = {option.name: option for option in sorted(_TABLE, key=lambda option: option.name)}


class Resolved(NamedTuple):
    """The value in force for a topic option, where it comes from, and the name it has there."""

    option: Option
    value: Value
    source: Source
    set_as: str


def check_topic_configs(configs: Mapping[str, str | None], options: Options | None = None) -> dict[str, Value]:
    """The parsed values of a topic's own configs; OptionError with the problems if they cannot be accepted, together
    with what the broker's options say of the rest."""
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
    if "min.compaction.lag.ms" in values or "max.compaction.lag.ms" in values:
        least = _in_force("min.compaction.lag.ms", values, options)
        most = _in_force("max.compaction.lag.ms", values, options)
        if isinstance(least, int) and isinstance(most, int) and least > most:
            problems.append(f"min.compaction.lag.ms={least} is more than max.compaction.lag.ms={most}")
    if problems:
        raise OptionError(*problems)
    return values


def _in_force(name: str, values: Mapping[str, Value], options: Options | None) -> Value:
    if name in values:
        return values[name]
    return TOPIC_OPTIONS[name].default if options is None else resolve(name, {}, options).value


def resolve(name: str, configs: Mapping[str, str], options: Options) -> Resolved:
    """One topic option, given the topic's own configs (checked when they were set) and the broker's options."""
    option = TOPIC_OPTIONS[name]
    own = configs.get(name)
    if own is not None:
        return Resolved(option, option.parse(own), Source.TOPIC, name)
    for synonym in option.synonyms:
        source = options.source(synonym.name)
        if source is not Source.DEFAULT:
            return Resolved(option, scaled(options.get(synonym.name), synonym.factor), source, synonym.name)
    return Resolved(option, option.default, Source.DEFAULT, name)


def topic_option_names(configs: Mapping[str, str]) -> list[str]:
    """What a topic shows: all options, internal ones where they are set."""
    return [name for name, option in TOPIC_OPTIONS.items() if not option.internal or name in configs]


def resolve_all(configs: Mapping[str, str], options: Options) -> list[Resolved]:
    return [resolve(name, configs, options) for name in topic_option_names(configs)]


def scaled(value: Value, factor: int) -> Value:
    """A broker option's value in the unit of the topic option."""
    if factor == 1 or not isinstance(value, int) or value < 0:  # negative means "never" in every unit
        return value
    return min(value * factor, LONG_MAX)
