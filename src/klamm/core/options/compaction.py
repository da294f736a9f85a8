"""The broker's options of compaction, with Kafka's names, defaults and bounds. Those of a topic go by other names."""

from __future__ import annotations

from klamm.core.options.option import LONG_MAX, Kind, Option, Update

_ANY_TIME = Update.CLUSTER_WIDE
_BOOL, _INT, _LONG, _DOUBLE = Kind.BOOL, Kind.INT, Kind.LONG, Kind.DOUBLE
_DOUBLE_MAX = 1.7976931348623157e308

COMPACTION_OPTIONS = (
    Option("log.cleaner.enable", _BOOL, True, "Compact topics that ask for it."),
    Option(
        "log.cleaner.threads",
        _INT,
        1,
        "Logs that are compacted at a time, each by a process of its own.",
        at_least=0,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.backoff.ms",
        _LONG,
        15_000,
        "How often dirty logs are looked for.",
        at_least=0,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        128 << 20,
        "Memory for the keys of logs in compaction; each has 1 MiB at least.",
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "How much of that memory is used.",
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.io.buffer.size",
        _INT,
        512 << 10,
        "Memory for reading and writing in compaction.",
        at_least=0,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        _DOUBLE_MAX,
        "Bytes a second that compaction may read and write.",
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86_400_000,
        "How long compaction keeps a tombstone.",
        at_least=0,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "A record is not compacted before this age.",
        at_least=0,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "A record is compacted at this age at the latest.",
        at_least=1,
        update=_ANY_TIME,
    ),
    Option(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "Share of a log that must be new before it is compacted.",
        at_least=0,
        at_most=1,
        update=_ANY_TIME,
    ),
)
