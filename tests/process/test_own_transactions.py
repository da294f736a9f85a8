"""Our producer's transactions on a real broker, in both protocols, and with whatever may go wrong in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.aio import Producer
from klamm.client import BrokerSaid, ClientError
from klamm.client.errors import ProducerFenced, TimedOut, TransactionAborted, TransactionUnfinished
from klamm.testing import Broker
from support.committed import read_all

QUICK: dict[str, Any] = {"retry_backoff_ms": 2, "reconnect_backoff_ms": 2, "retry_backoff_max_ms": 20, "linger_ms": 0}


@pytest.fixture(params=["protocol 1", "protocol 2"])
def broker(request: pytest.FixtureRequest, klamm_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    if request.param == "protocol 1":
        monkeypatch.setattr("klamm.client.transactions.IMPLICIT_LEVEL", 99)
    klamm_broker.create_topic("t", partitions=2)
    return klamm_broker


def producer_of(broker: Broker, name: str = "mine", **options: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap, transactional_id=name, **{**QUICK, **options})


async def committed(broker: Broker) -> list[bytes]:
    found = await asyncio.to_thread(read_all, broker.bootstrap, "t", 2)
    return sorted(value for values in found.values() for value in values)


async def test_a_transaction_is_seen_as_a_whole_or_not_at_all(broker: Broker) -> None:
    async with producer_of(broker) as producer:
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
            await producer.send_many("t", [b"2", b"3"], keys=[b"a", b"b"])
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("t", b"written", partition=0)
                delivery = await producer.send_soon("t", b"not even sent", partition=1)
                raise ZeroDivisionError
        assert delivery.done
        async with producer.transaction():
            pass  # an empty one asks nobody
        async with producer.transaction():
            await producer.send("t", b"4", partition=1)
    assert await committed(broker) == [b"1", b"2", b"3", b"4"]


async def test_records_belong_into_a_transaction(broker: Broker) -> None:
    async with producer_of(broker) as producer:
        for call in (producer.send("t", b"1"), producer.send_many("t", [b"1"]), producer.commit(), producer.abort()):
            with pytest.raises(ClientError, match="between two transactions"):
                await call
        await producer.begin()
        with pytest.raises(ClientError, match="in a transaction"):
            await producer.begin()
        await producer.send("t", b"1")
        await producer.commit()
        await producer.init_transactions()  # was done by `start`
    assert await committed(broker) == [b"1"]


async def test_a_second_producer_takes_over_and_the_first_is_fenced(broker: Broker) -> None:
    async with producer_of(broker) as first:
        await first.begin()
        await first.send("t", b"left open")
        async with producer_of(broker) as second:
            with pytest.raises(ProducerFenced):
                await finish(first)
            for call in (first.begin(), first.send("t", b"x"), first.commit(), first.abort()):
                with pytest.raises(ProducerFenced):
                    await call
            async with second.transaction():
                await second.send("t", b"of the second")
    assert await committed(broker) == [b"of the second"]


async def finish(producer: Producer) -> None:
    """As the block of a transaction does: what is wrong may be known at once, or by the end."""
    try:
        await producer.send("t", b"too late")
        await producer.commit()
    except BrokerSaid:
        await producer.abort()


async def test_a_block_of_a_fenced_producer_says_that_it_was_fenced(broker: Broker) -> None:
    async with producer_of(broker) as first, producer_of(broker) as second:
        async with second.transaction():
            await second.send("t", b"1")
        with pytest.raises(ProducerFenced):
            async with first.transaction():
                await first.send("t", b"2")
    assert await committed(broker) == [b"1"]


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit"])
async def test_answers_that_get_lost_change_nothing(broker: Broker, api: str) -> None:
    broker.drop_after(api)
    async with producer_of(broker) as producer:
        for number in range(3):
            if number:
                broker.drop_after(api)
            async with producer.transaction():
                await producer.send("t", b"%d" % number, partition=0)
                await producer.send_offsets({("t", 0): number}, "group")
    assert await committed(broker) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Produce", "NOT_LEADER_OR_FOLLOWER"),
        ("EndTxn", "CONCURRENT_TRANSACTIONS"),
        ("EndTxn", "NOT_COORDINATOR"),
        ("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
async def test_errors_that_pass_are_waited_for(broker: Broker, api: str, code: str) -> None:
    broker.fail(api, code, times=2)
    async with producer_of(broker) as producer, producer.transaction():
        await producer.send("t", b"1")
        await producer.send_offsets({("t", 0): 1}, "group")
    assert await committed(broker) == [b"1"]
    assert not broker.faults_left(api)


async def test_after_a_record_was_refused_the_transaction_can_only_be_aborted_and_the_next_one_goes_well(
    broker: Broker,
) -> None:
    async with producer_of(broker) as producer:
        await producer.begin()
        await producer.send("t", b"fine", partition=0)
        broker.fail("Produce", "INVALID_RECORD")
        with pytest.raises(BrokerSaid, match="INVALID_RECORD"):
            await producer.send("t", b"refused", partition=1)
        for call in (producer.send("t", b"more"), producer.commit()):
            with pytest.raises(TransactionAborted):
                await call
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"again", partition=1)
    assert await committed(broker) == [b"again"]


async def test_a_batch_that_was_lost_on_the_way_costs_the_transaction_and_gives_a_new_epoch(broker: Broker) -> None:
    async with producer_of(broker, delivery_timeout_ms=1500, request_timeout_ms=1000) as producer:
        before = producer._transactions().identity
        await producer.begin()
        await producer.send("t", b"fine", partition=0)
        broker.fail("Produce", "REQUEST_TIMED_OUT", times=None)
        with pytest.raises(TimedOut, match="t-0: 1 records were not written"):
            await producer.send("t", b"lost", partition=0)
        broker.clear_faults()
        with pytest.raises(TransactionAborted):
            await producer.commit()
        await producer.abort()
        after = producer._transactions().identity
        assert (after.producer_id, after.epoch > before.epoch) == (before.producer_id, True)
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
    assert await committed(broker) == [b"again"]


async def test_a_commit_without_an_answer_is_asked_for_again(broker: Broker) -> None:
    async with producer_of(broker, max_block_ms=1500) as producer:
        await producer.begin()
        await producer.send("t", b"1")
        broker.fail("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        with pytest.raises(TransactionUnfinished):
            await producer.commit()
        with pytest.raises(ClientError, match="committing"):
            await producer.abort()
        broker.clear_faults()
        await producer.commit()
    assert await committed(broker) == [b"1"]


@pytest.mark.parametrize("code", ["ILLEGAL_GENERATION", "GROUP_AUTHORIZATION_FAILED"])
async def test_offsets_that_are_refused_cost_the_transaction(broker: Broker, code: str) -> None:
    async with producer_of(broker) as producer:
        broker.fail("TxnOffsetCommit", code)
        with pytest.raises(BrokerSaid, match=code):
            async with producer.transaction():
                await producer.send("t", b"1")
                await producer.send_offsets({("t", 0): 1}, "group")
        async with producer.transaction():
            await producer.send("t", b"2")
    assert await committed(broker) == [b"2"]


async def test_a_permission_that_is_missing_is_the_end_of_the_producer(broker: Broker) -> None:
    broker.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    with pytest.raises(BrokerSaid, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        async with producer_of(broker):
            pass


async def test_closing_aborts_what_is_open(broker: Broker) -> None:
    async with producer_of(broker) as producer:
        await producer.begin()
        await producer.send("t", b"open")
    async with producer_of(broker, "other") as producer, producer.transaction():
        await producer.send("t", b"1")
    assert await committed(broker) == [b"1"]  # and the reader came to the end: nothing hangs


@pytest.mark.klamm(transaction_abort_timed_out_transaction_cleanup_interval_ms=20)
async def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(broker: Broker) -> None:
    async with producer_of(broker, transaction_timeout_ms=1000) as producer:
        await producer.begin()
        with pytest.raises(BrokerSaid, match="INVALID_PRODUCER_EPOCH"):
            while True:
                await producer.send("t", b"too long")
                await asyncio.sleep(0.01)
        with pytest.raises(TransactionAborted):
            await producer.commit()
        if not producer._transactions().implicit:
            with pytest.raises(ProducerFenced):  # in the first protocol it cannot be told from being taken over
                await producer.abort()
            return
        await producer.abort()
        async with producer.transaction():
            await producer.send("t", b"quick")
    assert await committed(broker) == [b"quick"]
