"""A topic's options in force, as the log wants them: the topic's own configs of the image over the broker's options."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from klamm.core.options import TOPIC_OPTIONS, Options, resolve
from klamm.log.config import LogConfig
from klamm.metadata.image import TOPIC_RESOURCE, Image
from klamm.metadata.replay import Delta
from klamm.records.compression import Codec, Compression

MAX_KEPT = 1000
"""Different sets of topic configs of which the outcome is kept."""

_KEPT = "log configs by topic configs"

_log = logging.getLogger(__name__)

_NAMES_SHOWN = 5

_FIELDS: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "segment.bytes": ("segment_bytes", None),
    "segment.ms": ("segment_ms", None),
    "segment.jitter.ms": ("segment_jitter_ms", None),
    "index.interval.bytes": ("index_interval_bytes", None),
    "segment.index.bytes": ("max_index_bytes", None),
    "max.message.bytes": ("max_message_bytes", None),
    "flush.messages": ("flush_messages", None),
    "flush.ms": ("flush_ms", None),
    "message.timestamp.type": ("log_append_time", lambda value: value == "LogAppendTime"),
    "message.timestamp.before.max.ms": ("timestamp_before_max_ms", None),
    "message.timestamp.after.max.ms": ("timestamp_after_max_ms", None),
    "file.delete.delay.ms": ("file_delete_delay_ms", None),
    "delete.retention.ms": ("delete_retention_ms", None),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", None),
    "max.compaction.lag.ms": ("max_compaction_lag_ms", None),
    "min.cleanable.dirty.ratio": ("min_cleanable_ratio", None),
}
"""Topic options that are one field of the log's, and how the value is turned. The others hang together."""

_SMALL_SEGMENTS = "internal.segment.bytes"  # before segment.bytes
_CLEANUP = ("cleanup.policy", "retention.ms", "retention.bytes")
_COMPRESSION = ("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level")

_LZ4_FAST = 9  # Java's default level of lz4 is its fast compressor; all others choose the one that takes its time
_LZ4_LEAST = 3  # below it, the library at hand knows the fast one only


def log_config(image: Image, topic: str, options: Options) -> LogConfig:
    """Topics with the same configs share one object: most have none, and the others come in a few kinds. So a change
    of the broker's options reaches ten thousand topics in little time."""
    kept = cast("dict[tuple[tuple[str, str], ...], LogConfig]", options.derived.setdefault(_KEPT, {}))
    configs = image.topic_configs(topic)
    key = tuple(configs.items())
    config = kept.get(key)
    if config is None:
        shared = kept.get(()) or _from_broker(options)
        if len(kept) >= MAX_KEPT:
            kept.clear()
        kept[()] = shared
        config = kept[key] = _with_configs(shared, configs, options) if configs else shared
    return config


def _from_broker(options: Options) -> LogConfig:
    fields: dict[str, Any] = {
        field: _turned(resolve(name, {}, options).value, turn) for name, (field, turn) in _FIELDS.items()
    }
    fields["verify_transactions"] = options.get_bool("transaction.partition.verification.enable")
    fields["producer_id_expiration_ms"] = options.get_int("producer.id.expiration.ms")
    fields.update(_cleanup({}, options))
    fields["compression"] = _compression({}, options)
    return _rolling_in_time(LogConfig(**fields), fields["segment_ms"])


def _with_configs(shared: LogConfig, configs: Mapping[str, str], options: Options) -> LogConfig:
    fields: dict[str, Any] = {}
    for name, text in configs.items():
        known = _FIELDS.get(name)
        if known is not None:
            fields[known[0]] = _turned(TOPIC_OPTIONS[name].parse(text), known[1])
    if _SMALL_SEGMENTS in configs:
        fields["segment_bytes"] = TOPIC_OPTIONS[_SMALL_SEGMENTS].parse(configs[_SMALL_SEGMENTS])
    if any(name in configs for name in _CLEANUP):
        fields.update(_cleanup(configs, options))
    if any(name in configs for name in _COMPRESSION):
        fields["compression"] = _compression(configs, options)
    segment_ms = fields.get("segment_ms", cast(int, resolve("segment.ms", configs, options).value))
    return _rolling_in_time(shared._replace(**fields), segment_ms)


def _rolling_in_time(config: LogConfig, segment_ms: int) -> LogConfig:
    """The active segment is never compacted, so it has to end by the time that its first record must be."""
    if config.compact:
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    return config._replace(segment_ms=segment_ms)


def _turned(value: Any, turn: Callable[[Any], Any] | None) -> Any:
    return value if turn is None else turn(value)


def _cleanup(configs: Mapping[str, str], options: Options) -> dict[str, int]:
    """Without "delete" among the policies nothing is ever old enough to go."""
    policy, age, size = (resolve(name, configs, options).value for name in _CLEANUP)
    policies = cast("tuple[str, ...]", policy)
    compact = "compact" in policies
    if "delete" not in policies:
        return {"retention_ms": -1, "retention_bytes": -1, "compact": compact}
    return {"retention_ms": cast(int, age), "retention_bytes": cast(int, size), "compact": compact}


def _compression(configs: Mapping[str, str], options: Options) -> Compression | None:
    kind, gzip, lz4, zstd = (cast(Any, resolve(name, configs, options).value) for name in _COMPRESSION)
    if kind == "gzip":
        return Compression(Codec.GZIP, gzip if gzip >= 0 else None)
    if kind == "lz4":
        return Compression(Codec.LZ4, max(lz4, _LZ4_LEAST) if lz4 != _LZ4_FAST else None)
    if kind == "zstd":
        return Compression(Codec.ZSTD, zstd)
    return {"uncompressed": Compression(Codec.NONE), "snappy": Compression(Codec.SNAPPY)}.get(kind)


def warn_of_idle_options(image: Image, delta: Delta) -> None:
    """A subscriber: one line in all for the topics that have options set which change nothing here."""
    topics: list[str] = []
    idle: dict[str, None] = {}
    for resource in delta.configs:
        configs = image.configs.get(resource, {}) if resource.type == TOPIC_RESOURCE else {}
        names = [name for name in configs if name not in TOPIC_OPTIONS or not TOPIC_OPTIONS[name].honoured]
        if names:
            topics.append(resource.name)
            idle.update(dict.fromkeys(names))
    if topics:
        shown = ", ".join(topics[:_NAMES_SHOWN]) + ", ..." * (len(topics) > _NAMES_SHOWN)
        _log.warning("Set for topic %s, but without effect in Klamm: %s", shown, ", ".join(idle))
