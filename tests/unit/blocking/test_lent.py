"""Records between the consumer and the application: nobody has had them yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.blocking.lent import Lent
from klamm.client.membership import Offset
from klamm.core.ids import TopicPartition
from klamm.records.consuming import ConsumerRecord

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def records(place: TopicPartition, *offsets: int, epoch: int = 3) -> list[ConsumerRecord]:
    return [ConsumerRecord(*place, offset, 0, 0, None, b"", (), epoch) for offset in offsets]


def test_a_position_is_that_of_the_next_record_with_the_epoch_of_the_one_before() -> None:
    lent = Lent()
    lent.fill({A: records(A, 5, 7, 9), B: records(B, 1)})
    assert lent.positions() == {A: Offset(5), B: Offset(1)}
    assert lent.one() == records(A, 5)[0]
    assert lent.positions() == {A: Offset(7, 3), B: Offset(1)}
    assert lent.many(2) == {A: records(A, 7, 9)}
    assert lent.positions() == {B: Offset(1)}


def test_what_is_dropped_is_not_given_out() -> None:
    lent = Lent()
    lent.fill({A: records(A, 0, 1), B: records(B, 4, 5)})
    lent.one()
    assert lent.drop([("t", 0)]) == {A: Offset(1, 3)}
    assert lent.one() == records(B, 4)[0]
    assert lent.drop() == {B: Offset(5, 3)}
    assert not lent and lent.one() is None and lent.some(1) is None and lent.many(9) == {}


@given(
    st.lists(st.integers(1, 5), max_size=4),
    st.lists(st.one_of(st.none(), st.tuples(st.booleans(), st.integers(1, 4))), max_size=20),
)
def test_each_record_comes_once_and_in_order_however_it_is_asked_for(
    sizes: list[int], asked: list[tuple[bool, int] | None]
) -> None:
    lent = Lent()
    everything = {TopicPartition("t", n): records(TopicPartition("t", n), *range(size)) for n, size in enumerate(sizes)}
    lent.fill(everything)
    got: list[ConsumerRecord] = []
    for one in asked:
        if one is None:
            record = lent.one()
            got += [] if record is None else [record]
        elif one[0]:
            some = lent.some(one[1])
            got += [] if some is None else some[1]
        else:
            many = lent.many(one[1])
            assert sum(map(len, many.values())) <= one[1]
            got += [record for part in many.values() for record in part]
    missing = [record for part in everything.values() for record in part][len(got) :]
    assert got == [record for part in everything.values() for record in part][: len(got)]
    first = {}
    for record in missing:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    assert {place: at.offset for place, at in lent.positions().items()} == first
