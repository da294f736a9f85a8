from __future__ import annotations

import pytest

from klamm.testing.sim.broker.model import Entry, Model, Tag, TopicModel, TopicState, Violation


def partition(**configs):
    return TopicModel("t", 1, configs).partitions[0]


def entry(number, producer="p", session=1, idempotent=True):
    return Entry(Tag(producer, session, number, idempotent).encode(), b"value", 0)


def sent(model, *entries, idempotent=True):
    for one in entries:
        model.sending(one, idempotent=idempotent)
    return list(entries)


def test_what_was_acknowledged_must_be_there_after_a_kill():
    model = partition()
    entries = sent(model, entry(0), entry(1))
    model.acknowledged(0, entries)
    model.check_log(0, entries, power_lost=False)
    with pytest.raises(Violation, match="ends at 1"):
        model.check_log(0, entries[:1], power_lost=False)


def test_a_power_loss_may_take_what_was_not_flushed():
    model = partition()
    entries = sent(model, entry(0), entry(1))
    model.acknowledged(0, entries)
    model.check_log(0, entries[:1], power_lost=True)
    assert model.lost_since(0, 1)
    assert not model.lost_since(0, 0)
    with pytest.raises(Violation, match="flushed"):
        model.check_log(0, [], power_lost=True)


def test_a_power_loss_takes_nothing_that_was_flushed():
    model = partition(**{"flush.messages": "1"})
    entries = sent(model, entry(0), entry(1))
    model.acknowledged(0, entries[:1])
    with pytest.raises(Violation, match="flushed"):
        model.check_log(0, [], power_lost=True)


def test_a_clean_stop_makes_everything_durable():
    model = partition()
    model.acknowledged(0, sent(model, entry(0)))
    model.everything_is_durable()
    with pytest.raises(Violation, match="flushed"):
        model.check_log(0, [], power_lost=True)


def test_an_offset_never_changes_its_record():
    model = partition()
    first, second = sent(model, entry(0), entry(1))
    model.learn(0, first)
    with pytest.raises(Violation, match="is now"):
        model.learn(0, second)


def test_records_that_nobody_sent_and_records_that_changed_are_found():
    model = partition()
    with pytest.raises(Violation, match="nobody"):
        model.learn(0, entry(0))
    sent(model, entry(1))
    with pytest.raises(Violation, match="as it was sent"):
        model.learn(1, entry(1)._replace(value=b"other"))


def test_an_idempotent_record_is_there_once_and_in_order():
    model = partition()
    first, second = sent(model, entry(0), entry(1))
    sent(model, first)
    with pytest.raises(Violation, match="too often"):
        model.check_log(0, [first, first], power_lost=False)
    model = partition()
    sent(model, first, second)
    with pytest.raises(Violation, match="follows"):
        model.check_log(0, [second], power_lost=False)


def test_a_plain_record_is_there_at_most_as_often_as_it_was_sent():
    model = partition()
    one = entry(0, idempotent=False)
    sent(model, one, one, idempotent=False)
    model.check_log(0, [one, one], power_lost=False)
    with pytest.raises(Violation, match="too often"):
        model.check_log(0, [one, one, one], power_lost=False)


def test_the_high_watermark_does_not_go_back():
    model = partition()
    model.saw_high_watermark(1)
    with pytest.raises(Violation, match="back"):
        model.check_log(0, [], power_lost=False)
    model.check_log(0, [], power_lost=True)


def test_topics_are_there_when_they_should_be_and_gone_when_they_should():
    model = Model()
    topic = TopicModel("t", 2, {})
    model.topics.append(topic)
    model.check_topics({})
    model.check_topics({"t": (b"id", 2)})
    topic.id, topic.state = b"id", TopicState.EXISTS
    model.check_topics({"t": (b"id", 2)})
    for listed in ({}, {"t": (b"other", 2)}, {"t": (b"id", 3)}, {"t": (b"id", 2), "u": (b"u", 1)}):
        with pytest.raises(Violation):
            model.check_topics(listed)
    topic.state = TopicState.DELETED
    model.check_topics({})
    with pytest.raises(Violation):
        model.check_topics({"t": (b"id", 2)})


def test_a_log_starts_later_only_where_old_segments_are_deleted():
    entries = [entry(0), entry(1), entry(2)]
    keeps, shrinks = partition(), partition(**{"retention.bytes": "1"})
    for model in (keeps, shrinks):
        sent(model, *entries)
    with pytest.raises(Violation, match="starts at 1"):
        keeps.check_log(1, entries[1:], power_lost=False)
    shrinks.check_log(1, entries[1:], power_lost=False)
    with pytest.raises(Violation, match="back"):
        shrinks.check_log(0, entries, power_lost=False)
    shrinks.check_log(0, entries, power_lost=True)


def test_records_that_were_deleted_do_not_come_back_even_after_a_power_loss():
    model = partition()
    model.topic.trimmed = True
    entries = sent(model, entry(0), entry(1), entry(2))
    model.acknowledged(0, entries)
    model.deleted_below(2)
    model.check_log(2, entries[2:], power_lost=True)
    for start, left in ((1, entries[1:]), (0, entries)):
        with pytest.raises(Violation, match="back"):
            model.check_log(start, left, power_lost=True)
    with pytest.raises(Violation, match="flushed"):
        model.check_log(1, [], power_lost=True)


def test_producer_ids_are_given_out_once_and_the_cluster_keeps_its_id():
    model = Model()
    model.got_producer_id(0)
    model.saw_cluster_id("c")
    with pytest.raises(Violation, match="twice"):
        model.got_producer_id(0)
    with pytest.raises(Violation, match="calls itself"):
        model.saw_cluster_id("d")
