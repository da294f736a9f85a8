"""A query with an old checkpoint, or with a copy of one: what it writes is not silently left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm import Admin
from klamm.client.prepared import PreparedTransaction
from klamm.testing import Broker

pytest.importorskip("pyspark")

from klamm.spark.sink.decisions import Decision, Names
from klamm.spark.sink.driver import Decider
from klamm.spark.sink.ends import OldBatch
from klamm.spark.sink.task import Job, Written

SINK = "query:q"
NOTHING = PreparedTransaction(Names(SINK).transaction("worker", 0), -1, -1)


@pytest.fixture
def decider(klamm_broker: Broker) -> Iterator[Decider]:
    config = {"bootstrap.servers": klamm_broker.bootstrap}
    with Admin(config=config) as admin:
        with Decider(admin, config, SINK) as first:
            first._decide(Decision(7, (NOTHING,)))
        with Decider(admin, config, SINK) as found:
            yield found


def test_a_batch_before_the_last_one_is_refused(decider: Decider) -> None:
    job = Job(SINK, 6, run="of-an-old-checkpoint")
    with pytest.raises(OldBatch, match="Batch 6 of query:q cannot be written: batch 7 was"):
        decider.commit(job, [Written(job, is_done=True)])


def test_the_last_one_may_be_done_again_and_an_application_may_repeat_all_of_its_own(decider: Decider) -> None:
    again, older = Job(SINK, 7, run="of-a-restart"), Job(SINK, 6)
    decider.commit(again, [Written(again, is_done=True)])
    decider.commit(older, [Written(older, is_done=True)])
