"""klamm.Producer, Consumer and Admin against Klamm and Apache Kafka: a program without asyncio, from first to last."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import pytest

from klamm import Admin, Consumer, Producer
from klamm.errors import BrokerSaid, ProducerFenced

THREADS = 3
EACH = 500


@pytest.fixture(params=["klamm", "apache kafka"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    broker: Any = request.getfixturevalue("broker" if request.param == "klamm" else "apache_kafka")
    return {"bootstrap_servers": str(broker.bootstrap)}


def test_threads_send_and_a_group_reads_all_of_it_in_order(options: dict[str, Any], topic: str) -> None:
    with Admin(**options) as admin:
        admin.create_topics([topic]).check()
        assert admin.create_topics([topic]).errors[topic].code.name == "TOPIC_ALREADY_EXISTS"  # type: ignore[attr-defined]
        with Producer(**options, compression_type="lz4") as producer:

            def send(thread: int) -> None:
                for number in range(EACH):
                    producer.send_soon(topic, b"%d" % number, key=b"%d" % thread)

            threads = [threading.Thread(target=send, args=(thread,)) for thread in range(THREADS)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            producer.send_many(topic, [b"%d" % EACH] * THREADS, keys=[b"%d" % thread for thread in range(THREADS)])
            assert producer.send(topic, b"last").offset >= 0
        with Consumer(topic, **options, group_id=f"{topic}-group", auto_offset_reset="earliest") as consumer:
            found = list(islice(consumer, THREADS * (EACH + 1) + 1))
            consumer.commit()
        for thread in range(THREADS):
            mine = [int(record.value or b"") for record in found if record.key == b"%d" % thread]
            assert mine == list(range(EACH + 1))
        committed = admin.list_group_offsets(f"{topic}-group")
        assert sum(position.offset for position in committed.values()) == len(found)


def test_a_transaction_is_committed_aborted_and_fenced(options: dict[str, Any], topic: str) -> None:
    name = f"{topic}-id"
    with Producer(**options, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
            producer.send_soon(topic, b"kept")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send_soon(topic, b"aborted")
            producer.send_many(topic, [b"aborted"] * 10)
            raise ZeroDivisionError
        with Producer(**options, transactional_id=name) as other:
            with pytest.raises(ProducerFenced), producer.transaction():
                producer.send(topic, b"fenced")
            with other.transaction():
                other.send(topic, b"last")
    reading = {**options, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(topic, **reading, group_id=f"{topic}-group") as consumer:
        assert [record.value for record in islice(consumer, 3)] == [b"kept", b"kept", b"last"]


def test_errors_are_told_where_they_are_asked_for(options: dict[str, Any], topic: str) -> None:
    with Producer(**options, max_request_size=4 << 20) as producer:
        delivery = producer.send_soon(topic, b"x" * (2 << 20))
        with pytest.raises(BrokerSaid, match="MESSAGE_TOO_LARGE") as caught:
            delivery.result()
        assert (caught.value.topic, caught.value.partition, caught.value.retriable) == (topic, 0, False)
        assert producer.send(topic, b"fine").offset == 0
