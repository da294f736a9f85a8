"""A broker that dies between the decision about a transaction and its markers: the next one writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k26_end_txn import EndTxnRequest
from klamm.wire.messages.k66_list_transactions import ListTransactionsRequest


async def decide(node: Any, tools: Any, *, commit: bool) -> None:
    """One transaction, whose end is decided and acknowledged, and of whose end no partition hears."""
    await node.create()
    await node.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    await node.broker.producer_ids.have()
    init = await node.call(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    assert not init.error_code
    producer = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    batch = tools.batch(b"x", transactional=True, base_sequence=0, **producer)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=30_000, topic_data=[topic])
    answer = await node.call(request, 12)
    assert not answer.responses[0].partition_responses[0].error_code
    node.broker.transactions.on_effect = lambda partition, effect: None
    end = await node.call(EndTxnRequest(transactional_id="tx", committed=commit, **producer), 5)
    assert not end.error_code
    log = node.partition().log
    assert log.last_stable_offset(log.end_offset) == 0


@pytest.mark.parametrize("commit", [True, False])
async def test_what_was_decided_before_a_crash_is_carried_out_after_it(
    start: Any, tools: Any, tmp_path: Path, commit: bool
) -> None:
    before = await start()
    await decide(before, tools, commit=commit)
    shutil.copytree(before.path, tmp_path / "as it was")
    after = type(before)(real_env(seed=2), tmp_path / "as it was", before.options, before.shortcuts)
    await after.start()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        isolation_level=1,
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=20_000,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    fetched = (await after.call(request, 12)).responses[0].partitions[0]  # comes with the marker
    assert fetched.last_stable_offset == 2
    assert bool(fetched.aborted_transactions) is not commit
    listed = await after.call(ListTransactionsRequest(), 0)
    assert listed.error_code == ErrorCode.NONE
    states = [one.transaction_state for one in listed.transaction_states]
    assert states == ["CompleteCommit" if commit else "CompleteAbort"]
    await after.stop()
