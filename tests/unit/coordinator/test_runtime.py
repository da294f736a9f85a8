"""Coordinators on real files: who is answered when, what a restart brings back, and what becomes of a failed write."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from klamm.controller import TopicToDelete
from klamm.coordinator import loading
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record
from klamm.coordinator.records import encode_batch
from klamm.coordinator.runtime import TRANSACTIONS_TOPIC
from klamm.core.errors import BrokerError, ErrorCode
from klamm.log.compaction.cleaner import Cleaner
from klamm.log.results import Appended, Rejected
from klamm.records.record import ControlType, EndMarker
from klamm.replica.pending import Pending
from klamm.wire.messages.coordinator import TransactionLogKey
from support.coordinators import Ledger, Site, answered, number_record

Start: TypeAlias = Callable[..., Coroutine[Any, Any, Site[Ledger]]]
TOPIC = "__consumer_offsets"
TRANSACTION = Record(TransactionLogKey(transactional_id="x"), None)
COMMIT = EndMarker(ControlType.COMMIT, 0)
ABORT = EndMarker(ControlType.ABORT, 0)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    sites: list[Site[Ledger]] = []

    async def begin(**options: str) -> Site[Ledger]:
        site: Site[Ledger] = Site(tmp_path, Ledger, **{"offsets_topic_num_partitions": "4"} | options)
        sites.append(site)
        await site.start()
        await site.coordinator.ensure_topic()
        return site

    yield begin
    for site in sites:
        site.disk.failing = 0
        await site.stop()
        site.env.executor.close()


@pytest.fixture
async def site(start: Start) -> Site[Ledger]:
    return await start()


def put(name: str, number: int, **options: Any) -> Callable[[Ledger, Any, Now], Outcome]:
    return lambda machine, reply, now: machine.put(reply, name, number, **options)


def get(name: str) -> Callable[[Ledger, Any, Now], Outcome]:
    return lambda machine, reply, now: machine.get(reply, name)


def wait(machine: Ledger, reply: Any, now: Now) -> Outcome:
    return machine.wait(reply)


async def restart(site: Site[Ledger], *, killed: bool = False) -> None:
    await (site.kill() if killed else site.stop())
    await site.start()
    await site.ready()


def machine_of(site: Site[Ledger], key: str) -> Ledger:
    return dict(site.coordinator.shards())[site.coordinator.partition_of(key)]


# ---- answers


async def test_an_answer_comes_in_the_same_call(site: Site[Ledger]) -> None:
    assert site.ask("k", put("a", 1)) == "a=1"
    assert site.ask("k", get("a")) == 1


async def test_keys_are_spread_over_the_partitions_as_by_kafka(site: Site[Ledger]) -> None:
    for key in ("a", "b", "hello", "my-group"):
        assert site.ask(key, put(key, 1)) == f"{key}=1"
    assert {index: list(machine.numbers) for index, machine in site.coordinator.shards()} == {
        97 % 4: ["a"],
        98 % 4: ["b", "hello", "my-group"],
    }


async def test_an_answer_may_be_given_by_a_later_event(site: Site[Ledger]) -> None:
    waiting = site.ask("k", wait)
    assert isinstance(waiting, Pending) and not waiting.done
    await site.coordinator.run(site.coordinator.partition_of("k"), lambda machine, now: machine.release("now"))
    assert await answered(waiting) == "now"


async def test_a_client_that_has_gone_is_answered_no_more(site: Site[Ledger]) -> None:
    waiting = site.ask("k", wait)
    waiting.cancel()
    assert machine_of(site, "k").waiting[0].done  # so that the machine can tell
    site.coordinator.close()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(answered(waiting), 0)


async def test_without_its_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    site: Site[Ledger] = Site(tmp_path, Ledger)
    await site.start()
    assert site.ask("k", get("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(BrokerError):
        await site.coordinator.run(0, lambda machine, now: Outcome())
    assert site.coordinator.partition_of("k") == -1
    await site.stop()
    site.env.executor.close()


async def test_more_replicas_than_there_are_brokers_are_not_waited_for(tmp_path: Path) -> None:
    site: Site[Ledger] = Site(tmp_path, Ledger, TRANSACTIONS_TOPIC)
    await site.start()
    await site.coordinator.ensure_topic()
    configs = site.publisher.image.topic_configs("__transaction_state")
    assert configs["min.insync.replicas"] == "2"  # as Kafka has it; in force once there are so many
    await site.coordinator.run(0, lambda machine, now: Outcome([TRANSACTION]))
    await site.stop()
    site.env.executor.close()


async def test_effects_start_when_their_records_are_committed(site: Site[Ledger]) -> None:
    seen: list[tuple[int, object, int]] = []
    partition = site.partition(1)
    site.coordinator.on_effect = lambda index, effect: seen.append((index, effect, partition.high_watermark))
    await site.coordinator.run(1, lambda machine, now: Outcome([number_record("a", 1)], effects=["do"]))
    assert seen == [(1, "do", 1)]


async def test_an_effect_may_bring_about_the_next_event(site: Site[Ledger]) -> None:
    def on_effect(index: int, effect: object) -> None:
        site.coordinator.run(index, lambda machine, now: Outcome([number_record("second", 2)]))

    site.coordinator.on_effect = on_effect
    await site.coordinator.run(1, lambda machine, now: Outcome([number_record("first", 1)], effects=["go"]))
    assert dict(site.coordinator.shards())[1].numbers == {"first": 1, "second": 2}


# ---- waiting for the disk


async def test_answers_wait_until_their_records_are_committed_and_reads_behind_them_too(start: Start) -> None:
    site = await start(log_flush_interval_messages="1")  # every write goes to a thread, and is synced there
    written, read = site.ask("k", put("a", 1)), site.ask("k", get("a"))
    assert isinstance(written, Pending) and isinstance(read, Pending)
    assert machine_of(site, "k").numbers == {"a": 1}  # what comes next is decided on it
    assert await answered(written) == "a=1"
    assert await answered(read) == 1
    assert site.ask("k", get("a")) == 1


async def test_a_write_that_fails_behind_its_answer_s_back_refuses_everybody_who_waits(start: Start) -> None:
    site = await start(log_flush_interval_messages="1")
    assert await site.answer("k", put("a", 1)) == "a=1"
    waiting = site.ask("k", wait)
    site.disk.failing = errno.ENOSPC
    lost, read = site.ask("k", put("a", 2)), site.ask("k", get("a"))
    done = site.coordinator.run(site.coordinator.partition_of("k"), lambda machine, now: Outcome())
    assert await answered(lost) is ErrorCode.NOT_COORDINATOR
    assert await answered(read) is ErrorCode.NOT_COORDINATOR
    assert await answered(waiting) == "resigned NOT_COORDINATOR"
    with pytest.raises(BrokerError):
        await done
    site.disk.failing = 0
    assert site.ask("k", get("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await site.ready()
    assert site.ask("k", get("a")) == 1
    assert await site.answer("k", put("a", 3)) == "a=3"


async def test_a_shard_that_starts_anew_waits_for_what_is_still_on_its_way_to_the_disk(start: Start) -> None:
    site = await start(log_flush_interval_messages="1")
    index = site.coordinator.partition_of("k")
    assert await site.answer("k", put("a", 1)) == "a=1"
    site.ask("k", put("a", 2))
    site.coordinator._shards[index]._start_anew(ErrorCode.NOT_COORDINATOR)
    await site.ready()
    assert site.ask("k", get("a")) == 2


async def test_an_effect_that_brings_the_machine_down_leaves_nothing_of_what_was_refused_to_be_done(
    start: Start,
) -> None:
    site = await start(log_flush_interval_messages="1")
    index = site.coordinator.partition_of("k")
    await site.answer("k", put("a", 1))
    done: list[object] = []

    def on_effect(partition: int, effect: object) -> None:
        done.append(effect)
        site.coordinator._shards[index]._start_anew(ErrorCode.NOT_COORDINATOR)

    site.coordinator.on_effect = on_effect
    first = site.coordinator.run(index, lambda m, now: Outcome([number_record("b", 1)], effects=["first"]))
    second = site.coordinator.run(index, lambda m, now: Outcome(effects=["second"]))
    await first
    with pytest.raises(BrokerError):
        await second
    await site.ready()
    assert done == ["first"]
    assert site.ask("k", get("b")) == 1


async def test_a_machine_that_cannot_begin_is_not_used(site: Site[Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    site.ask("k", put("a", 1))
    await site.stop()
    monkeypatch.setattr("klamm.coordinator.shard.FIRST_RETRY_S", 0)
    original, failed = Ledger.loaded, []

    def loaded(machine: Ledger, now: Now) -> Outcome:
        if len(failed) < 3:
            failed.append(machine)
            raise KeyError("a mistake")
        return original(machine, now)

    monkeypatch.setattr(Ledger, "loaded", loaded)
    await site.start()
    await site.ready()
    assert len(failed) == 3
    assert machine_of(site, "k") not in failed
    assert site.ask("k", get("a")) == 1


async def test_a_shard_that_loads_and_cannot_write_pauses_before_it_loads_again(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask("k", put("a", 1))
    await site.stop()
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            site.disk.failing = errno.ENOSPC if len(pauses) < 4 else 0
        await sleep(0)

    monkeypatch.setattr("klamm.coordinator.shard.asyncio.sleep", pause)
    monkeypatch.setattr(Ledger, "loaded", lambda machine, now: Outcome([number_record("b", 2)]))
    await site.start()
    site.disk.failing = errno.ENOSPC
    await site.ready()
    assert pauses == [0.1, 0.2, 0.4, 0.8]
    assert machine_of(site, "k").numbers == {"a": 1, "b": 2}


# ---- restarts


@pytest.mark.parametrize("killed", [False, True])
async def test_a_restart_brings_back_what_was_answered(site: Site[Ledger], killed: bool) -> None:
    for number in range(20):
        assert site.ask(f"k{number % 5}", put(f"n{number}", number)) == f"n{number}={number}"
    before = {index: machine.durable for index, machine in site.coordinator.shards()}
    await restart(site, killed=killed)
    assert {index: machine.durable for index, machine in site.coordinator.shards()} == before


async def test_the_image_comes_first_and_then_everything_is_loaded(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    await restart(site)
    machine = machine_of(site, "k")
    assert machine.events == ["image", "loaded"]
    assert machine.images == [site.publisher.image]


async def test_a_machine_is_told_of_new_metadata(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    from klamm.controller import NewTopic

    await site.controller.create_topics([NewTopic("other", 1)])
    assert machine_of(site, "k").images[-1] is site.publisher.image


async def test_loading_gives_others_their_turn_and_answers_that_it_loads(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = site.coordinator.partition_of("k")
    for number in range(1000):
        site.ask("k", put(f"n{number}", number))
    await site.stop()
    monkeypatch.setattr(loading, "READ_BYTES", 5000)
    await site.start()
    turns = 0
    while site.coordinator.loading:
        assert site.ask("k", get("n1")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = site.coordinator.write_marker(index, Producer(1, 0), COMMIT)
        assert isinstance(refused, Rejected) and refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    assert len(machine_of(site, "k").numbers) == 1000


async def test_a_batch_of_many_records_is_replayed_in_slices(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = site.coordinator.partition_of("k")
    records = [number_record(f"n{i}", i) for i in range(500)]
    await site.coordinator.run(index, lambda machine, now: Outcome(records))
    replayed: list[int] = []
    original = Ledger.replay

    def counting(self: Ledger, record: Any, producer: Any = None) -> None:
        replayed[-1] += 1
        original(self, record, producer)

    monkeypatch.setattr(Ledger, "replay", counting)
    replayed.append(0)
    await site.stop()
    await site.start()
    while site.coordinator.loading:
        await asyncio.sleep(0)
        replayed.append(0)
    assert sum(replayed) == 500
    assert max(replayed) <= loading.RECORDS_PER_SLICE


async def test_a_shard_that_is_asked_for_loads_before_the_others(start: Start) -> None:
    site = await start(offsets_topic_num_partitions="20")
    for number in range(20):
        await site.coordinator.run(number, lambda machine, now: Outcome([number_record("a", 1)]))
    await site.stop()
    await site.start()
    key = next(key for key in map(str, range(1000)) if site.coordinator.partition_of(key) == 19)
    order: list[int] = []
    while site.coordinator.loading:
        site.ask(key, get("a"))
        order += [index for index, _ in site.coordinator.shards() if index not in order]
        await asyncio.sleep(0)
    assert order.index(19) < 10  # behind those that had their turn by then
    assert len(list(site.coordinator.shards())) == 20


async def test_a_load_that_is_called_off_gives_its_turn_to_the_next() -> None:
    turns = loading.Turns(1)
    await turns.take(0)
    waiting = {index: asyncio.ensure_future(turns.take(index)) for index in (1, 2, 3)}
    await asyncio.sleep(0)
    turns.hurry(3)
    turns.give_back()  # to 3, which is called off before it can tell
    waiting[3].cancel()
    waiting[1].cancel()
    await asyncio.wait_for(waiting[2], 1)
    turns.give_back()
    await asyncio.wait_for(turns.take(4), 1)


async def test_what_a_newer_broker_has_written_is_skipped(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    index = site.coordinator.partition_of("k")
    from klamm.records.record import Record as Stored
    from klamm.records.record import encode_batch as encode_stored

    future = bytearray(encode_stored([Stored(0, 0, b"\x00\x63?", b"\x00\x00?")]))
    assert isinstance(site.partition(index).append_internal(future), Appended)
    site.ask("k", put("b", 2))
    await restart(site)
    assert machine_of(site, "k").numbers == {"a": 1, "b": 2}


async def test_a_log_that_starts_later_is_loaded_from_there(site: Site[Ledger]) -> None:
    for number in range(5):
        site.ask("k", put(f"n{number}", number))
    log = site.partition(site.coordinator.partition_of("k")).log
    assert log is not None
    log.advance_start_offset(3)
    await restart(site)
    assert machine_of(site, "k").numbers == {"n3": 3, "n4": 4}


async def test_a_compacted_log_brings_back_the_same(start: Start) -> None:
    site = await start(offsets_topic_segment_bytes="2000", log_cleaner_min_cleanable_ratio="0.01")
    index = site.coordinator.partition_of("k")

    def write(number: int | None, producer: Producer | None = None) -> Any:
        name = f"n{turn % 7}"
        return site.coordinator.run(index, lambda m, now: Outcome([number_record(name, number)], producer=producer))

    for turn in range(300):
        ending = Producer(turn % 3, 0)
        await write(None if turn % 10 == 9 else turn)
        await write(turn + 1000, ending)
        if turn % 4 == 0:
            site.coordinator.write_marker(index, ending, ABORT if turn % 8 else COMMIT)
    before = machine_of(site, "k").durable
    log = site.partition(index).log
    assert log is not None and before[0] and before[1]
    await log.flush()
    size = log.size_bytes
    await Cleaner(site.logs).compact(log)
    assert log.size_bytes < size * 0.9
    await restart(site)
    assert machine_of(site, "k").durable == before


async def test_a_log_that_cannot_be_understood_keeps_its_shard_loading_and_hurts_nobody_else(
    site: Site[Ledger], caplog: pytest.LogCaptureFixture
) -> None:
    site.ask("a", put("a", 1))
    site.ask("b", put("b", 1))
    index = site.coordinator.partition_of("a")
    from klamm.records.record import Record as Stored
    from klamm.records.record import encode_batch as encode_stored

    site.partition(index).append_internal(bytearray(encode_stored([Stored(0, 0, b"\x00\x02?", b"\x00\x00?")])))
    await site.stop()
    await site.start()
    while site.ask("b", get("b")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0)
    assert site.ask("b", get("b")) == 1
    while "cannot be loaded" not in caplog.text:
        await asyncio.sleep(0)
    assert site.ask("a", get("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert site.coordinator.loading


# ---- transactions


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("marker", [COMMIT, ABORT])
async def test_what_is_written_in_a_transaction_counts_when_its_marker_comes(
    site: Site[Ledger], marker: EndMarker, restarted: bool
) -> None:
    producer, index = Producer(7, 0), site.coordinator.partition_of("k")
    records = [number_record("a", 1)]
    await site.coordinator.run(index, lambda machine, now: Outcome(records, producer=producer))
    assert machine_of(site, "k").durable == ({}, {producer: {"a": 1}})
    if restarted:
        await restart(site)
        assert machine_of(site, "k").durable == ({}, {producer: {"a": 1}})
    written = site.coordinator.write_marker(index, producer, marker)
    assert isinstance(written, Appended)
    expected: Any = ({"a": 1} if marker is COMMIT else {}, {})
    assert machine_of(site, "k").durable == expected
    await restart(site)
    assert machine_of(site, "k").durable == expected


async def test_records_of_a_fenced_producer_are_refused_and_the_machine_stays(site: Site[Ledger]) -> None:
    index = site.coordinator.partition_of("k")
    await site.coordinator.run(index, lambda m, now: Outcome([number_record("a", 1)], producer=Producer(7, 3)))
    machine = machine_of(site, "k")

    def late(machine: Ledger, reply: Any, now: Now) -> Outcome:
        answer = [Answer(reply, "done")]
        return Outcome([number_record("a", 2)], answer, producer=Producer(7, 2), only_records=True)

    assert site.ask("k", late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert machine_of(site, "k") is machine
    refused = site.coordinator.write_marker(index, Producer(7, 2), COMMIT)
    assert isinstance(refused, Rejected) and refused.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert machine.durable == ({}, {Producer(7, 3): {"a": 1}})


# ---- failed appends


async def test_after_a_failed_append_the_machine_starts_anew_from_the_log(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    waiting, before = site.ask("k", wait), machine_of(site, "k")
    site.disk.failing = errno.ENOSPC
    assert site.ask("k", put("a", 2, only_records=False)) is ErrorCode.NOT_COORDINATOR
    assert await answered(waiting) == "resigned NOT_COORDINATOR"
    site.disk.failing = 0
    await site.ready()
    assert machine_of(site, "k") is not before
    assert site.ask("k", get("a")) == 1
    assert site.ask("k", put("a", 3)) == "a=3"
    await restart(site, killed=True)
    assert machine_of(site, "k").numbers == {"a": 3}


async def test_where_only_records_came_of_it_a_failed_append_is_only_refused(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    waiting, before = site.ask("k", wait), machine_of(site, "k")
    site.disk.failing = errno.ENOSPC
    assert site.ask("k", put("a", 2)) is ErrorCode.NOT_COORDINATOR
    site.disk.failing = 0
    assert machine_of(site, "k") is before and not waiting.done
    assert site.ask("k", get("a")) == 1


async def test_what_is_too_large_is_an_unknown_error_as_with_kafka(site: Site[Ledger]) -> None:
    def put_much(machine: Ledger, reply: Any, now: Now) -> Outcome:
        records = [number_record(f"n{i}", i, "x" * 30_000) for i in range(40)]
        return Outcome(records, [Answer(reply, "done")], only_records=True)

    assert site.ask("k", put_much) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert site.ask("k", get("n1")) == "nothing"


async def test_what_cannot_be_encoded_is_not_written_and_the_machine_starts_anew(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    assert site.ask("k", put("b", 2**63, only_records=False)) is ErrorCode.UNKNOWN_SERVER_ERROR
    await site.ready()
    assert machine_of(site, "k").numbers == {"a": 1}


async def test_an_event_whose_records_are_not_written_fails(site: Site[Ledger]) -> None:
    index = site.coordinator.partition_of("k")
    site.ask("k", put("a", 1))
    site.disk.failing = errno.ENOSPC
    with pytest.raises(BrokerError) as caught:
        await site.coordinator.run(index, lambda machine, now: Outcome([number_record("b", 1)]))
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_log_that_is_offline_is_loaded_when_it_is_back(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    site.disk.failing = errno.EIO  # no reason to hope: the log goes offline
    assert site.ask("k", put("a", 2)) is ErrorCode.NOT_COORDINATOR
    assert site.ask("k", get("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    site.disk.failing = 0
    await restart(site, killed=True)
    assert site.ask("k", get("a")) == 1


async def test_a_record_that_cannot_be_replayed_makes_the_machine_start_anew(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask("k", put("a", 1))

    def broken(*args: Any) -> None:
        raise KeyError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "replay", broken)
        with pytest.raises(KeyError):
            site.ask("k", put("a", 2))
    await site.ready()
    assert site.ask("k", get("a")) == 2  # it is in the log


# ---- leadership


async def test_whoever_waits_is_told_when_another_broker_leads(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    waiting = site.ask("k", wait)
    partition = site.partition(site.coordinator.partition_of("k"))
    log = partition.log
    assert log is not None
    partition.stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 5)
    assert await answered(waiting) == "resigned NOT_COORDINATOR"
    assert site.ask("k", get("a")) is ErrorCode.NOT_COORDINATOR
    partition.lead(log, 1, 6, isr_size=1, min_isr=1)
    site.ask("k", get("a"))
    await site.ready()
    assert site.ask("k", get("a")) == 1


async def test_another_epoch_means_another_machine(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    before = machine_of(site, "k")
    partition = site.partition(site.coordinator.partition_of("k"))
    assert partition.log is not None
    partition.lead(partition.log, 1, partition.leader_epoch + 1, isr_size=1, min_isr=1)
    await site.ready()
    assert machine_of(site, "k") is not before
    assert site.ask("k", get("a")) == 1


async def test_too_few_replicas_means_that_the_coordinator_is_not_available(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    partition = site.partition(site.coordinator.partition_of("k"))
    partition.min_isr, partition.followers = 2, (2, 3)
    assert site.ask("k", put("a", 2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_deleting_the_topic_ends_everything_that_was_in_it(site: Site[Ledger]) -> None:
    site.ask("k", put("a", 1))
    waiting = site.ask("k", wait)
    await site.controller.delete_topics([TopicToDelete(TOPIC)])
    assert await answered(waiting) == "resigned NOT_COORDINATOR"
    assert site.ask("k", get("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not list(site.coordinator.shards())
    assert await site.coordinator.ensure_topic() is ErrorCode.NONE
    assert site.ask("k", get("a")) == "nothing"


async def test_a_stop_answers_everybody_and_takes_nobody(site: Site[Ledger]) -> None:
    waiting = site.ask("k", wait)
    site.coordinator.close()
    assert await answered(waiting) == "resigned COORDINATOR_NOT_AVAILABLE"
    assert site.ask("k", get("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await site.coordinator.ensure_topic() is ErrorCode.NONE


@pytest.mark.parametrize("turns", [0, 1, 5, 100])
async def test_a_stop_ends_a_load(site: Site[Ledger], turns: int) -> None:
    for number in range(300):
        site.ask("k", put(f"n{number}", number))
    await site.stop()
    await site.start()
    assert site.coordinator.loading
    for _ in range(turns):
        await asyncio.sleep(0)
    site.coordinator.close()
    assert not site.coordinator.loading


async def test_a_machine_that_forgets_who_waits_leaves_nobody_without_an_answer(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "resigned", lambda self, error: [])
    waiting = site.ask("k", wait)
    site.coordinator.close()
    assert await answered(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- time


async def test_a_machine_is_ticked_when_it_is_due(site: Site[Ledger]) -> None:
    def later(machine: Ledger, now: Now) -> Outcome:
        machine.due = now.monotonic
        return Outcome()

    await site.coordinator.run(0, later)
    machine = dict(site.coordinator.shards())[0]
    while not machine.ticks:
        await asyncio.sleep(0)
    assert machine.numbers == {"ticks": 1}
    assert machine.ticks == 1


async def test_an_earlier_time_takes_the_place_of_a_later_one(site: Site[Ledger]) -> None:
    def due_in(seconds: float) -> Callable[[Ledger, Now], Outcome]:
        def decide(machine: Ledger, now: Now) -> Outcome:
            machine.due = now.monotonic + seconds
            return Outcome()

        return decide

    await site.coordinator.run(0, due_in(10_000))
    await site.coordinator.run(0, due_in(0))
    machine = dict(site.coordinator.shards())[0]
    while not machine.ticks:
        await asyncio.sleep(0)
    assert machine.ticks == 1


async def test_one_batch_for_each_outcome(site: Site[Ledger]) -> None:
    records = [number_record("a", 1), number_record("b", 2)]
    await site.coordinator.run(1, lambda machine, now: Outcome(records))
    partition = site.partition(1)
    assert partition.high_watermark == 2
    assert partition.log is not None and partition.log.size_bytes == len(encode_batch(records, None, 0))


async def test_what_is_due_at_the_same_time_is_done_one_turn_of_the_loop_after_another(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, ticks = 0, []

    def tick(machine: Ledger, now: Now) -> Outcome:
        ticks.append(turns)
        machine.due = now.monotonic if len(ticks) < 3 else None
        return Outcome()

    monkeypatch.setattr(Ledger, "tick", tick)

    def due(machine: Ledger, now: Now) -> Outcome:
        machine.due = now.monotonic
        return Outcome()

    await site.coordinator.run(0, due)
    while len(ticks) < 3:
        await asyncio.sleep(0)
        turns += 1
    assert len(set(ticks)) == 3


async def test_a_tick_that_fails_is_tried_again_and_the_loop_hears_of_it(
    site: Site[Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context["exception"]))
    monkeypatch.setattr("klamm.coordinator.shard.TICK_RETRY_S", 0)
    original = Ledger.tick

    def tick(machine: Ledger, now: Now) -> Outcome:
        if not heard:
            raise KeyError("a mistake")
        return original(machine, now)

    monkeypatch.setattr(Ledger, "tick", tick)

    def due(machine: Ledger, now: Now) -> Outcome:
        machine.due = now.monotonic
        return Outcome()

    await site.coordinator.run(0, due)
    machine = dict(site.coordinator.shards())[0]
    while not machine.ticks:
        await asyncio.sleep(0)
    assert isinstance(heard[0], KeyError)
