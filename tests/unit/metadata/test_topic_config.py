from __future__ import annotations

import pytest

from klamm.core.options import Options
from klamm.log.config import LogConfig
from klamm.metadata.image import EMPTY, TOPIC_RESOURCE
from klamm.metadata.records import ConfigRecord
from klamm.metadata.replay import difference, replay
from klamm.metadata.topic_config import log_config, warn_of_compaction


def with_configs(**configs):
    records = [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="a", name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    return replay(EMPTY, records, offset=len(records) - 1, epoch=0)[0]


def test_without_any_setting_the_log_has_its_own_defaults():
    assert log_config(EMPTY, "a", Options.from_mapping()) == LogConfig()


def test_topics_without_configs_share_one_object():
    options = Options.from_mapping()
    assert log_config(EMPTY, "a", options) is log_config(EMPTY, "b", options)


def test_the_topic_goes_before_the_broker():
    options = Options.from_mapping({"log.segment.bytes": "5000", "log.roll.hours": "1"})
    image = with_configs(segment_bytes="7000", message_timestamp_type="LogAppendTime")
    config = log_config(image, "a", options)
    assert (config.segment_bytes, config.segment_ms, config.log_append_time) == (7000, 3_600_000, True)
    assert log_config(image, "b", options).segment_bytes == 5000


def test_a_topic_that_does_not_delete_keeps_everything():
    image = with_configs(cleanup_policy="compact", retention_ms="5", retention_bytes="5")
    config = log_config(image, "a", Options.from_mapping())
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)


@pytest.mark.parametrize(
    ("policy", "words"),
    [("compact", "kept whole"), ("delete,compact", "retention"), ("delete", None), (None, None)],
)
def test_a_topic_that_asks_for_compaction_is_told_of_once(caplog, policy, words):
    configs = {"retention_ms": "5"} | ({"cleanup_policy": policy} if policy else {})
    image = with_configs(**configs)
    warn_of_compaction(image, difference(EMPTY, image))
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == (words is not None)
    assert all("Topic a has" in line and words in line for line in warnings)


def test_the_end_of_such_a_topic_is_not_told_of(caplog):
    image = with_configs(cleanup_policy="compact")
    warn_of_compaction(EMPTY, difference(image, EMPTY))
    assert not caplog.records
