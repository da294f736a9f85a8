from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_strategies import histories

from klamm.metadata.records import RECORD_TYPES, TopicRecord, UnreadableRecord, decode_record, encode_record


def test_the_numbers_of_the_types_stay_what_they_are():
    assert {number: kind.__name__ for number, kind in RECORD_TYPES.items()} == {
        1: "ControllerRecord",
        2: "BrokerRecord",
        3: "UnregisterBrokerRecord",
        4: "TopicRecord",
        5: "RemoveTopicRecord",
        6: "PartitionRecord",
        7: "PartitionChangeRecord",
        8: "ConfigRecord",
        9: "FeatureRecord",
        10: "ProducerIdsRecord",
        11: "SnapshotRecord",
        12: "AclRecord",
        13: "ClientQuotaRecord",
    }


def test_the_bytes_of_a_record_stay_what_they_are():
    record = TopicRecord(name="orders", topic_id=bytes(range(16)))
    assert encode_record(record) == b"\x04\x00" + b"\x07orders" + bytes(range(16)) + b"\x00"


@settings(deadline=None, max_examples=60)
@given(histories())
def test_every_record_is_read_back_as_it_was_written(entries):
    for record in [record for records in entries for record in records]:
        assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("data", [b"\x7f\x00", b"\x04\x09", b"\x80\x80\x01\x00"])
def test_a_type_or_version_from_the_future_is_refused_as_such(data):
    with pytest.raises(UnreadableRecord, match="newer version"):
        decode_record(data)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_refused(data):
    try:
        decode_record(data)
    except UnreadableRecord:
        pass
