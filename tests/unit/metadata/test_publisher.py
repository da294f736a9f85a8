from __future__ import annotations

import pytest

from klamm.metadata.image import EMPTY
from klamm.metadata.publisher import Publisher
from klamm.metadata.records import FeatureRecord, TopicRecord
from klamm.metadata.replay import replay
from klamm.metadata.store import Entry

FIRST = Entry(0, 1, (TopicRecord(name="a", topic_id=bytes(range(16))),))
SECOND = Entry(1, 1, (FeatureRecord(name="f", level=1),))


def listen(publisher):
    seen = []
    publisher.subscribe(lambda image, delta: seen.append((image, delta)))
    return seen


def after(image, entry):
    return replay(image, entry.records, offset=entry.last_offset, epoch=entry.epoch)


def test_a_subscriber_first_gets_all_there_is_and_then_every_change():
    publisher = Publisher()
    publisher.replay(FIRST)
    seen = listen(publisher)
    publisher.replay(SECOND)
    assert [delta.created for _, delta in seen] == [(publisher.image.topics["a"],), ()]
    assert [image.offset for image, _ in seen] == [0, 1]
    assert seen[-1][0] is publisher.image


def test_subscribers_are_called_in_their_order_with_the_image_already_in_place():
    publisher = Publisher()
    calls = []
    publisher.subscribe(lambda image, delta: calls.append(("one", publisher.image.offset)))
    publisher.subscribe(lambda image, delta: calls.append(("two", publisher.image.offset)))
    publisher.replay(FIRST)
    assert calls[2:] == [("one", 0), ("two", 0)]


def test_an_entry_out_of_order_is_a_broken_invariant():
    with pytest.raises(AssertionError):
        Publisher().replay(SECOND)


def test_an_expected_image_is_taken_for_its_own_entry():
    publisher = Publisher()
    image, delta = after(EMPTY, FIRST)
    publisher.expect(FIRST, publisher.image, image, delta)
    publisher.replay(FIRST)
    assert publisher.image is image


def test_an_expected_image_is_dropped_when_another_entry_comes():
    publisher = Publisher()
    wrong = Entry(0, 1, (FeatureRecord(name="wrong", level=1),))
    publisher.expect(wrong, publisher.image, *after(EMPTY, wrong))
    publisher.replay(FIRST)
    publisher.replay(SECOND)
    assert publisher.image == after(after(EMPTY, FIRST)[0], SECOND)[0]


def test_a_reset_tells_what_changed_in_between():
    publisher = Publisher()
    publisher.replay(FIRST)
    seen = listen(publisher)
    old = publisher.image.topics["a"]
    publisher.reset(after(EMPTY, Entry(0, 2, SECOND.records))[0])
    assert seen[-1][1].removed == (old,)
    assert seen[-1][1].features
