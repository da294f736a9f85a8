"""Apache Kafka's consumer in groups, as the project's own system tests run it: it tells all that happens to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess

LIMIT_S = 60
PARTITIONS = 4
PROTOCOLS = {
    "eager": ["--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor"],
    "cooperative": ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"],
    "server": ["--group-protocol", "CONSUMER", "--group-remote-assignor", "uniform"],
}

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 300)


class Member:
    """A verifiable consumer: what it has, and the offsets that it has read."""

    def __init__(self, tools: KafkaTools, events: Queue[tuple[Member, str]], *arguments: str) -> None:
        self.partitions: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self._process = tools.start("kafka-verifiable-consumer", *arguments)
        self._reader = threading.Thread(target=self._tell, args=(events,), daemon=True)
        self._reader.start()

    def _tell(self, events: Queue[tuple[Member, str]]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            events.put((self, line))

    def take(self, event: dict[str, Any]) -> None:
        given = event.get("partitions", [])
        if event["name"] == "partitions_assigned":
            self.partitions |= {place["partition"] for place in given}
        elif event["name"] == "partitions_revoked":
            self.partitions -= {place["partition"] for place in given}
        elif event["name"] == "records_consumed":
            for place in given:
                self.read += [(place["partition"], n) for n in range(place["minOffset"], place["maxOffset"] + 1)]
        elif event["name"] == "offsets_committed":
            assert event["success"], event

    def leave(self) -> None:
        """As it does when it is asked to stop. Twice is once."""
        self._process.terminate()
        self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Group:
    def __init__(self, broker: BrokerProcess, tools: KafkaTools, topic: str, options: list[str]) -> None:
        self._at = {"log_level": 0, "bootstrap.servers": broker.bootstrap}
        self._tools, self._topic = tools, topic
        self._arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", topic]
        self._arguments += options
        self._events: Queue[tuple[Member, str]] = Queue()
        self.members: list[Member] = []
        self.sent = 0
        admin = AdminClient(self._at)
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(LIMIT_S)

    def join(self) -> Member:
        self.members.append(Member(self._tools, self._events, *self._arguments))
        return self.members[-1]

    def send(self) -> None:
        producer = Producer(self._at)
        for number in range(40):
            producer.produce(self._topic, b"x", partition=number % PARTITIONS)
        assert producer.flush(LIMIT_S) == 0
        self.sent += 40

    def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            member, line = self._events.get(timeout=LIMIT_S)
            member.take(json.loads(line))

    @property
    def read(self) -> list[tuple[int, int]]:
        return sorted(place for member in self.members for place in member.read)

    def committed(self) -> list[int]:
        consumer = Consumer({**self._at, "group.id": self._topic})
        found = consumer.committed([TopicPartition(self._topic, index) for index in range(PARTITIONS)], LIMIT_S)
        consumer.close()
        return [one.offset for one in found]


@pytest.fixture(params=PROTOCOLS)
def group(
    request: pytest.FixtureRequest, broker: BrokerProcess, kafka_tools: KafkaTools, topic: str, tmp_path: Path
) -> Iterator[Group]:
    options = PROTOCOLS[request.param]
    if request.param != "server":  # there the broker says how often
        (tmp_path / "properties").write_text("heartbeat.interval.ms=100\n")
        options = [*options, "--command-config", str(tmp_path / "properties")]
    made = Group(broker, kafka_tools, topic, options)
    yield made
    for member in made.members:
        member.leave()


def test_members_share_the_partitions_and_nothing_is_read_twice(group: Group) -> None:
    group.send()
    one = group.join()
    group.until(lambda: len(one.read) == group.sent)
    two = group.join()
    group.until(lambda: len(one.partitions) == len(two.partitions) == 2)
    assert not one.partitions & two.partitions
    group.send()
    group.until(lambda: len(group.read) >= group.sent)
    one.leave()
    group.until(lambda: len(two.partitions) == PARTITIONS)
    group.send()
    group.until(lambda: len(group.read) >= group.sent)
    two.leave()
    assert group.read == [(partition, offset) for partition in range(PARTITIONS) for offset in range(group.sent // 4)]
    assert group.committed() == [group.sent // PARTITIONS] * PARTITIONS
