"""The pure parts of a consumer: policies, its partitions, sessions, deserializers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from klamm.client.cursor import Cursor, measure
from klamm.client.deserializing import BadValue, Deserializing
from klamm.client.errors import BadRecords, ConfigError, ConsumerMisuse
from klamm.client.fetch_session import FetchSession, Want
from klamm.client.fetching import Answer
from klamm.client.prefetched import Prefetched
from klamm.client.reset import EARLIEST_RESET, ResetPolicy, ResetTo
from klamm.client.subscription import Listener, Mode, PartitionState, Phase, Position, Subscriptions
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.compression import Codec
from klamm.records.consuming import ConsumerRecord
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
IDS = {"t": bytes(16)}

# auto.offset.reset


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT1S", 1000), ("P1D", 86_400_000), ("pt1h30m", 5_400_000), ("P2DT3.25S", 172_803_250), ("PT0.0001S", 0)],
)
def test_a_duration_is_written_as_iso_8601_does(text: str, duration_ms: int) -> None:
    assert ResetPolicy.parse(f"by_duration:{text}") == ResetPolicy(ResetTo.TIME, duration_ms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "begin",
        "by_duration",
        "by_duration:",
        "by_duration:1h",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1S",
    ],
)
def test_what_is_no_policy_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        ResetPolicy.parse(text)


# Subscriptions.


def test_options_that_are_given_as_a_topic_are_told_where_they_belong() -> None:
    options: Any = {"bootstrap.servers": "localhost:9092"}  # as another client has them
    with pytest.raises(ConsumerMisuse, match="Options go into `config`"):
        Subscriptions(EARLIEST_RESET).subscribe([options], Listener())


def test_partitions_that_stay_keep_their_state_and_turns_tell_of_all_others() -> None:
    subscriptions = Subscriptions(EARLIEST_RESET)
    subscriptions.subscribe(["t"], Listener())
    subscriptions.given([T0, T1])
    before = subscriptions.version
    subscriptions.seek(T0, 5, 2)
    gone = subscriptions.state(T1)
    turn = gone.turn
    subscriptions.given([T0, T2], held=True)
    assert subscriptions.version > before
    assert gone.turn > turn
    assert subscriptions.consumed() == {T0: Position(5, 2)}
    assert [subscriptions.state(place).held for place in (T0, T2)] == [False, True]
    assert not list(subscriptions.in_phase(Phase.UNKNOWN))  # T2 is held: nothing is looked up for it yet
    subscriptions.release([T2])
    assert [state.place for state in subscriptions.in_phase(Phase.UNKNOWN)] == [T2]
    subscriptions.taken([T0])
    assert list(subscriptions.partitions) == [T2]
    assert subscriptions.is_subscribed
    subscriptions.unsubscribe()
    assert subscriptions.mode is Mode.NOTHING and not subscriptions.partitions


def test_pausing_is_for_all_or_none_and_only_for_what_is_ours() -> None:
    subscriptions = Subscriptions(EARLIEST_RESET)
    subscriptions.assign([T0])
    with pytest.raises(ConsumerMisuse):
        subscriptions.pause([T0, T1])
    assert not subscriptions.paused()
    with pytest.raises(ConsumerMisuse):
        subscriptions.subscribe([""], Listener())


# Sessions.


class BrokerSide:
    """What a broker remembers of a session, after KIP-227."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.wants: dict[TopicPartition, Want] = {}

    def answer(self, turn: Any) -> tuple[ErrorCode, int]:
        if turn.epoch == 0:
            self.id, self.epoch = self.id + 1, 1
            self.wants = {want.place: want for want in turn.wants}
            return ErrorCode.NONE, self.id
        if turn.session_id != self.id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0
        if turn.epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0
        self.epoch += 1
        for place, _ in turn.forgotten:
            del self.wants[place]
        self.wants.update((want.place, want) for want in turn.wants)
        return ErrorCode.NONE, self.id


@pytest.mark.parametrize("seed", range(20))
def test_the_broker_knows_what_is_wanted_whenever_a_session_goes_on(seed: int) -> None:
    rng = Random(seed)
    session, broker = FetchSession(), BrokerSide()
    named = full = 0
    ids = dict(IDS)
    for _ in range(200):
        wants = [Want(TopicPartition("t", number), rng.randrange(3), 0) for number in range(6) if rng.random() < 0.8]
        if rng.random() < 0.02:
            ids["t"] = rng.randbytes(16)  # deleted and made anew
        turn = session.next(wants, ids)
        full += turn.epoch == 0
        named += len(turn.wants)
        if rng.random() < 0.1:  # lost, on its way there or back
            if rng.random() < 0.5:
                broker.answer(turn)
            session.lost()
            continue
        if rng.random() < 0.05:
            broker.id += 1  # the broker has thrown it out
        code, session_id = broker.answer(turn)
        session.answered(code, session_id)
        if not code:
            assert broker.wants == {want.place: want for want in wants}
    assert full < 100
    assert named < 6 * 200 * 0.8


def test_a_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    for _ in range(3):
        turn = session.next([Want(T0, 0, 0), Want(T1, 0, 0)], IDS)
        assert (turn.session_id, turn.epoch, len(turn.wants)) == (0, 0, 2)
        session.answered(ErrorCode.NONE, 0)
        assert not session.is_open


# Cursors.


def cursor_over(
    data: bytes, start: int = 0, *, aborted: tuple = (), committed: bool = False, made: Any = None
) -> Cursor:
    state = PartitionState(T0)
    state.start_at(start)
    extent = measure(T0, data, start)
    state.next_offset = extent.next_offset
    answer = Answer(ErrorCode.NONE, data, 100, 0, aborted)
    return Cursor(state, answer, extent, read_committed=committed, deserializing=made)


def plain(base: int, *values: bytes | None, codec: Codec = Codec.NONE, epoch: int = 0) -> bytes:
    records = [Record(0, 1000, None, value) for value in values]
    return encode_batch(records, base_offset=base, codec=codec, leader_epoch=epoch)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_a_cursor_gives_all_records_in_order_and_moves_the_position(codec: Codec, limit: int) -> None:
    data = plain(0, b"0", b"1", b"2", codec=codec, epoch=1) + plain(5, b"5", b"6", codec=codec, epoch=4)
    cursor = cursor_over(data, 1)
    found: list[ConsumerRecord] = []
    while records := cursor.take(limit):
        assert len(records) <= limit
        found += records
        records.clear()  # ours now
        assert cursor.is_finished or cursor.state.position == (found[-1].offset + 1, found[-1].leader_epoch)
    assert [(record.offset, record.value) for record in found] == [(1, b"1"), (2, b"2"), (5, b"5"), (6, b"6")]
    assert cursor.is_finished and cursor.state.position == (7, 4)
    again = cursor_over(data, 1)
    one_by_one = []
    while (record := again.take_one()) is not None:
        one_by_one.append(record)
    assert one_by_one == found and again.state.position == (7, 4)


def test_markers_move_the_position_although_nobody_sees_them() -> None:
    marker = encode_end_marker(
        EndMarker(ControlType.ABORT, 0), producer_id=1, producer_epoch=0, timestamp=0, base_offset=2
    )
    records = [Record(0, 0, None, b"aborted")] * 2
    data = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True) + marker
    cursor = cursor_over(data, aborted=((1, 0),), committed=True)
    assert cursor.take(10) == []
    assert cursor.state.offset == 3
    assert len(cursor_over(data).take(10)) == 2
    rest = cursor_over(data, 1, aborted=((1, 0),), committed=True).take_rest()
    assert (rest.start, rest.next_offset, rest.aborted, bytes(rest.data)) == (1, 3, ((1, 0),), data)


def test_what_is_set_aside_comes_back_in_order_or_is_fetched_again() -> None:
    subscriptions = Subscriptions(EARLIEST_RESET)
    subscriptions.assign([T0, T1])
    prefetched = Prefetched(subscriptions, max_aside_bytes=300)
    for place in (T0, T1):
        subscriptions.seek(place, 0)

    def put(place: TopicPartition, base: int) -> None:
        state = subscriptions.state(place)
        data = plain(base, b"x" * 30)
        extent = measure(place, data, base)
        prefetched.put(Cursor(state, Answer(ErrorCode.NONE, data, 9, 0, ()), extent, read_committed=False))
        state.next_offset = extent.next_offset

    def order() -> list[tuple[TopicPartition, int]]:
        found = []
        while (cursor := prefetched.first()) is not None:
            found.append((cursor.state.place, cursor.take(9)[0].offset))
            prefetched.drop_first()
        assert prefetched.size == 0
        return found

    put(T0, 0)
    put(T1, 0)
    subscriptions.pause([T0])
    put(T0, 1)
    put(T1, 1)
    assert order() == [(T1, 0), (T1, 1)]
    subscriptions.resume([T0])
    assert order() == [(T0, 0), (T0, 1)]
    for base in (2, 3, 4, 5):
        put(T0, base)
    subscriptions.pause([T0])
    assert prefetched.first() is None
    subscriptions.resume([T0])
    assert order() == []
    assert (subscriptions.state(T0).offset, subscriptions.state(T0).next_offset) == (2, 2)
    put(T1, 2)
    subscriptions.seek(T1, 0)
    assert order() == []


# Deserializers.


class Schemas:
    """A deserializer that has to load something first."""

    def __init__(self) -> None:
        self.loaded: set[bytes] = set()

    async def prepare(self, records: Sequence[ConsumerRecord]) -> None:
        self.loaded |= {record.value[:1] for record in records if record.value}

    def deserialize(self, data: bytes, *, topic: str, headers: Any, is_key: bool) -> Any:
        assert data[:1] in self.loaded
        return topic, is_key, data[1:]


def test_a_value_that_cannot_be_read_comes_after_those_that_can() -> None:
    data = plain(0, b"1", None, b"{", b"4")
    cursor = cursor_over(data, made=Deserializing.of(None, json.loads))
    assert [record.value for record in cursor.take(10)] == [1, None]
    for _ in range(2):
        with pytest.raises(BadValue, match="value at offset 2 of t, partition 0"):
            cursor.take(10)
    assert cursor.state.offset == 2
    assert [record.value for record in cursor_over(data, 3, made=Deserializing.of(None, json.loads)).take(9)] == [4]


async def test_a_deserializer_may_load_what_it_needs_for_all_records_at_once() -> None:
    made = Deserializing(None, Schemas())
    cursor = cursor_over(plain(0, b"ax", b"by") + plain(2, b"cz"), made=made)
    assert not cursor.is_prepared
    raw = cursor.all_raw()
    await made.prepare(raw)
    cursor.give_back(*made(raw))
    assert [record.value for record in cursor.take(9)] == [("t", False, b"x"), ("t", False, b"y"), ("t", False, b"z")]
    assert cursor.is_finished and cursor.state.offset == 3


async def test_damage_behind_good_records_is_told_also_by_those_who_prepare() -> None:
    damaged = bytearray(plain(2, b"cz"))
    damaged[-1] ^= 1
    made = Deserializing(None, Schemas())
    cursor = cursor_over(plain(0, b"ax", b"by") + bytes(damaged), made=made)
    raw = cursor.all_raw()
    await made.prepare(raw)
    cursor.give_back(*made(raw))
    assert len(cursor.take(9)) == 2
    with pytest.raises(BadRecords, match="offset 2"):
        cursor.take(9)
    assert cursor.state.offset == 2
