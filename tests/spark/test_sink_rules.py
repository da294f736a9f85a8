"""What the exactly-once sink does in one situation each, without Spark: `write` is a task, `Driver` commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import klamm.testing
from klamm import Admin, Producer
from klamm.client.admin.results import Results
from klamm.client.admin.transactions import TransactionDescription, TransactionListing
from klamm.client.errors import ClientError, UnsupportedVersion
from klamm.client.membership import Offset
from klamm.client.prepared import PreparedTransaction
from klamm.core.env.real import RealClock
from klamm.core.errors import ErrorCode
from klamm.spark.errors import SparkError
from klamm.spark.options import SinkOptions
from klamm.testing import Broker
from support.committed import read_all
from support.sink_actors import Actor

pytest.importorskip("pyspark")

from klamm.spark.sink.decisions import TOPIC, Decision, Names, of_application, of_one_write
from klamm.spark.sink.driver import _PRODUCER, Decider, give_up, transactions
from klamm.spark.sink.ends import LAST_LOOKS, HalfDone, NotDecided, abort_all, check_open
from klamm.spark.sink.task import Job, Worker, Written, admins, workers, write
from klamm.spark.sink.writer import Message, _Writes

SINK = "query:q"
NAMES = Names(SINK)


class Driver(_Writes):
    """With its own options; clients are kept, as in a process of Spark's."""

    def __init__(self, broker: Broker, **more: str) -> None:
        self.broker = broker
        self.options = SinkOptions.parse({"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", **more})

    def task(self, *values: str, batch: int = 0, job: Job | None = None) -> Written:
        import pyarrow as pa

        rows = pa.RecordBatch.from_pydict({"value": list(values)}, pa.schema({"value": pa.string()}))
        return write(iter([rows]), self.options, job or Job(SINK, batch))

    def commit(self, *written: Written, batch: int = 0, job: Job | None = None) -> None:
        self._commit(job or Job(SINK, batch), [Message(one) for one in written])

    def abort(self, *written: Written | None, batch: int = 0, job: Job | None = None) -> None:
        self._abort(job or Job(SINK, batch), [None if one is None else Message(one) for one in written])

    def dies(self) -> None:
        """Another process goes on: it has nothing of what was kept."""
        from klamm.spark.sink import task

        for kept in (task.admins, task.producers, task.workers):
            for client in kept._spare.values():
                client.close()
            kept._spare.clear()

    def dies_after_deciding(self, *written: Written, batch: int = 0) -> None:
        with self.decider() as decider:
            decider._decide(Decision(batch, tuple(transactions(written))))
        self.dies()

    @contextmanager
    def decider(self) -> Iterator[Decider]:
        client = self.options.client
        with Admin(config=dict(client)) as admin, Decider(admin, client, SINK) as found:
            yield found

    def found(self) -> list[str]:
        return sorted(value.decode() for value in read_all(self.broker.bootstrap, "t")[0])


@pytest.fixture
def driver(klamm_broker: Broker) -> Iterator[Driver]:
    klamm_broker.create_topic("t", retention_ms=-1)
    found = Driver(klamm_broker)
    yield found
    found.dies()


@pytest.fixture
def admin(klamm_broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=klamm_broker.bootstrap) as found:
        yield found


def open_ones(admin: Admin) -> list[str]:
    return [one.transactional_id for one in admin.list_transactions(states=["Ongoing"])]


def test_rows_are_seen_when_their_batch_is_committed_and_never_again(driver: Driver, admin: Admin) -> None:
    first, second = driver.task("a", "b"), driver.task("c")
    assert driver.found() == []
    driver.commit(first, second)
    assert driver.found() == ["a", "b", "c"]
    transactions_so_far = len(admin.list_transactions())
    again = driver.task("a", "b", "c")  # in other tasks
    assert again.is_done
    assert len(admin.list_transactions()) == transactions_so_far  # it did not even begin
    driver.commit(again)
    assert driver.found() == ["a", "b", "c"]
    assert open_ones(admin) == []


def test_what_another_attempt_wrote_is_aborted(driver: Driver, admin: Admin) -> None:
    kept, _lost = driver.task("a"), driver.task("a")
    driver.commit(kept)
    assert driver.found() == ["a"]
    assert open_ones(admin) == []


def test_a_task_that_was_too_late_ends_what_it_wrote(
    driver: Driver, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = transactions([driver.task("a")])
    write_all = Worker.write

    def meanwhile_decided(*args: Any) -> Written:
        with driver.decider() as decider:  # which has looked for others before
            written = write_all(*args)
            decider._decide(Decision(0, tuple(counted)))
        return written

    monkeypatch.setattr(Worker, "write", meanwhile_decided)
    assert driver.task("b").is_done
    assert open_ones(admin) == [counted[0].transactional_id]


def test_a_task_that_fails_ends_what_it_wrote(driver: Driver, admin: Admin) -> None:
    import pyarrow as pa

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"]}, pa.schema({"value": pa.string()}))
        while not open_ones(admin):
            pass
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as caught:
        write(rows(), driver.options, Job(SINK, 0))
    assert open_ones(admin) == []
    del caught  # up to here it holds on to the producer, so that nothing but the task can have ended it


def test_a_driver_that_comes_back_carries_out_what_was_decided(driver: Driver) -> None:
    driver.dies_after_deciding(driver.task("a"), driver.task("b"))
    assert driver.found() == []
    driver.commit(driver.task("a", "b"))
    assert driver.found() == ["a", "b"]


def test_a_replay_without_rows_carries_it_out_too(driver: Driver) -> None:
    driver.dies_after_deciding(driver.task("a"))
    driver.commit(Written(Job(SINK, 0)))
    assert driver.found() == ["a"]


def test_so_does_the_next_batch_if_nobody_came_back_for_this_one(driver: Driver) -> None:
    driver.dies_after_deciding(driver.task("a"))
    driver.commit(driver.task("b", batch=1), batch=1)
    assert driver.found() == ["a", "b"]


def test_an_abort_after_the_decision_undoes_nothing(driver: Driver) -> None:
    written = driver.task("a")
    driver.dies_after_deciding(written)
    driver.abort(written)
    driver.commit(driver.task("a"))
    assert driver.found() == ["a"]


def test_an_abort_waits_for_what_is_about_to_be_decided(driver: Driver) -> None:
    written = driver.task("a")
    hasty = Driver(driver.broker, **{"kafka.default.api.timeout.ms": "200"})
    with driver.decider() as decider:
        producer = decider._producer
        with producer.transaction():
            decision = Decision(0, tuple(transactions([written])))
            where = producer.send(TOPIC, decision.to_bytes(NAMES), key=SINK.encode())
            producer.send_offsets({(where.topic, where.partition): Offset(where.offset, metadata="0")}, NAMES.group)
            with pytest.raises(ClientError):
                hasty.abort(written)
    driver.commit(driver.task("a"))
    assert driver.found() == ["a"]


def test_an_abort_before_it_ends_what_was_written(driver: Driver, admin: Admin) -> None:
    driver.abort(driver.task("a"), None)
    assert open_ones(admin) == []
    with pytest.raises(NotDecided, match="is aborted"):
        driver.commit(driver.task("a"), late := driver.task("b"), _ended(admin, late))


def _ended(admin: Admin, written: Written) -> Written:
    admin.end_transactions(transactions([written]), committed=False).check()
    return Written(written.job)


def test_an_empty_batch_leaves_nothing_of_tasks_that_failed(driver: Driver, admin: Admin) -> None:
    driver.task("a")
    driver.commit(Written(Job(SINK, 0)))
    assert driver.found() == []
    assert open_ones(admin) == []
    assert driver.task("a").is_done


def test_a_driver_that_was_replaced_decides_nothing(driver: Driver) -> None:
    driver.commit(driver.task("a"))
    with driver.decider() as replaced:
        with driver.decider() as other:
            other.commit(Job(SINK, 1), [Written(Job(SINK, 1))])
        with pytest.raises(NotDecided, match="Another driver"):
            replaced.commit(Job(SINK, 1), [driver.task("b", batch=1)])
    driver.commit(driver.task("b", batch=1), batch=1)
    assert driver.found() == ["a", "b"]


def test_a_driver_that_was_replaced_ends_nothing_of_the_other(driver: Driver) -> None:
    with driver.decider() as replaced, driver.decider() as other:
        counted = driver.task("a")
        with pytest.raises(NotDecided, match="Another driver"):
            replaced.commit(Job(SINK, 0), [driver.task("b")])
        other.commit(Job(SINK, 0), [counted])
    assert driver.found() == ["a"]


def test_a_batch_of_which_a_task_says_that_it_is_decided_is_not_decided_again(driver: Driver) -> None:
    with pytest.raises(NotDecided, match="Another driver"):
        driver.commit(driver.task("a"), Written(Job(SINK, 0), is_done=True))
    assert driver.found() == []


def test_the_topic_of_decisions_may_be_made_by_two_at_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.commit(driver.task("a"))
    monkeypatch.setattr(Admin, "list_topics", lambda _: [])
    driver.commit(driver.task("b", batch=1), batch=1)
    assert driver.found() == ["a", "b"]


def test_batches_are_committed_by_any_of_several_processes(driver: Driver) -> None:
    """Spark has a pool of them, and the next commit of a query may be in another one than the last."""
    processes = [Actor({"kafka.bootstrap.servers": driver.broker.bootstrap, "topic": "t"}) for _ in range(2)]
    for batch, process in enumerate(processes * 2):
        process.start("commit", Job(SINK, batch), [driver.task(f"{batch}", batch=batch)])
        assert process.outcome() is None
    for process in processes:
        process.kill()
    assert driver.found() == ["0", "1", "2", "3"]


def test_a_group_that_was_forgotten_costs_no_batch(driver: Driver, admin: Admin) -> None:
    driver.commit(driver.task("a", batch=4), batch=4)
    driver.dies()
    admin.delete_groups([NAMES.group]).check()
    again = driver.task("a", batch=4)
    assert not again.is_done
    driver.commit(again, batch=4)
    assert driver.found() == ["a"]
    assert open_ones(admin) == []
    driver.commit(driver.task("b", batch=5), batch=5)
    assert driver.found() == ["a", "b"]
    assert open_ones(admin) == []


def test_without_its_record_a_decision_is_not_carried_out_by_guess(driver: Driver, admin: Admin) -> None:
    driver.dies_after_deciding(driver.task("a", job=Job(SINK, 0, run="r1")))
    (place,) = admin.list_group_offsets(NAMES.group).check()
    admin.alter_group_offsets(NAMES.group, {place: Offset(99, metadata="0")}).check()
    give_up(driver.options.client, SINK, "r1", are_at_work=False)
    with pytest.raises(HalfDone, match="the record of it in __klamm_spark_decisions is gone"):
        driver.commit(driver.task("a"))
    driver.commit(driver.task("b", batch=1), batch=1)
    assert driver.found() == ["b"]


def test_ids_are_used_again_only_after_a_commit(driver: Driver) -> None:
    first = driver.task("a")
    driver.commit(first)
    second = driver.task("b", batch=1)
    third = driver.task("c", batch=2)  # as if somebody went on without a commit
    driver.commit(second, batch=1)  # which aborts the third
    fourth = driver.task("c", batch=2)
    ids = [one.transactional_id for one in transactions([first, second, third, fourth])]
    assert ids == [ids[0], ids[0], ids[2], ids[0]]
    driver.commit(fourth, batch=2)
    fifth = driver.task("d", batch=3)
    sixth = driver.task("e", batch=3)
    assert ids[2] not in [one.transactional_id for one in transactions([fifth, sixth])]  # it tells of an abort
    driver.commit(fifth, sixth, batch=3)
    assert driver.found() == ["a", "b", "c", "d", "e"]
    (next_run,) = transactions([driver.task("f", job=Job(SINK, 4, run="r2"))])
    assert NAMES.is_of_run(next_run.transactional_id, "r2")


def test_two_sinks_that_take_turns_are_in_nobodys_way(driver: Driver, admin: Admin) -> None:
    one, other = Job("query:one", 0), Job("query:two", 0)
    written: list[Written] = []
    others: list[Written] = []
    for number in "01":
        written.append(driver.task(f"one{number}", job=one))
        others.append(driver.task(f"two{number}", job=other))
    client = driver.options.client
    with Decider(admin, client, one.sink) as first, Decider(admin, client, other.sink) as second:
        first.commit(one, written)
        second.commit(other, others)
    assert driver.found() == ["one0", "one1", "two0", "two1"]


def test_of_sinks_that_were_not_used_for_the_longest_time_no_producers_are_kept(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.spark.sink.task._MAX_SINKS", 1)
    one, other = Job("query:one", 0), Job("query:two", 0)
    written = driver.task("a", job=one)
    driver.task("b", job=other)
    (worker,) = workers._spare.values()
    assert [sink for sink, _ in worker._used] == [other.sink]
    driver.commit(written, job=one)  # what such a producer has prepared is open nevertheless
    assert driver.found() == ["a"]


def test_what_other_sinks_are_deciding_keeps_nobody_waiting(klamm_broker: Broker, admin: Admin) -> None:
    klamm_broker.create_topic("t", retention_ms=-1)
    driver = Driver(klamm_broker, **{"kafka.default.api.timeout.ms": "30000"})
    driver.commit(driver.task("a"))
    (place,) = admin.list_group_offsets(NAMES.group).check()
    with Producer(bootstrap_servers=klamm_broker.bootstrap, transactional_id="other") as other:
        other.begin()
        other.send(TOPIC, b"{}", key=b"other", partition=place.partition)
        driver.dies_after_deciding(driver.task("1", batch=1), batch=1)
        driver.commit(driver.task("1", batch=1), batch=1)
        new = Job("query:new", 0)
        driver.commit(driver.task("b", job=new), job=new)
        other.abort()
    assert driver.found() == ["1", "a", "b"]
    driver.dies()


def test_a_dead_driver_in_the_middle_of_a_decision_keeps_nobody_waiting(
    driver: Driver, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_PRODUCER, "transaction.timeout.ms", "600000")  # longer than anybody would wait for it
    with driver.decider() as decider:
        producer = decider._producer
        producer.begin()
        where = producer.send(TOPIC, b"{}", key=SINK.encode())
        producer.send_offsets({(where.topic, where.partition): where.offset}, NAMES.group)
        driver.commit(driver.task("a"))
    assert driver.found() == ["a"]
    assert open_ones(admin) == []


# Time limits.


def test_two_phase_transactions_wait_for_their_driver(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t", retention_ms=-1)
    driver = Driver(klamm_broker, **{"kafka.transaction.timeout.ms": "1"})
    written = driver.task("a")
    klamm_broker.advance_time(86_400)
    driver.commit(written)
    assert driver.found() == ["a"]
    driver.dies()


def test_a_decision_has_a_time_limit_also_if_tasks_must_have_none(klamm_broker: Broker, admin: Admin) -> None:
    driver = Driver(klamm_broker, **{"kafka.transaction.two.phase.commit.enable": "true"})
    with driver.decider() as decider:
        decider._producer.begin()
        decider._producer.send(TOPIC, b"{}", key=b"x")
        now = admin.describe_transactions([NAMES.decider])[NAMES.decider]
    assert (now.has_limit, now.timeout_ms) == (True, 30_000)


LIMITED = {"kafka.transaction.two.phase.commit.enable": "false"}
SOON = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 10}


def time_out(broker: Broker) -> None:
    """When this returns, every transaction with a time limit is over."""
    broker.advance_time(3600)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        while any(one.state != "CompleteAbort" and "/task/" in one.transactional_id for one in not_committed(admin)):
            pass


def not_committed(admin: Admin) -> list[TransactionListing]:
    return [one for one in admin.list_transactions() if one.state != "CompleteCommit"]


@pytest.mark.parametrize("allowed", [True, False])
def test_without_two_phases_it_works_until_they_time_out(allowed: bool) -> None:
    with klamm.testing.broker(transaction_two_phase_commit_enable=allowed, **SOON) as broker:
        broker.create_topic("t", retention_ms=-1)
        driver = Driver(broker, **(LIMITED if allowed else {}))
        driver.commit(driver.task("a"))
        late = driver.task("b", batch=1)
        time_out(broker)
        with pytest.raises(NotDecided, match="is aborted"):
            driver.commit(late, batch=1)
        driver.commit(driver.task("b", batch=1), batch=1)
        assert driver.found() == ["a", "b"]
        driver.dies()


def test_what_is_about_to_time_out_is_not_decided_about() -> None:
    one = PreparedTransaction("x", 1, 2)
    for age_ms, told in ((0, True), (660_000, True), (850_000, False), (904_000, False), (3_600_000, True)):
        start_ms = RealClock().time_ms() - age_ms
        now = TransactionDescription("x", "Ongoing", 0, 1, 2, 900_000, start_ms, ())
        if told:
            check_open(_Knows(now), [one], "It")
        else:
            with pytest.raises(NotDecided, match="about to time out"):
                check_open(_Knows(now), [one], "It")


class _Knows(Admin):
    """An admin that knows one transaction, and no broker."""

    def __init__(self, one: TransactionDescription) -> None:
        self._one = one

    def describe_transactions(self, ids: object) -> Results[str, TransactionDescription]:
        return Results({"x": self._one})


def test_what_timed_out_after_the_decision_is_told_and_can_be_gone_on_without() -> None:
    with klamm.testing.broker(**SOON) as broker:
        broker.create_topic("t", retention_ms=-1)
        driver = Driver(broker, **LIMITED)
        driver.dies_after_deciding(driver.task("a"))
        time_out(broker)
        again = driver.task("a")
        with pytest.raises(HalfDone, match="Rows may be missing"):
            driver.commit(again)
        resigned = Driver(broker, failOnDataLoss="false", **LIMITED)
        resigned.commit(again)
        resigned.commit(resigned.task("b", batch=1), batch=1)
        assert driver.found() == ["b"]
        driver.dies()


# Batch writes.


def test_a_write_without_a_name_leaves_no_group_and_no_decision(driver: Driver, admin: Admin) -> None:
    job = Job(of_one_write("w"), 0, is_once=True)
    written = [driver.task("a", job=job), driver.task("b", job=job)]
    driver.task("b", job=job)  # a second attempt
    listed = admin.describe_transactions(open_ones(admin))
    assert [one.has_limit for one in listed.values()] == [True] * 3  # nobody comes back for them
    driver.commit(*written, job=job)
    assert driver.found() == ["a", "b"]
    assert open_ones(admin) == []
    assert admin.list_groups() == []
    assert TOPIC not in admin.list_topics()


def test_an_abort_after_half_of_a_commit_goes_on_with_it(driver: Driver, klamm_broker: Broker, admin: Admin) -> None:
    job = Job(of_one_write("w"), 0, is_once=True)
    written = [driver.task("a", job=job), driver.task("b", job=job)]
    admin.end_transactions(transactions(written[:1]), committed=True).check()
    driver.abort(*written, job=job)
    assert driver.found() == ["a", "b"]


def test_a_write_of_which_a_part_is_lost_is_not_committed_and_if_it_is_half_done_that_is_told(
    driver: Driver, admin: Admin
) -> None:
    job = Job(of_one_write("w"), 0, is_once=True)
    written = [driver.task("a", job=job), driver.task("b", job=job)]
    admin.end_transactions(transactions(written[:1]), committed=False).check()
    with pytest.raises(NotDecided, match="is aborted"):
        driver.commit(*written, job=job)
    assert driver.found() == []
    admin.end_transactions(transactions(written[1:]), committed=True).check()
    with pytest.raises(HalfDone, match="1 of 2 transactions of the write could not be committed"):
        driver.abort(*written, job=job)


def test_an_abort_of_a_write_ends_all_of_it(driver: Driver, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is begun while it is looked for."""
    job = Job(of_one_write("w"), 0, is_once=True)
    written = driver.task("a", job=job)
    driver.task("b", job=job)
    looks = []

    def look_again(_: float) -> None:
        looks.append(open_ones(admin))
        driver.task("b", job=job)

    monkeypatch.setattr("klamm.spark.sink.once.time", SimpleNamespace(sleep=look_again))
    driver.abort(written, None, job=job)
    assert looks == [[]] * LAST_LOOKS
    assert driver.found() == []
    assert open_ones(admin) == []


def test_one_application_may_write_a_version_to_several_topics() -> None:
    names = {of_application("a", "t"), of_application("a", "u"), of_application("a", None), of_application("t:a", None)}
    assert len(names) == 4
    assert Names(of_application("x", "t")).tasks([Names(of_application("x/task/y", "t")).transaction("w", 0)]) == []


def test_a_transaction_that_lasts_longer_than_brokers_allow_is_an_option_to_mend() -> None:
    limits = {"transaction_two_phase_commit_enable": False, "transaction_max_timeout_ms": 60_000}
    with klamm.testing.broker(**limits) as broker:
        broker.create_topic("t")
        with pytest.raises(klamm.spark.errors.BadOption, match=r"Set kafka.transaction.timeout.ms"):
            Driver(broker).task("a")
        driver = Driver(broker, **{"kafka.transaction.timeout.ms": "60000"})
        assert driver.task("a").transaction is not None
        driver.dies()
        with pytest.raises(UnsupportedVersion, match="takes no two-phase transactions"):  # who insists on them is told
            Driver(broker, **{"kafka.transaction.two.phase.commit.enable": "TRUE"}).task("a")


def test_an_end_that_is_refused_for_a_while_is_tried_again(driver: Driver, klamm_broker: Broker) -> None:
    written = driver.task("a")
    klamm_broker.fail("EndTxn", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    driver.commit(written)
    assert driver.found() == ["a"]


# Two drivers, and runs that are given up.


def test_what_a_decision_has_voided_counts_for_nobody(driver: Driver, admin: Admin) -> None:
    """A driver that was thought dead decides about a batch without rows, and aborts what it saw open before; but not at
    once. Meanwhile the other one, which is further, is about to count just that."""
    driver.commit(driver.task("a"))
    with driver.decider() as replaced:
        next_ones = driver.task("c", batch=2)
        void = replaced._finish_last(set())
        replaced._decide(Decision(1, (), tuple(void)))
        with pytest.raises(NotDecided, match="given up by another driver"):
            driver.commit(next_ones, batch=2)
        abort_all(admin, void)
    driver.commit(driver.task("c", batch=2), batch=2)
    assert driver.found() == ["a", "c"]
    assert open_ones(admin) == []


def test_a_decision_says_all_that_it_aborts(driver: Driver, admin: Admin) -> None:
    lost = driver.task("a")
    driver.commit(driver.task("a"))
    with driver.decider() as decider:
        assert decider._last is not None
        assert decider._last.void == tuple(transactions([lost]))


@pytest.mark.parametrize("batch", [0, 1])
def test_what_tasks_have_open_is_ended_when_their_run_is_given_up(batch: int, driver: Driver, admin: Admin) -> None:
    """They were stopped, and have told nobody of it. What another run has open is not touched."""
    if batch:
        driver.commit(driver.task("a", job=Job(SINK, 0, run="r1")), batch=0)
    driver.task("b", job=Job(SINK, batch, run="r1"))
    other = driver.task("x", job=Job(SINK, batch, run="r3"))
    give_up(driver.options.client, SINK, "r1", are_at_work=False)
    assert open_ones(admin) == [one.transactional_id for one in transactions([other])]
    abort_all(admin, transactions([other]))
    driver.commit(driver.task("b", job=Job(SINK, batch, run="r2")), batch=batch)
    assert driver.found() == ["a", "b"][1 - batch :]


def test_what_tasks_begin_while_their_run_is_given_up_is_ended_as_long_as_that_is_needed(
    driver: Driver, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, looks = Job(SINK, 0, run="r1"), []

    def look_again(_: float) -> None:
        looks.append(open_ones(admin))
        driver.task("a", job=job)

    monkeypatch.setattr("klamm.spark.sink.driver.time", SimpleNamespace(sleep=look_again))
    give_up(driver.options.client, SINK, "r1")
    assert looks == [[]] * LAST_LOOKS
    assert open_ones(admin) == []
    driver.task("a", job=job)
    give_up(driver.options.client, SINK, "r1", is_needed=lambda: False)
    assert len(open_ones(admin)) == 1


def test_who_was_about_to_commit_what_is_given_up_cannot(driver: Driver, admin: Admin) -> None:
    job = Job(SINK, 0, run="r1")
    written = driver.task("a", job=job)
    with driver.decider() as decider:
        give_up(driver.options.client, SINK, "r1", are_at_work=False)
        with pytest.raises(NotDecided):
            decider.commit(job, [written])
    with pytest.raises(NotDecided):
        driver.commit(written, job=job)
    assert driver.found() == []


def test_who_gives_up_writes_that_down_beside_what_was_void_before(driver: Driver, admin: Admin) -> None:
    before = driver.task("a", job=Job(SINK, 0, run="r3"))
    with driver.decider() as decider:
        decider._decide(Decision(0, (), tuple(transactions([before]))))  # and dies before it is aborted
    left = driver.task("b", job=Job(SINK, 1, run="r1"))
    give_up(driver.options.client, SINK, "r1", are_at_work=False)
    for is_group_known in (True, False):
        with driver.decider() as decider:
            assert decider._last == Decision(0, (), tuple(sorted(transactions([before, left]))))
        if is_group_known:
            admin.delete_groups([NAMES.group]).check()


def test_a_run_that_has_left_nothing_is_given_up_without_replacing_anybody(driver: Driver) -> None:
    kept = dict(admins._spare)
    with driver.decider() as decider:
        give_up(driver.options.client, SINK, "r1", are_at_work=False)
        assert admins._spare == kept  # several runs may end at once, and those are for one thread
        decider.commit(Job(SINK, 0), [driver.task("a", job=Job(SINK, 0, run="r2"))])
    assert driver.found() == ["a"]


def test_what_was_decided_is_not_given_up_but_committed(driver: Driver) -> None:
    written = driver.task("a", job=Job(SINK, 0, run="r1"))
    driver.dies_after_deciding(written)
    give_up(driver.options.client, SINK, "r1", are_at_work=False)
    assert driver.found() == ["a"]
    with driver.decider() as decider:
        assert decider._last == Decision(0, tuple(transactions([written])))
    driver.commit(driver.task("a"))
    assert driver.found() == ["a"]


def test_what_was_decided_before_is_not_given_up_with_the_next_batch(driver: Driver, admin: Admin) -> None:
    driver.dies_after_deciding(driver.task("a", job=Job(SINK, 0, run="r1")))
    driver.task("b", job=Job(SINK, 1, run="r1"))
    give_up(driver.options.client, SINK, "r1", are_at_work=False)
    driver.commit(driver.task("b", batch=1), batch=1)
    assert driver.found() == ["a", "b"]
    assert open_ones(admin) == []


def test_decisions_that_cannot_be_read_are_not_waited_for_without_end(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t", retention_ms=-1)
    driver = Driver(klamm_broker, **{"kafka.default.api.timeout.ms": "1000"})
    driver.commit(driver.task("a"))
    klamm_broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1_000_000)
    with pytest.raises(NotDecided, match="cannot be read"):
        driver.commit(driver.task("b", batch=1), batch=1)
    driver.dies()


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_is_told(driver: Driver, header: object) -> None:
    import pyarrow as pa

    kinds = {"value": pa.string(), "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))}
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "headers": [[header]]}, pa.schema(kinds))
    with pytest.raises(SparkError, match="A header of a row has no key"):
        write(iter([rows]), driver.options, Job(SINK, 0))
