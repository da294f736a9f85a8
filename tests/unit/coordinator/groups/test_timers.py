"""The time limits of a shard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.timers import _SLACK, TimerKey, Timers

KEYS = [TimerKey("classic", "session", "g", str(n)) for n in range(6)]
MOMENT = st.integers(0, 50)
STEP = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), MOMENT),
    st.tuples(st.just("cancel"), st.sampled_from(KEYS), MOMENT),
    st.tuples(st.just("pop"), st.sampled_from(KEYS), MOMENT),
)


@given(st.lists(STEP, max_size=60))
def test_timers_are_a_table_of_moments(steps: list[tuple[str, TimerKey, int]]) -> None:
    timers = Timers()
    table: dict[TimerKey, float] = {}
    for what, key, moment in steps:
        if what == "set":
            timers.set(key, moment)
            table[key] = moment
        elif what == "cancel":
            timers.cancel(key)
            table.pop(key, None)
        else:
            popped = timers.pop(moment)
            first = min(table.values(), default=None)
            if first is None or first > moment:
                assert popped is None
            else:
                assert popped is not None and table.pop(popped) == first
        assert set(timers) == set(table) and len(timers) == len(table)
        assert timers.next_due == min(table.values(), default=None)


def test_a_timer_that_is_put_off_again_and_again_takes_no_room() -> None:
    timers = Timers()
    for n in range(10_000):
        timers.set(KEYS[0], n)
    assert len(timers._heap) == 1
    for n in range(10_000):
        timers.cancel(KEYS[0])
        timers.set(KEYS[0], -n)
    assert len(timers._heap) <= 2 + _SLACK
