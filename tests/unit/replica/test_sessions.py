"""Fetch sessions against a naive model, and the rules of KIP-227 one by one."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.replica.fetch import Fetched, Wanted
from klamm.replica.sessions import EVICTION_MS, FINAL_EPOCH, MAX_EPOCH, NO_SESSION, FetchSessions, Turn, next_epoch


def make(slots: int = 10, max_partitions: int = 10_000, seed: int = 1) -> FetchSessions:
    rng = random.Random(seed)
    return FetchSessions(lambda: rng.randrange(1, 2**31), slots, max_partitions)


def want(topic: str = "t", index: int = 0, offset: int = 0) -> Wanted:
    return Wanted(topic, ZERO_UUID, index, offset, 1000)


def result(wanted: Wanted, *, data: bool = False, error: ErrorCode = ErrorCode.NONE, hw: int = 5) -> Fetched:
    records = FileRange(None, 0, 10) if data else None  # type: ignore[arg-type]
    return Fetched(wanted, None, error, -1 if error else hw, -1, -1 if error else 0, records)


def begin(
    sessions: FetchSessions,
    session_id: int = NO_SESSION,
    epoch: int = 0,
    wanted: tuple[Wanted, ...] | list[Wanted] = (),
    forgotten: tuple[tuple[str | bytes, int], ...] = (),
    *,
    by_id: bool = False,
    privileged: bool = False,
    now_ms: int = 0,
) -> Turn | ErrorCode:
    return sessions.begin(session_id, epoch, wanted, forgotten, by_id=by_id, privileged=privileged, now_ms=now_ms)


def turn_of(begun: Turn | ErrorCode) -> Turn:
    assert isinstance(begun, Turn)
    return begun


def open_session(sessions: FetchSessions, *wanted: Wanted, now_ms: int = 0, privileged: bool = False) -> int:
    turn = turn_of(begin(sessions, wanted=wanted, now_ms=now_ms, privileged=privileged))
    error, session_id, _ = turn.answer([result(w) for w in turn.wanted], now_ms)
    assert error == ErrorCode.NONE
    return session_id


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(MAX_EPOCH) == 1


def test_a_full_fetch_opens_a_session_and_answers_everything() -> None:
    sessions = make()
    a, b = want("a"), want("b")
    turn = turn_of(begin(sessions, wanted=[a, b]))
    results = [result(a), result(b)]
    error, session_id, sent = turn.answer(results, 0)
    assert (error, list(sent)) == (ErrorCode.NONE, results)
    assert session_id != NO_SESSION
    assert len(sessions) == 1 and sessions.partition_count == 2


def test_an_incremental_answer_has_only_what_changed() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"), want("b"))
    turn = turn_of(begin(sessions, session_id, 1))
    a, b = turn.wanted
    _, answered_id, sent = turn.answer([result(a), result(b, data=True)], 0)
    assert answered_id == session_id
    assert [r.wanted for r in sent] == [b]


def test_a_moved_high_watermark_is_news_once() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"))
    for epoch, hw, news in ((1, 5, 0), (2, 6, 1), (3, 6, 0)):
        turn = turn_of(begin(sessions, session_id, epoch))
        assert len(turn.answer([result(turn.wanted[0], hw=hw)], 0)[2]) == news


def test_an_error_is_repeated_until_it_is_gone_and_its_end_is_news() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"))
    for epoch, error, news in (
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1),
        (3, ErrorCode.NONE, 1),
        (4, ErrorCode.NONE, 0),
    ):
        turn = turn_of(begin(sessions, session_id, epoch))
        assert len(turn.answer([result(turn.wanted[0], error=error)], 0)[2]) == news


def test_partitions_with_data_go_to_the_end_of_the_order() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"), want("b"), want("c"))
    turn = turn_of(begin(sessions, session_id, 1))
    turn.answer([result(w, data=w.topic == "a") for w in turn.wanted], 0)
    assert [w.topic for w in turn_of(begin(sessions, session_id, 2)).wanted] == ["b", "c", "a"]


def test_an_unknown_session_a_wrong_epoch_and_mixed_topic_ids_are_errors() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"))
    assert begin(sessions, session_id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, session_id, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(sessions, session_id, 1, by_id=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_answer_that_was_overtaken_is_an_error() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"))
    held = turn_of(begin(sessions, session_id, 1))
    turn_of(begin(sessions, session_id, 2))
    assert held.answer([result(held.wanted[0])], 0)[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_fetch_that_names_a_session_ends_it() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"))
    turn = turn_of(begin(sessions, session_id, FINAL_EPOCH, [want("b")]))
    assert turn.answer([result(turn.wanted[0])], 0)[1] == NO_SESSION
    assert len(sessions) == 0 and sessions.partition_count == 0
    assert begin(sessions, session_id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a", 3))
    turn = turn_of(begin(sessions, session_id, 1, forgotten=(("a", 3),)))
    assert turn.answer([], 0) == (ErrorCode.NONE, NO_SESSION, [])
    assert len(sessions) == 0


def test_an_update_keeps_the_place_and_what_was_sent() -> None:
    sessions = make()
    session_id = open_session(sessions, want("a"), want("b"))
    turn = turn_of(begin(sessions, session_id, 1, [want("a", offset=7)]))
    assert [(w.topic, w.offset) for w in turn.wanted] == [("a", 7), ("b", 0)]
    assert turn.answer([result(w) for w in turn.wanted], 0)[2] == []


def test_a_full_cache_gives_no_session_while_all_are_young_and_used() -> None:
    sessions = make(slots=2)
    open_session(sessions, want("a"))
    open_session(sessions, want("b"))
    assert open_session(sessions, want("c")) == NO_SESSION


def test_an_idle_session_is_evicted_first() -> None:
    sessions = make(slots=2)
    idle = open_session(sessions, want("a"))
    used = open_session(sessions, want("b"))
    later = EVICTION_MS + 1
    turn_of(begin(sessions, used, 1, now_ms=later))
    assert open_session(sessions, want("c"), now_ms=later) != NO_SESSION
    assert begin(sessions, idle, 1, now_ms=later) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(begin(sessions, used, 2, now_ms=later), Turn)
    assert sessions.evictions == 1


def test_a_larger_session_displaces_a_smaller_one_that_had_its_time() -> None:
    sessions = make(slots=2)
    small = open_session(sessions, want("a"))
    large = open_session(sessions, want("a"), want("b"), want("c"))
    later = EVICTION_MS + 1
    turn_of(begin(sessions, small, 1, now_ms=later))
    turn_of(begin(sessions, large, 1, now_ms=later))
    assert open_session(sessions, want("x"), want("y"), now_ms=later) != NO_SESSION
    assert begin(sessions, small, 2, now_ms=later) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(begin(sessions, large, 2, now_ms=later), Turn)


def test_a_follower_displaces_a_young_consumer_but_no_consumer_displaces_a_follower() -> None:
    sessions = make(slots=1)
    consumer = open_session(sessions, want("a"), want("b"))
    follower = open_session(sessions, want("a"), privileged=True)
    assert follower != NO_SESSION
    assert begin(sessions, consumer, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    later = EVICTION_MS + 1
    turn_of(begin(sessions, follower, 1, now_ms=later))
    assert open_session(sessions, want("a"), want("b"), now_ms=later) == NO_SESSION


def test_partitions_are_bounded_in_all_sessions_together() -> None:
    sessions = make(max_partitions=3)
    session_id = open_session(sessions, want("a"), want("b"))
    assert open_session(sessions, want("c"), want("d")) == NO_SESSION
    more = [want("c"), want("d")]
    assert begin(sessions, session_id, 1, more) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0


class Model:
    """What a session means, without any cleverness: a list of keys and what each was told last."""

    def __init__(self, keys: list[tuple[str, int]], state: dict[tuple[str, int], int]) -> None:
        self.keys = keys
        self.told = {key: state[key] for key in keys}

    def update(self, add: list[tuple[str, int]], forget: list[tuple[str, int]]) -> None:
        for key in add:
            if key not in self.keys:
                self.keys.append(key)
                self.told[key] = -1
        for key in forget:
            if key in self.keys:
                self.keys.remove(key)
                del self.told[key]

    def answer(self, state: dict[tuple[str, int], int], data: set[tuple[str, int]]) -> set[tuple[str, int]]:
        sent = {key for key in self.keys if key in data or state[key] != self.told[key]}
        for key in sent:
            self.told[key] = state[key]
        self.keys = [k for k in self.keys if k not in data] + [k for k in self.keys if k in data]
        return sent


KEYS = [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1)]
keys = st.lists(st.sampled_from(KEYS), unique=True, max_size=5)
step = st.tuples(keys, keys, keys, keys)  # wanted, forgotten, with data, moved high watermarks


@settings(deadline=None, max_examples=150)
@given(keys.filter(bool), st.lists(step, max_size=12))
def test_a_session_answers_as_the_naive_model(
    first: list[tuple[str, int]], steps: list[tuple[list[tuple[str, int]], ...]]
) -> None:
    sessions = make()
    state = dict.fromkeys(KEYS, 0)
    turn = turn_of(begin(sessions, wanted=[want(*key) for key in first]))
    _, session_id, sent = turn.answer([result(w, hw=0) for w in turn.wanted], 0)
    model = Model(list(first), state)
    for epoch, (add, forget, data, moved) in enumerate(steps, 1):
        for key in moved:
            state[key] += 1
        turn = turn_of(begin(sessions, session_id, epoch, [want(*key) for key in add], tuple(forget)))
        model.update(add, forget)
        if not model.keys:
            assert turn.session is None and len(sessions) == 0
            return
        assert [w.key for w in turn.wanted] == model.keys
        results = [result(w, data=w.key in data, hw=state[w.key]) for w in turn.wanted]  # type: ignore[index, operator]
        error, answered_id, sent = turn.answer(results, 0)
        assert (error, answered_id) == (ErrorCode.NONE, session_id)
        assert {r.wanted.key for r in sent} == model.answer(state, set(data))
        assert sessions.partition_count == len(model.keys)
