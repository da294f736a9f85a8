"""The broker's options of compaction, as the log wants them."""

from __future__ import annotations

from klamm.core.options import Options
from klamm.log.compaction.plan import Settings


def cleaner_settings(options: Options) -> Settings:
    return Settings(
        enabled=options.get_bool("log.cleaner.enable"),
        children=options.get_int("log.cleaner.threads"),
        backoff_ms=options.get_int("log.cleaner.backoff.ms"),
        map_bytes=options.get_int("log.cleaner.dedupe.buffer.size"),
        load_factor=options.get_float("log.cleaner.io.buffer.load.factor"),
        buffer_bytes=options.get_int("log.cleaner.io.buffer.size"),
        bytes_per_second=options.get_float("log.cleaner.io.max.bytes.per.second"),
    )
