from __future__ import annotations

import pytest

from klamm.core.options import TOPIC_OPTIONS, Options
from klamm.log.config import LogConfig
from klamm.metadata.image import EMPTY, TOPIC_RESOURCE
from klamm.metadata.records import ConfigRecord
from klamm.metadata.replay import difference, replay
from klamm.metadata.topic_config import MAX_KEPT, log_config, warn_of_idle_options
from klamm.records.compression import Codec, Compression


def with_configs(**configs):
    records = [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a", name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    return replay(EMPTY, records, offset=len(records) - 1, epoch=0)[0]


def test_without_any_setting_the_log_has_its_own_defaults():
    assert log_config(EMPTY, "a", Options.from_mapping()) == LogConfig()


def test_topics_with_the_same_configs_share_one_object():
    options = Options.from_mapping()
    assert log_config(EMPTY, "a", options) is log_config(EMPTY, "b", options)
    one, other = with_configs(retention_ms="5"), with_configs(retention_ms="5")
    assert log_config(one, "a", options) is log_config(other, "a", options)
    assert log_config(one, "a", options) is not log_config(one, "b", options)


def test_what_is_kept_for_sharing_has_a_bound():
    options = Options.from_mapping()
    for i in range(2 * MAX_KEPT):
        assert log_config(with_configs(retention_ms=str(i)), "a", options).retention_ms == i
    assert len(options.derived["log configs by topic configs"]) <= MAX_KEPT + 1


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("segment.bytes", "700", "segment_bytes", 700),
        ("segment.ms", "7", "segment_ms", 7),
        ("segment.jitter.ms", "7", "segment_jitter_ms", 7),
        ("segment.index.bytes", "70", "max_index_bytes", 70),
        ("index.interval.bytes", "7", "index_interval_bytes", 7),
        ("retention.ms", "7", "retention_ms", 7),
        ("delete.retention.ms", "7", "delete_retention_ms", 7),
        ("min.compaction.lag.ms", "7", "min_compaction_lag_ms", 7),
        ("max.compaction.lag.ms", "7", "max_compaction_lag_ms", 7),
        ("min.cleanable.dirty.ratio", "0.7", "min_cleanable_ratio", 0.7),
        ("retention.bytes", "7", "retention_bytes", 7),
        ("max.message.bytes", "7", "max_message_bytes", 7),
        ("flush.messages", "7", "flush_messages", 7),
        ("flush.ms", "7", "flush_ms", 7),
        ("message.timestamp.type", "LogAppendTime", "log_append_time", True),
        ("message.timestamp.before.max.ms", "7", "timestamp_before_max_ms", 7),
        ("message.timestamp.after.max.ms", "7", "timestamp_after_max_ms", 7),
        ("file.delete.delay.ms", "7", "file_delete_delay_ms", 7),
    ],
)
def test_each_option_is_the_same_field_whether_the_topic_sets_it_or_the_broker(name, text, field, value):
    of_topic = log_config(with_configs(**{name: text}), "a", Options.from_mapping())
    synonym = TOPIC_OPTIONS[name].synonyms[0].name
    of_broker = log_config(EMPTY, "a", Options.from_mapping({synonym: text}))
    assert of_topic == of_broker == LogConfig()._replace(**{field: value})


def test_the_topic_goes_before_the_broker():
    options = Options.from_mapping({"log.segment.bytes": "5000", "log.roll.hours": "1"})
    image = with_configs(segment_bytes="7000", message_timestamp_type="LogAppendTime")
    config = log_config(image, "a", options)
    assert (config.segment_bytes, config.segment_ms, config.log_append_time) == (7000, 3_600_000, True)
    assert log_config(image, "b", options).segment_bytes == 5000


def test_kafkas_own_option_for_small_segments_goes_first():
    image = with_configs(internal_segment_bytes="50", segment_bytes="7000")
    assert log_config(image, "a", Options.from_mapping()).segment_bytes == 50


def test_a_topic_that_does_not_delete_keeps_everything():
    image = with_configs(cleanup_policy="compact", retention_ms="5", retention_bytes="5")
    config = log_config(image, "a", Options.from_mapping())
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)


@pytest.mark.parametrize(
    ("policy", "compact"), [("compact", True), ("delete,compact", True), ("delete", False), (None, False)]
)
def test_a_topic_is_compacted_if_it_asks_for_it(policy, compact):
    configs = {"retention_ms": "5"} | ({"cleanup_policy": policy} if policy else {})
    assert log_config(with_configs(**configs), "a", Options.from_mapping()).compact is compact


def test_a_compacted_topic_rolls_by_the_time_that_its_records_must_be_compacted():
    options = Options.from_mapping({"log.roll.ms": "100", "log.cleaner.max.compaction.lag.ms": "20"})

    def segment_ms(**configs: str) -> int:
        return log_config(with_configs(**configs), "a", options).segment_ms

    assert segment_ms() == segment_ms(max_compaction_lag_ms="5") == 100
    assert segment_ms(cleanup_policy="compact") == 20
    assert segment_ms(cleanup_policy="compact", segment_ms="30") == 20
    assert segment_ms(cleanup_policy="compact,delete", max_compaction_lag_ms="5") == 5
    compacted = Options.from_mapping({"log.cleanup.policy": "compact", "log.cleaner.max.compaction.lag.ms": "20"})
    assert log_config(with_configs(), "a", compacted).segment_ms == 20
    assert log_config(with_configs(cleanup_policy="delete"), "a", compacted).segment_ms == 7 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("configs", "wanted"),
    [
        ({"compression_type": "producer", "compression_gzip_level": "5"}, None),
        ({"compression_type": "uncompressed"}, Compression(Codec.NONE)),
        ({"compression_type": "snappy"}, Compression(Codec.SNAPPY)),
        ({"compression_type": "gzip"}, Compression(Codec.GZIP)),
        ({"compression_type": "gzip", "compression_gzip_level": "5"}, Compression(Codec.GZIP, 5)),
        ({"compression_type": "lz4"}, Compression(Codec.LZ4)),
        ({"compression_type": "lz4", "compression_lz4_level": "12"}, Compression(Codec.LZ4, 12)),
        ({"compression_type": "lz4", "compression_lz4_level": "1"}, Compression(Codec.LZ4, 3)),
        ({"compression_type": "zstd"}, Compression(Codec.ZSTD, 3)),
        ({"compression_type": "zstd", "compression_zstd_level": "-7"}, Compression(Codec.ZSTD, -7)),
    ],
)
def test_a_topic_may_want_its_batches_compressed_in_its_own_way(configs, wanted):
    assert log_config(with_configs(**configs), "a", Options.from_mapping()).compression == wanted


def test_the_brokers_compression_is_for_topics_that_have_none():
    options = Options.from_mapping({"compression.type": "zstd", "compression.zstd.level": "9"})
    assert log_config(EMPTY, "a", options).compression == Compression(Codec.ZSTD, 9)
    assert log_config(with_configs(compression_type="producer"), "a", options).compression is None
    assert log_config(with_configs(compression_zstd_level="1"), "a", options).compression == Compression(Codec.ZSTD, 1)


def test_options_of_topics_without_effect_are_told_of_in_one_line(caplog):
    image = with_configs(preallocate="true", retention_ms="5", unclean_leader_election_enable="true")
    warn_of_idle_options(image, difference(EMPTY, image))
    warn_of_idle_options(with_configs(retention_ms="5"), difference(EMPTY, with_configs(retention_ms="5")))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "Set for topic a, but without effect in Klamm: preallocate, unclean.leader.election.enable"
