"""The exactly-once sink without Spark, on a real broker: its processes are stopped, killed and revived at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.apache_kafka import ApacheKafka
from support.process import BrokerProcess
from support.seeds import in_every_run, in_soak, tell_all
from support.sink_stories import Story, Told

pytest.importorskip("pyspark")

OPTIONS: dict[str, object] = {
    "transaction.two.phase.commit.enable": "true",
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}


def tell(seeds: range, start_broker: Callable[..., BrokerProcess], **least: int) -> None:
    broker = start_broker(options=OPTIONS)

    def restart() -> None:
        nonlocal broker
        broker.kill()
        broker = start_broker(broker.data, port=broker.port, options=OPTIONS)

    def story(seed: int) -> Told:
        two_phases = {} if seed % 2 else {"kafka.transaction.two.phase.commit.enable": "false"}
        told = Story(seed, broker.bootstrap, restart_broker=restart if seed % 5 == 0 else None, **two_phases).run()
        print(seed, told)
        return told

    tell_all(story, seeds, **least)


@in_every_run(8, step=4)
def test_each_batch_is_there_once(seeds: range, start_broker: Callable[..., BrokerProcess]) -> None:
    tell(seeds, start_broker, stops=0)


def test_each_batch_is_there_once_in_apache_kafka(apache_kafka: ApacheKafka) -> None:
    """Which has no two-phase transactions unless told."""
    tell_all(lambda seed: Story(seed, apache_kafka.bootstrap, batches=3).run(), range(1001, 1003), stops=0)


@in_soak(step=20)
def test_each_batch_is_there_once_in_many_stories(seeds: range, start_broker: Callable[..., BrokerProcess]) -> None:
    tell(seeds, start_broker, stops=1)
