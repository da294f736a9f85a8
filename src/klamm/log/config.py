"""The settings of one log: Kafka's topic options, in the units the log computes with. A change is a new one."""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.records.compression import Compression

UNLIMITED: Final = (1 << 63) - 1

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class LogConfig(NamedTuple):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    retention_ms: int = 7 * _DAY_MS  # -1: for ever
    retention_bytes: int = -1  # -1: any size
    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 << 20
    max_message_bytes: int = 1_048_588
    flush_messages: int = UNLIMITED
    flush_ms: int = UNLIMITED
    log_append_time: bool = False
    timestamp_before_max_ms: int = UNLIMITED
    timestamp_after_max_ms: int = _HOUR_MS
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = _DAY_MS
    compression: Compression | None = None  # what batches are stored as; None: as their producers send them
    segment_jitter_ms: int = 0
    verify_transactions: bool = True  # whether a first batch needs the word of its transaction's coordinator
    compact: bool = False  # whether "compact" is among its cleanup policies
    delete_retention_ms: int = _DAY_MS  # how long compaction keeps a tombstone
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNLIMITED
    min_cleanable_ratio: float = 0.5
