"""Transactions that one writes and another ends: `Producer.prepare` and `Admin.end_transactions`."""

from __future__ import annotations

import pytest

import klamm.testing
from klamm import Admin, Producer, aio
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.prepared import PreparedTransaction
from klamm.core.errors import ErrorCode
from klamm.testing import Broker
from support.committed import read_all

TWO_PHASES = {"transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 1}


def committed(broker: Broker) -> list[bytes]:
    return read_all(broker.bootstrap, "t")[0]


def prepared(broker: Broker, *values: bytes, **options: object) -> PreparedTransaction:
    """Of a producer that is gone."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id="x", **options) as producer:
        producer.begin()
        for value in values:
            producer.send_soon("t", value)
        return producer.prepare()


@pytest.mark.parametrize("is_committed", [True, False])
def test_another_ends_what_was_prepared(klamm_broker: Broker, is_committed: bool) -> None:
    klamm_broker.create_topic("t")
    one = prepared(klamm_broker, b"1", b"2")
    with Admin(bootstrap_servers=klamm_broker.bootstrap) as admin:
        assert committed(klamm_broker) == []
        admin.end_transactions([one], committed=is_committed).check()
        admin.end_transactions([one], committed=is_committed).check()  # somebody who did not hear of it
        told = admin.end_transactions([one], committed=not is_committed)
        (error,) = told.errors.values()
        assert isinstance(error, BrokerSaid)
        assert error.code is ErrorCode.INVALID_TXN_STATE
    assert committed(klamm_broker) == ([b"1", b"2"] if is_committed else [])


async def test_with_asyncio_it_is_the_same(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t")
    options = {"bootstrap_servers": klamm_broker.bootstrap}
    async with aio.Producer(transactional_id="x", **options) as producer, aio.Admin(**options) as admin:
        for number in range(3):
            await producer.begin()
            await producer.send_soon("t", b"%d" % number)
            one = await producer.prepare()
            with pytest.raises(ClientError, match="waiting for somebody else"):
                await producer.send_soon("t", b"late")
            (await admin.end_transactions([one], committed=number != 1)).check()
    assert committed(klamm_broker) == [b"0", b"2"]


def test_who_begins_anew_aborts_what_nobody_has_ended(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t")
    one = prepared(klamm_broker, b"1")
    with (
        Producer(bootstrap_servers=klamm_broker.bootstrap, transactional_id="x") as producer,
        Admin(bootstrap_servers=klamm_broker.bootstrap) as admin,
    ):
        with producer.transaction():
            producer.send("t", b"2")
            assert one in admin.end_transactions([one], committed=True).errors
        assert one in admin.end_transactions([one], committed=True).errors
    assert committed(klamm_broker) == [b"2"]


def test_a_transaction_without_records_needs_no_end(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t")
    with (
        Producer(bootstrap_servers=klamm_broker.bootstrap, transactional_id="x") as producer,
        Admin(bootstrap_servers=klamm_broker.bootstrap) as admin,
    ):
        producer.begin()
        nothing = producer.prepare()
        assert nothing == ("x", -1, -1)
        admin.end_transactions([nothing], committed=True).check()
        with producer.transaction():
            producer.send("t", b"1")
    assert committed(klamm_broker) == [b"1"]


def test_two_phase_transactions_outlive_their_time_limit_and_the_broker(klamm_broker: Broker) -> None:
    klamm_broker.create_topic("t", retention_ms=-1)
    one = prepared(klamm_broker, b"1", **TWO_PHASES)
    klamm_broker.advance_time(7 * 86_400)
    with Admin(bootstrap_servers=klamm_broker.bootstrap) as admin:
        assert admin.describe_transactions(["x"])["x"].state == "Ongoing"
        klamm_broker.restart()
        admin.end_transactions([one], committed=True).check()
    assert committed(klamm_broker) == [b"1"]


def test_where_they_are_not_allowed_one_is_told() -> None:
    with (
        klamm.testing.broker(transaction_two_phase_commit_enable=False) as broker,
        pytest.raises(ClientError, match="takes no two-phase transactions"),
    ):
        prepared(broker, b"1", **TWO_PHASES)
