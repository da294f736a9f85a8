"""What the transaction coordinator decides, request by request."""

from __future__ import annotations

import pytest

from klamm.coordinator.machine import Now, Producer
from klamm.coordinator.transactions.listing import IDS_PER_SLICE, Filter, selecting
from klamm.coordinator.transactions.machine import Settings
from klamm.coordinator.transactions.state import NO_TIMEOUT_MS, State, Transaction
from klamm.core.errors import ErrorCode
from support.transactions import LAST_EPOCH, NONE, START_MS, T0, T1, U0, Driver

NOBODY = Producer(-1, -1)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
WRONG_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def driver() -> Driver:
    return Driver()


def next_epoch(producer: Producer) -> Producer:
    return Producer(producer.id, producer.epoch + 1)


# ---- InitProducerId


def test_a_new_id_gets_a_producer_id_and_epoch_0(driver: Driver) -> None:
    assert driver.init() == (NONE, Producer(100, 0), NOBODY)
    assert driver.init("y").producer == Producer(101, 0)
    assert driver.state() == State.EMPTY


def test_each_start_of_a_producer_gets_the_next_epoch(driver: Driver) -> None:
    assert [driver.init().producer.epoch for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_limit_that_is_not_allowed(driver: Driver, timeout_ms: int) -> None:
    assert driver.init(timeout_ms=timeout_ms).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not driver.machine.transactions


def test_an_empty_id_is_nobodys(driver: Driver) -> None:
    assert driver.init("").error == ErrorCode.INVALID_REQUEST


def test_without_a_producer_id_at_hand_the_client_has_to_come_again(driver: Driver) -> None:
    driver.next_id = None
    assert driver.init().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_client_that_goes_on_after_an_error_keeps_its_id(driver: Driver) -> None:
    producer = driver.init().producer
    bumped = driver.init(expected=producer).producer
    assert bumped == next_epoch(producer)
    assert driver.init(expected=producer).producer == bumped, "the answer was lost: the same one again"
    assert driver.init(expected=bumped).producer == next_epoch(bumped)
    assert driver.init(expected=producer).error == FENCED


def test_a_client_that_goes_on_is_fenced_by_another_that_came_in_between(driver: Driver) -> None:
    producer = driver.init().producer
    bumped = driver.init(expected=producer).producer
    driver.init()
    assert driver.init(expected=producer).error == FENCED
    assert driver.init(expected=bumped).error == FENCED
    assert driver.init(expected=Producer(999, 0)).error == FENCED


def test_a_repeated_request_is_not_known_after_a_restart(driver: Driver) -> None:
    producer = driver.init().producer
    driver.init(expected=producer)
    driver.crash()
    assert driver.init(expected=producer).error == FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_is_aborted_before_the_producer_starts_anew(version: int) -> None:
    driver = Driver(version=version)
    producer = driver.begin(T0, version=version)
    assert driver.init() == (CONCURRENT, NOBODY, NOBODY)
    assert driver.state() == State.PREPARE_ABORT
    assert driver.init().error == CONCURRENT, "as long as the markers are not written"
    (markers,) = driver.write_markers()
    assert (markers.committed, markers.partitions, markers.producer) == (False, {"t": (0,)}, next_epoch(producer))
    assert markers.version == version
    assert driver.init() == (NONE, Producer(producer.id, producer.epoch + 2), NOBODY)
    assert driver.add(producer) == FENCED


def test_after_the_last_epoch_comes_another_producer_id(driver: Driver) -> None:
    driver.put(Transaction("x", Producer(7, LAST_EPOCH), 1000, START_MS))
    assert driver.init().producer == Producer(100, 0)
    assert driver.add(Producer(7, LAST_EPOCH)) == WRONG_ID


def test_a_client_that_missed_its_new_producer_id_is_told_again(driver: Driver) -> None:
    old = Producer(7, LAST_EPOCH)
    driver.put(Transaction("x", old, 1000, START_MS))
    assert driver.init(expected=old).producer == Producer(100, 0)
    assert driver.init(expected=old).producer == Producer(100, 0)
    assert driver.init(expected=Producer(7, LAST_EPOCH - 1)).error == FENCED


# ---- partitions


def test_a_transaction_begins_with_its_first_partitions(driver: Driver) -> None:
    producer = driver.init().producer
    driver.wait(2)
    assert driver.add(producer, T0, U0) == NONE
    driver.wait(1)
    assert driver.add(producer, T1) == NONE
    txn = driver.txn()
    assert (txn.state, txn.partitions, txn.start_ms) == (State.ONGOING, {"t": (0, 1), "u": (0,)}, START_MS + 2000)


def test_partitions_that_are_in_it_are_not_written_again(driver: Driver) -> None:
    producer = driver.begin(T0, T1)
    written = len(driver.log)
    assert driver.add(producer, T1) == NONE
    assert len(driver.log) == written


def test_who_may_not_add_partitions(driver: Driver) -> None:
    producer = driver.begin()
    assert driver.add(Producer(producer.id, producer.epoch + 1)) == FENCED
    assert driver.add(Producer(producer.id + 1, producer.epoch)) == WRONG_ID
    assert driver.add(producer, id_="y") == WRONG_ID
    assert driver.add(producer, id_="") == ErrorCode.INVALID_REQUEST
    driver.finish(producer)
    assert driver.add(next_epoch(producer)) == CONCURRENT
    driver.write_markers()
    assert driver.add(next_epoch(producer)) == NONE


def test_partitions_are_verified_one_by_one(driver: Driver) -> None:
    producer = driver.begin(T0)
    assert driver.verify(producer, T0, T1) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert driver.verify(next_epoch(producer), T0, T1) == [FENCED, FENCED]
    assert driver.verify(Producer(5, 0), T0) == [WRONG_ID]
    assert driver.verify(producer, T0, id_="y") == [WRONG_ID]
    driver.finish(producer, version=0)
    assert driver.verify(producer, T0) == [CONCURRENT]
    driver.write_markers()
    assert driver.verify(producer, T0) == [ErrorCode.TRANSACTION_ABORTABLE]


# ---- EndTxn, protocol 1


@pytest.mark.parametrize("committed", [True, False])
def test_without_new_epochs_a_repeated_end_is_the_same_as_the_first(driver: Driver, committed: bool) -> None:
    producer = driver.begin(T0, U0, version=0)
    assert driver.finish(producer, committed, version=0) == (NONE, NOBODY)
    assert driver.finish(producer, committed, version=0).error == CONCURRENT
    (markers,) = driver.write_markers()
    assert (markers.producer, markers.committed, markers.version) == (producer, committed, 0)
    assert markers.partitions == {"t": (0,), "u": (0,)}
    assert driver.finish(producer, committed, version=0) == (NONE, NOBODY)
    assert driver.finish(producer, not committed, version=0).error == INVALID_STATE
    assert driver.add(producer, version=0) == NONE, "the next one"
    assert driver.txn().partitions == {"t": (0,)}


def test_without_new_epochs_there_must_be_something_to_end(driver: Driver) -> None:
    producer = driver.init().producer
    assert driver.finish(producer, True, version=0).error == INVALID_STATE
    assert driver.finish(producer, False, version=0).error == INVALID_STATE
    assert driver.finish(next_epoch(producer), version=0).error == FENCED
    assert driver.finish(Producer(5, 0), version=0).error == WRONG_ID
    assert driver.finish(producer, id_="y", version=0).error == WRONG_ID
    assert driver.finish(producer, id_="", version=0).error == ErrorCode.INVALID_REQUEST


# ---- EndTxn, protocol 2


@pytest.mark.parametrize("committed", [True, False])
def test_each_end_gives_the_producer_a_new_epoch(driver: Driver, committed: bool) -> None:
    producer = driver.begin(T0)
    bumped = next_epoch(producer)
    assert driver.finish(producer, committed) == (NONE, bumped)
    assert driver.finish(producer, committed).error == CONCURRENT
    (markers,) = driver.write_markers()
    assert (markers.producer, markers.committed, markers.version) == (bumped, committed, 2)
    assert driver.finish(producer, committed) == (NONE, bumped), "a repeated one"
    assert driver.finish(producer, not committed).error == INVALID_STATE
    assert driver.add(producer) == FENCED
    assert driver.add(bumped) == NONE


def test_kafkas_table_of_ends_without_partitions(driver: Driver) -> None:
    """By state, then abort and commit: of the epoch before, of the epoch now."""
    producer = driver.init().producer
    assert driver.finish(Producer(producer.id, -1), False).error == FENCED
    assert driver.finish(producer, True).error == INVALID_STATE
    aborted = driver.finish(producer, False)
    assert aborted == (NONE, next_epoch(producer)) and driver.state() == State.PREPARE_ABORT
    driver.write_markers()

    assert driver.state() == State.COMPLETE_ABORT
    now = aborted.producer
    assert driver.finish(producer, False) == (NONE, now)
    assert driver.finish(producer, True).error == INVALID_STATE
    assert driver.finish(now, True).error == INVALID_STATE
    now = driver.finish(now, False).producer
    driver.write_markers()

    driver.add(now)
    then, now = now, driver.finish(now, True).producer
    driver.write_markers()
    assert driver.state() == State.COMPLETE_COMMIT
    assert driver.finish(then, False).error == INVALID_STATE
    assert driver.finish(then, True) == (NONE, now)
    assert driver.finish(now, True).error == INVALID_STATE
    assert driver.finish(now, False).error == NONE
    assert driver.finish(Producer(55, 0), False).error == CONCURRENT
    driver.write_markers()
    assert driver.finish(Producer(55, 0), False).error == WRONG_ID
    assert driver.finish(Producer(now.id, now.epoch + 7), False).error == FENCED


def test_the_last_epoch_ends_with_another_producer_id(driver: Driver) -> None:
    old = Producer(7, LAST_EPOCH)
    driver.put(Transaction("x", old, 1000, START_MS))
    assert driver.add(old) == NONE
    assert driver.finish(old) == (NONE, Producer(100, 0))
    driver.crash()
    (markers,) = driver.write_markers()
    assert markers.producer == Producer(7, LAST_EPOCH + 1)
    assert driver.txn().producer == Producer(100, 0)
    assert driver.finish(old) == (NONE, Producer(100, 0)), "a repeated one"
    assert driver.finish(old, False).error == INVALID_STATE
    assert driver.add(old) == WRONG_ID
    assert driver.add(Producer(100, 0)) == NONE


def test_an_end_that_needs_a_producer_id_waits_for_it(driver: Driver) -> None:
    old = Producer(7, LAST_EPOCH)
    driver.put(Transaction("x", old, 1000, START_MS))
    driver.add(old)
    driver.next_id = None
    assert driver.finish(old).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.state() == State.ONGOING


# ---- time


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_is_aborted_when_its_time_is_over(version: int) -> None:
    driver = Driver(version=version)
    producer = driver.begin(T0, timeout_ms=5000, version=version)
    driver.wait(5)
    assert driver.state() == State.ONGOING
    driver.wait(0.01)
    assert driver.state() == State.PREPARE_ABORT
    (markers,) = driver.write_markers()
    assert (markers.producer, markers.committed) == (next_epoch(producer), False)
    assert driver.finish(producer, True, version=version).error in (FENCED, INVALID_STATE)
    assert driver.add(producer, version=version) == FENCED
    goes_on = driver.init(expected=producer)
    assert goes_on.error == (NONE if version else FENCED), "with protocol 2 the client may recover by itself (KIP-890)"


def test_time_limits_are_those_of_the_transaction_and_outlive_a_restart(driver: Driver) -> None:
    driver.begin(T0, timeout_ms=5000)
    driver.wait(3)
    driver.crash()
    driver.wait(2.5)
    assert driver.state() == State.PREPARE_ABORT


def test_a_clock_that_was_set_delays_an_abort_by_the_interval_at_most() -> None:
    driver = Driver(settings=Settings(abort_interval_ms=2000))
    driver.begin(T0, timeout_ms=60_000)
    now = driver.now
    driver.now = now._replace(monotonic=now.monotonic + 1)
    due = driver.machine.next_due
    assert due is not None and due <= driver.now.monotonic + 2
    driver.now = now._replace(monotonic=due, time_ms=now.time_ms + 60_001)
    driver.do(lambda machine, now: machine.tick(now))
    assert driver.state() == State.PREPARE_ABORT


def test_each_transaction_has_its_own_limit(driver: Driver) -> None:
    for transactional_id, timeout_ms in (("a", 3000), ("b", 9000), ("c", 6000)):
        driver.add(driver.init(transactional_id, timeout_ms=timeout_ms).producer, id_=transactional_id)
    aborted = []
    for _ in range(10):
        driver.wait(1)
        aborted.append("".join(markers.transactional_id for markers in driver.write_markers()))
    assert aborted == ["", "", "", "a", "", "", "c", "", "", "b"]


def test_a_machine_with_nothing_in_it_wants_no_tick(driver: Driver) -> None:
    assert driver.machine.next_due is None


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    driver = Driver(settings=Settings(expiration_ms=10_000, expiration_interval_ms=4000))
    driver.init("idle")
    driver.begin(T0, timeout_ms=900_000)
    driver.wait(6)
    driver.init("used")
    driver.wait(7)
    assert list(driver.machine.transactions) == ["x", "used"]
    assert driver.log[-1][1] is None
    driver.crash()
    driver.wait(1000)
    driver.write_markers()
    driver.wait(20)
    assert driver.machine.transactions == {} and driver.machine.next_due is None


def test_many_that_are_due_at_once_are_done_in_batches(driver: Driver) -> None:
    names = [f"{n}-" + "x" * 20_000 for n in range(40)]
    for name in names:
        driver.add(driver.init(name, timeout_ms=1000).producer, id_=name)
    driver.now = Now(driver.now.monotonic + 5, START_MS + 5000)
    driver.do(lambda machine, now: machine.tick(now))
    assert 0 < len(driver.effects) < len(names)
    driver.wait(0)
    assert len(driver.effects) == len(names)


# ---- two-phase commit


@pytest.fixture
def two_phase() -> Driver:
    return Driver(settings=Settings(two_phase_commit=True))


def test_two_phase_commit_has_to_be_allowed(driver: Driver) -> None:
    assert driver.init(two_phase=True).error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transaction_of_two_phases_has_no_time_limit(two_phase: Driver) -> None:
    two_phase.begin(T0, two_phase=True, timeout_ms=0)
    assert two_phase.txn().timeout_ms == NO_TIMEOUT_MS
    two_phase.wait(10_000_000)
    assert two_phase.state() == State.ONGOING
    two_phase.crash()
    two_phase.wait(10_000_000)
    assert two_phase.state() == State.ONGOING


@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_transaction_that_is_kept_is_ended_by_the_next_producer(two_phase: Driver, committed: bool) -> None:
    first = two_phase.begin(T0, two_phase=True)
    second = two_phase.init(two_phase=True, keep=True)
    assert second == (NONE, next_epoch(first), first)
    two_phase.crash()
    third = two_phase.init(keep=True, timeout_ms=1000)
    assert third == (NONE, Producer(first.id, first.epoch + 2), first)
    assert two_phase.txn().timeout_ms == NO_TIMEOUT_MS
    assert two_phase.add(first) == two_phase.finish(first).error == FENCED
    assert two_phase.finish(second.producer).error == FENCED
    assert two_phase.add(third.producer, T1) == INVALID_STATE, "it may only be ended"
    assert two_phase.verify(third.producer, T0) == [INVALID_STATE]
    ended = two_phase.finish(third.producer, committed)
    assert ended == (NONE, Producer(first.id, first.epoch + 3))
    two_phase.crash()
    (markers,) = two_phase.write_markers()
    assert (markers.producer, markers.committed) == (next_epoch(first), committed)
    assert two_phase.finish(third.producer, committed) == ended, "a repeated one"
    assert two_phase.add(ended.producer) == NONE


def test_a_kept_transaction_can_still_be_aborted_by_a_producer_that_wants_none(two_phase: Driver) -> None:
    first = two_phase.begin(T0, two_phase=True)
    second = two_phase.init(two_phase=True, keep=True).producer
    assert two_phase.init(two_phase=True).error == CONCURRENT
    (markers,) = two_phase.write_markers()
    assert (markers.committed, markers.producer) == (False, next_epoch(first))
    third = two_phase.init(two_phase=True).producer
    assert third.id == first.id and third.epoch > second.epoch


def test_there_may_be_nothing_to_keep(two_phase: Driver) -> None:
    producer = two_phase.init(two_phase=True, keep=True)
    assert producer == (NONE, Producer(100, 0), NOBODY)
    assert two_phase.init(two_phase=True, keep=True) == (NONE, Producer(100, 1), NOBODY)


def test_a_producer_that_keeps_a_transaction_may_run_out_of_epochs_too(two_phase: Driver) -> None:
    first = Producer(7, LAST_EPOCH - 1)
    two_phase.put(Transaction("x", first, NO_TIMEOUT_MS, START_MS))
    two_phase.add(first)
    assert two_phase.init(keep=True, two_phase=True) == (NONE, Producer(7, LAST_EPOCH), first)
    assert two_phase.init(keep=True, two_phase=True) == (NONE, Producer(100, 0), first)
    two_phase.crash()
    assert two_phase.finish(Producer(100, 0)) == (NONE, Producer(100, 1))
    (markers,) = two_phase.write_markers()
    assert markers.producer == next_epoch(first)
    assert two_phase.txn().producer == Producer(100, 1)


def test_a_client_of_protocol_1_can_end_what_it_kept(two_phase: Driver) -> None:
    first = two_phase.begin(T0, two_phase=True)
    second = two_phase.init(two_phase=True, keep=True).producer
    assert two_phase.finish(second, version=0) == (NONE, NOBODY)
    (markers,) = two_phase.write_markers()
    assert markers.producer == first
    assert two_phase.txn().producer == second


# ---- the log


def test_what_was_decided_goes_on_after_a_crash(driver: Driver) -> None:
    producer = driver.begin(T0)
    driver.finish(producer)
    lost = driver.effects[0]
    driver.crash()
    assert driver.effects == [lost]
    driver.write_markers()
    assert driver.state() == State.COMPLETE_COMMIT


def test_markers_that_were_written_twice_complete_it_once(driver: Driver) -> None:
    bumped = driver.finish(driver.begin(T0)).producer
    late = driver.effects[0]
    driver.effects.append(late)
    driver.write_markers()
    driver.add(bumped)
    written = len(driver.log)
    driver.effects.append(late)
    driver.write_markers()
    assert driver.state() == State.ONGOING and len(driver.log) == written


def test_very_many_are_listed_in_slices() -> None:
    many = [Transaction(f"{n}", Producer(n, 0), 1000, START_MS) for n in range(3 * IDS_PER_SLICE)]
    work = selecting(many, Filter(producer_ids=frozenset((5, 450))), START_MS)
    turns = 0
    try:
        while True:
            next(work)
            turns += 1
    except StopIteration as end:
        assert [txn.transactional_id for txn in end.value] == ["5", "450"]
    assert turns == 2
