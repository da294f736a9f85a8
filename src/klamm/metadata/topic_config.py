"""A topic's options in force, as the log wants them: the topic's own configs of the image over the broker's options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import cast

from klamm.core.options import Options, resolve
from klamm.log.config import LogConfig
from klamm.metadata.image import TOPIC_RESOURCE, Image
from klamm.metadata.replay import Delta

_DEFAULT = "log config without topic configs"

_log = logging.getLogger(__name__)


def log_config(image: Image, topic: str, options: Options) -> LogConfig:
    """Topics without configs of their own share one object: of ten thousand, nearly all are such."""
    configs = image.topic_configs(topic)
    if configs:
        return _log_config(configs, options)
    shared = options.derived.get(_DEFAULT)
    if shared is None:
        shared = options.derived[_DEFAULT] = _log_config({}, options)
    return cast(LogConfig, shared)


def _log_config(configs: Mapping[str, str], options: Options) -> LogConfig:
    def number(name: str) -> int:
        return cast(int, resolve(name, configs, options).value)

    # Without "delete" among the policies nothing is ever old enough to go; compacting it is another matter.
    policies = cast("tuple[str, ...]", resolve("cleanup.policy", configs, options).value)
    deletes = "delete" in policies
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        retention_ms=number("retention.ms") if deletes else -1,
        retention_bytes=number("retention.bytes") if deletes else -1,
        index_interval_bytes=number("index.interval.bytes"),
        max_index_bytes=number("segment.index.bytes"),
        max_message_bytes=number("max.message.bytes"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        log_append_time=resolve("message.timestamp.type", configs, options).value == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        producer_id_expiration_ms=options.get_int("producer.id.expiration.ms"),
    )


def warn_of_compaction(image: Image, delta: Delta) -> None:
    """A subscriber: one line for each topic that is to be compacted, when it is loaded, created or changed. Whoever
    asked for it would not notice otherwise that it does not happen, until the disk is full."""
    for resource in delta.configs:
        policy = image.configs.get(resource, {}).get("cleanup.policy", "") if resource.type == TOPIC_RESOURCE else ""
        if "compact" in policy:
            kept = "records are only deleted by retention" if "delete" in policy else "it is kept whole"
            _log.warning(
                "Topic %s has cleanup.policy=%s: this version does not compact; %s.", resource.name, policy, kept
            )
