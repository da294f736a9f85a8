from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from klamm.core.errors import ErrorCode
from klamm.log.producer_state import MAX_AWAITED, MAX_UNREPLICATED, Batch, Duplicate, ProducerStates, SnapshotError
from klamm.log.results import Rejected
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import CONTROL, TRANSACTIONAL, BatchHeader

MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


def header(
    pid: int = 7, epoch: int = 0, seq: int = 0, count: int = 1, *, attributes: int = 0, timestamp: int = 1000
) -> BatchHeader:
    return BatchHeader(0, 61, 0, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, seq, count)


def write(states: ProducerStates, batch: BatchHeader, offset: int, now_ms: int = 0) -> None:
    assert states.check(batch) is None
    states.update(batch, offset, offset + batch.last_offset_delta, now_ms)


def marker(pid: int = 7, epoch: int = 0) -> BatchHeader:
    return header(pid, epoch, -1, attributes=TRANSACTIONAL | CONTROL)


def refused(verdict: object) -> ErrorCode:
    assert isinstance(verdict, Rejected), verdict
    return verdict.code


def test_batches_in_sequence_are_accepted() -> None:
    states = ProducerStates()
    write(states, header(seq=0, count=10), 0)
    write(states, header(seq=10, count=5), 10)
    assert states.check(header(seq=15)) is None


@pytest.mark.parametrize("seq", [14, 16, 100, 3])
def test_a_gap_or_an_unknown_old_sequence_is_out_of_order(seq: int) -> None:
    states = ProducerStates()
    write(states, header(seq=0, count=15), 0)
    assert refused(states.check(header(seq=seq))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_sent_again_is_a_duplicate_with_its_offsets() -> None:
    states = ProducerStates()
    for i in range(7):
        write(states, header(seq=3 * i, count=3, timestamp=1000 + i), 100 + 3 * i)
    for i in (0, 1):
        assert refused(states.check(header(seq=3 * i, count=3))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for i in range(2, 7):
        assert states.check(header(seq=3 * i, count=3)) == Duplicate(100 + 3 * i, 102 + 3 * i, 1000 + i)


def test_a_batch_that_overlaps_another_without_being_it_is_no_duplicate() -> None:
    states = ProducerStates()
    write(states, header(seq=0, count=10), 0)
    assert refused(states.check(header(seq=0, count=9))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states.check(header(seq=1, count=9))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_append_time_is_what_a_duplicate_answers_where_the_topic_stamps_it() -> None:
    states = ProducerStates()
    states.update(header(count=2, timestamp=5), 40, 41, 99, 77)
    assert states.check(header(count=2)) == Duplicate(40, 41, 77)


def test_a_sequence_goes_on_at_zero_after_the_largest_one() -> None:
    states = ProducerStates()
    write(states, header(seq=MAX_SEQUENCE - 1, count=2), 0)
    assert refused(states.check(header(seq=1))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(states, header(seq=0, count=1), 2)
    assert states.check(header(seq=MAX_SEQUENCE - 1, count=2)) == Duplicate(0, 1, 1000)


def test_a_batch_may_itself_run_over_the_largest_sequence() -> None:
    states = ProducerStates()
    write(states, header(seq=MAX_SEQUENCE, count=3), 0)
    assert states.check(header(seq=MAX_SEQUENCE, count=3)) == Duplicate(0, 2, 1000)
    assert states.check(header(seq=2)) is None


def test_an_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    write(states, header(epoch=3, seq=0), 0)
    assert refused(states.check(header(epoch=2, seq=1))) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(states.check(header(epoch=2, seq=0))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    states = ProducerStates()
    write(states, header(epoch=0, seq=0, count=4), 0)
    assert refused(states.check(header(epoch=1, seq=4))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(states, header(epoch=1, seq=0), 4)
    assert refused(states.check(header(epoch=0, seq=0, count=4))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(header(seq=4711)) is None


def test_an_unknown_producer_of_transaction_version_2_starts_at_zero() -> None:
    states = ProducerStates()
    assert refused(states.check(header(seq=1), transaction_version=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(seq=0), transaction_version=2) is None


def test_an_unknown_producer_whose_first_batch_could_not_be_written_has_to_send_that_first() -> None:
    states = ProducerStates()
    first, second = header(seq=100, count=5), header(seq=105)
    assert states.check(first) is None
    states.not_written(first)
    assert refused(states.check(second)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states.not_written(header(seq=120))  # one from further behind does not change that
    assert states.check(header(8, seq=105)) is None
    write(states, first, 0)
    write(states, second, 5)
    assert states._awaited is None


def test_a_first_batch_that_is_awaited_counts_only_for_its_epoch() -> None:
    states = ProducerStates()
    states.not_written(header(epoch=0, seq=7))
    assert states.check(header(epoch=1, seq=3)) is None
    states.not_written(header(epoch=1, seq=3))
    assert refused(states.check(header(epoch=1, seq=4))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_known_producer_needs_no_remembering_of_what_was_not_written() -> None:
    states = ProducerStates()
    write(states, header(seq=0), 0)
    states.not_written(header(seq=1))
    states.not_written(header(-1, seq=-1))
    assert states._awaited is None
    assert refused(states.check(header(seq=2))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_whose_batches_were_all_cut_off_again_has_to_send_the_first_of_them_first() -> None:
    before = ProducerStates()
    write(before, header(1, seq=0), 0)
    write(before, header(1, seq=1), 1)
    write(before, header(2, seq=40), 2)
    write(before, header(2, seq=41), 3)
    after = ProducerStates()
    write(after, header(1, seq=0), 0)
    after.await_again(before, 1)
    assert after.check(header(1, seq=1)) is None
    assert refused(after.check(header(2, seq=42))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert after.check(header(2, seq=40)) is None


def test_awaited_first_batches_are_bounded() -> None:
    states = ProducerStates()
    for pid in range(MAX_AWAITED + 10):
        states.not_written(header(pid, seq=5))
    assert states._awaited is not None and len(states._awaited) == MAX_AWAITED
    assert states.check(header(0, seq=9)) is None
    states.clear()
    assert states.check(header(500, seq=9)) is None


@pytest.mark.parametrize("known", [True, False])
def test_a_producer_id_without_a_sequence_is_an_invalid_record(known: bool) -> None:
    states = ProducerStates()
    if known:
        write(states, header(), 0)
    assert refused(states.check(header(seq=-1))) == ErrorCode.INVALID_RECORD


def test_what_a_coordinator_writes_has_no_sequence_but_an_epoch() -> None:
    states = ProducerStates()
    batch = header(epoch=1, seq=-1, attributes=TRANSACTIONAL)
    assert states.check(batch, sequenced=False) is None
    states.update(batch, 5, 5, 0)
    assert states.check(batch, sequenced=False) is None
    assert refused(states.check(header(epoch=0, seq=-1), sequenced=False)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.first_undecided_offset() == 5
    assert states.check(header(epoch=1, seq=0, attributes=TRANSACTIONAL)) is None


def test_a_transaction_holds_the_stable_offset_until_its_marker_is_below_the_high_watermark() -> None:
    states = ProducerStates()
    write(states, header(seq=0, count=3, attributes=TRANSACTIONAL), 10)
    write(states, header(seq=3, count=3, attributes=TRANSACTIONAL), 13)
    assert states.first_unstable_offset(16) == 10
    assert states.end_transaction(marker(), 16, commit=True, coordinator_epoch=0, now_ms=0) is None
    assert states.first_undecided_offset() is None
    assert states.first_unstable_offset(16) == 10
    assert states.first_unstable_offset(17) is None


def test_an_aborted_transaction_is_reported_with_the_stable_offset_that_follows_it() -> None:
    states = ProducerStates()
    write(states, header(1, attributes=TRANSACTIONAL), 0)
    write(states, header(2, attributes=TRANSACTIONAL), 1)
    aborted = states.end_transaction(marker(1), 2, commit=False, coordinator_epoch=0, now_ms=0)
    assert aborted == AbortedTxn(1, 0, 2, 1)
    aborted = states.end_transaction(marker(2), 3, commit=False, coordinator_epoch=0, now_ms=0)
    assert aborted == AbortedTxn(2, 1, 3, 4)


def test_a_marker_for_a_transaction_that_wrote_nothing_here_changes_nothing_but_epochs() -> None:
    states = ProducerStates()
    assert states.end_transaction(marker(), 0, commit=False, coordinator_epoch=4, now_ms=0) is None
    assert states.first_unstable_offset(0) is None
    assert refused(states.check_marker(marker(), 3)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert states.check_marker(marker(), 4) is None


def test_sequences_go_on_after_a_marker_of_the_same_epoch_and_start_again_after_one_of_the_next() -> None:
    states = ProducerStates()
    write(states, header(seq=0, count=2, attributes=TRANSACTIONAL), 0)
    states.end_transaction(marker(), 2, commit=True, coordinator_epoch=0, now_ms=0)
    write(states, header(seq=2, count=2, attributes=TRANSACTIONAL), 3)
    states.end_transaction(marker(epoch=1), 5, commit=True, coordinator_epoch=0, now_ms=0)
    assert refused(states.check(header(epoch=1, seq=4))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(epoch=1, seq=0)) is None


def test_markers_are_fenced_by_the_producer_epoch() -> None:
    states = ProducerStates()
    write(states, header(epoch=3, attributes=TRANSACTIONAL), 0)
    assert refused(states.check_marker(marker(epoch=2), 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check_marker(marker(epoch=3), 0) is None
    assert refused(states.check_marker(marker(epoch=3), 0, transaction_version=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check_marker(marker(epoch=4), 0, transaction_version=2) is None
    states.end_transaction(marker(epoch=4), 1, commit=True, coordinator_epoch=0, now_ms=0)
    assert states.check_marker(marker(epoch=4), 0, transaction_version=2) is None  # the same marker, sent again


def test_a_batch_outside_of_an_open_transaction_is_refused() -> None:
    states = ProducerStates()
    write(states, header(seq=0, attributes=TRANSACTIONAL), 0)
    assert refused(states.check(header(seq=1))) == ErrorCode.INVALID_TXN_STATE


def test_ended_transactions_that_nobody_asks_about_stay_bounded_and_err_to_the_safe_side() -> None:
    states = ProducerStates()
    for i in range(3 * MAX_UNREPLICATED):
        states.update(header(seq=i, attributes=TRANSACTIONAL), 2 * i, 2 * i, 0)
        states.end_transaction(marker(), 2 * i + 1, commit=True, coordinator_epoch=0, now_ms=0)
    assert states._unreplicated is not None
    assert len(states._unreplicated) <= MAX_UNREPLICATED
    assert states.first_unstable_offset(0) == 0
    assert states.first_unstable_offset(6 * MAX_UNREPLICATED) is None


def test_idle_producers_expire_in_slices_and_those_with_an_open_transaction_do_not() -> None:
    states = ProducerStates()
    for pid in range(2500):
        write(states, header(pid), pid, now_ms=0)
    write(states, header(3000, attributes=TRANSACTIONAL), 2500, now_ms=0)
    write(states, header(5, seq=1), 2501, now_ms=500)
    assert not states.expire(DAY_MS - 1, DAY_MS, limit=10_000)
    assert len(states) == 2501
    assert states.expire(DAY_MS, DAY_MS, limit=1000)
    assert len(states) == 1502 or len(states) == 1501
    while states.expire(DAY_MS, DAY_MS, limit=1000):
        pass
    assert [pid for pid, _ in states.items()] == [5, 3000]


def test_a_damaged_or_foreign_snapshot_is_refused() -> None:
    states = ProducerStates()
    for pid in range(20):
        write(states, header(pid, seq=9), pid)
    data = states.snapshot(20)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(SnapshotError):
            ProducerStates().load(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(SnapshotError):
            ProducerStates().load(data[:size])
    with pytest.raises(SnapshotError):
        ProducerStates().load(data + b"\0")


def test_a_snapshot_of_a_later_version_is_refused() -> None:
    data = bytearray(ProducerStates().snapshot(0))
    struct.pack_into(">H", data, 4, 2)
    with pytest.raises(SnapshotError, match="version 2"):
        ProducerStates().load(bytes(data))


class Told(NamedTuple):
    header: BatchHeader
    base: int
    last: int


class Naive(NamedTuple):
    """Everything a producer wrote in its current epoch, answered by looking through all of it."""

    epoch: int
    batches: list[Told]

    def verdict(self, batch: BatchHeader) -> object:
        if batch.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch > self.epoch:
            return None if batch.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for told in self.batches[-5:]:
            same = (told.header.base_sequence, told.header.record_count) == (batch.base_sequence, batch.record_count)
            if same:
                return Duplicate(told.base, told.last, told.header.max_timestamp)
        expected = 0
        if self.batches:
            last = self.batches[-1].header
            expected = (last.base_sequence + last.record_count) % 2**31
        return None if batch.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class ProducerMachine(RuleBasedStateMachine):
    """Producers that send, resend, skip, restart and end transactions; the naive model knows the right answer."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.model: dict[int, Naive] = {}
        self.open: dict[int, int] = {}  # producer id -> first offset
        self.ended: list[tuple[int, int]] = []
        self.end = 0

    def send(self, batch: BatchHeader) -> None:
        known = self.model.get(batch.producer_id)
        expected = known.verdict(batch) if known else None
        if expected is None and batch.producer_id in self.open and not batch.is_transactional:
            expected = ErrorCode.INVALID_TXN_STATE
        verdict = self.states.check(batch)
        assert (verdict.code if isinstance(verdict, Rejected) else verdict) == expected
        if verdict is not None:
            return
        last = self.end + batch.last_offset_delta
        self.states.update(batch, self.end, last, 0)
        if known is None or known.epoch != batch.producer_epoch:
            known = self.model[batch.producer_id] = Naive(batch.producer_epoch, [])
        known.batches.append(Told(batch, self.end, last))
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, self.end)
        self.end = last + 1

    @rule(
        pid=st.integers(0, 3),
        epoch=st.integers(0, 3),
        seq=st.one_of(st.integers(0, 6), st.integers(MAX_SEQUENCE - 3, MAX_SEQUENCE)),
        count=st.integers(1, 4),
        txn=st.booleans(),
    )
    def send_anything(self, pid: int, epoch: int, seq: int, count: int, txn: bool) -> None:
        self.send(header(pid, epoch, seq, count, attributes=TRANSACTIONAL if txn else 0, timestamp=self.end))

    @precondition(lambda self: any(self.model.values()))
    @rule(data=st.data(), count=st.integers(1, 4), back=st.integers(0, 7))
    def send_next_or_again(self, data: st.DataObject, count: int, back: int) -> None:
        pid = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[pid]
        attributes = TRANSACTIONAL if pid in self.open else 0
        if back and back <= len(known.batches):
            self.send(known.batches[-back].header)
        elif known.batches:
            last = known.batches[-1].header
            seq = (last.base_sequence + last.record_count) % 2**31
            self.send(header(pid, known.epoch, seq, count, attributes=attributes, timestamp=self.end))

    @rule(pid=st.integers(0, 3), bump=st.integers(0, 1), commit=st.booleans())
    def end_transaction(self, pid: int, bump: int, commit: bool) -> None:
        known = self.model.get(pid)
        epoch = (known.epoch if known else 0) + bump
        if epoch > 30_000:
            return
        first = self.open.pop(pid, None)
        stable = min(self.open.values(), default=self.end + 1)
        aborted = self.states.end_transaction(
            marker(pid, epoch), self.end, commit=commit, coordinator_epoch=0, now_ms=0
        )
        expected = AbortedTxn(pid, first, self.end, stable) if first is not None and not commit else None
        assert aborted == expected
        if first is not None:
            self.ended.append((first, self.end))
        if known is None or known.epoch != epoch:
            self.model[pid] = Naive(epoch, [])
        self.end += 1

    @rule()
    def snapshot_and_load(self) -> None:
        fresh = ProducerStates()
        assert fresh.load(self.states.snapshot(self.end)) == self.end
        assert fresh.snapshot(self.end) == self.states.snapshot(self.end)
        self.states = fresh
        self.ended = []

    @invariant()
    def remembers_what_was_told(self) -> None:
        assert len(self.states) == len(self.model)
        for pid, known in self.model.items():
            producer = self.states.get(pid)
            assert producer is not None and producer.epoch == known.epoch
            told = [
                Batch(t.header.base_sequence, t.header.last_sequence, t.base, t.last, t.header.max_timestamp)
                for t in known.batches[-5:]
            ]
            assert list(producer.batches()) == told

    @invariant()
    def stable_offset_is_right_for_any_high_watermark(self) -> None:
        assert self.states.first_undecided_offset() == min(self.open.values(), default=None)
        assert [first for first, _ in self.states.open_transactions()] == sorted(self.open.values())

    @rule(back=st.integers(0, 12))
    def move_high_watermark(self, back: int) -> None:
        watermark = max(self.end - back, *(last for _, last in self.ended), 0) if back == 0 else max(self.end - back, 0)
        unstable = [first for first, last in self.ended if last >= watermark]
        self.ended = [(first, last) for first, last in self.ended if last >= watermark]
        expected = min([*self.open.values(), *unstable], default=None)
        assert self.states.first_unstable_offset(watermark) == expected


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        ProducerStates().load(data)
