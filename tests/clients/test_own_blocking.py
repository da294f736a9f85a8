"""klamm.Producer, Consumer and Admin: programs with threads, without asyncio."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

import klamm
import klamm.aio
import klamm.testing
from klamm import Admin, Consumer, Offset, Producer, TopicPartition
from klamm.errors import ClientError, Closed, ConfigError, NotReachable, ProducerFenced, TransactionAborted

NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[klamm.testing.Broker]:
    with klamm.testing.broker(num_partitions=2) as started:
        yield started


@pytest.fixture
def topic(broker: klamm.testing.Broker) -> str:
    """With two partitions."""
    name = f"topic-{next(NUMBERS)}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def options(broker: klamm.testing.Broker) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap}


@pytest.fixture
def reading(options: dict[str, Any], topic: str) -> dict[str, Any]:
    return {**options, "group_id": f"group-of-{topic}", "auto_offset_reset": "earliest"}


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_the_faces_have_every_method_of_the_asyncio_clients(name: str) -> None:
    face, client = getattr(klamm, name), getattr(klamm.aio, name)
    for method, theirs in inspect.getmembers(client, inspect.isfunction):
        if not method.startswith("_"):
            ours = getattr(face, method)
            assert not inspect.iscoroutinefunction(ours), method
            wanted = [each for each in inspect.signature(theirs).parameters if each != "self"]
            assert [each for each in inspect.signature(ours).parameters if each != "self"] == wanted, method


# Producing.


def test_a_record_is_sent_and_read(options: dict[str, Any], topic: str, broker: klamm.testing.Broker) -> None:
    with Producer(**options, linger_ms=0) as producer:
        where = producer.send(topic, b"paid", key=b"4711", partition=1, headers={"a": b"b"}, timestamp_ms=5)
    assert where == klamm.RecordMetadata(topic, 1, 0, 5)
    (record,) = broker.records(topic)
    assert (record.key, record.value, record.partition, record.timestamp_ms) == (b"4711", b"paid", 1, 5)


def test_all_ways_of_sending_keep_their_order(options: dict[str, Any], topic: str) -> None:
    with Producer(**options) as producer:
        deliveries = [producer.send_soon(topic, b"%d" % n, partition=0) for n in range(3000)]
        producer.send_many(topic, [b"%d" % n for n in range(3000, 4000)], partition=0)
        deliveries.append(producer.send_soon(topic, b"4000", partition=0))
        assert producer.send(topic, b"4001", partition=0).offset == 4001
        producer.flush()
        assert all(delivery.done for delivery in deliveries)
    assert [delivery.result().offset for delivery in deliveries] == [*range(3000), 4000]
    assert read(options, topic) == [b"%d" % n for n in range(4002)]


def read(options: dict[str, Any], topic: str) -> list[bytes]:
    """What is in the first partition."""
    place = (topic, 0)
    with Consumer(**options, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning()
        end = consumer.end_offsets(place)[TopicPartition(*place)]
        found: list[bytes] = []
        while consumer.position(place) < end:
            found += [record.value for records in consumer.getmany(timeout_ms=100).values() for record in records]
        return found


def test_many_threads_share_a_producer(options: dict[str, Any], topic: str) -> None:
    with Producer(**options) as producer:

        def work(name: int) -> None:
            for n in range(200):
                send = producer.send_soon if n % 50 else producer.send
                send(topic, b"%d-%d" % (name, n), partition=0)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(options, topic)
    assert len(found) == 1600
    for name in range(8):
        mine = [value for value in found if value.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, n) for n in range(200)]


def test_a_thread_waits_while_the_buffer_is_full(options: dict[str, Any], topic: str, broker: Any) -> None:
    with Producer(**options, buffer_memory=100_000, linger_ms=0) as producer:
        producer.send(topic, b"first", partition=0)
        sent = threading.Event()

        def work() -> None:
            for _ in range(5000):
                producer.send_soon(topic, bytes(1000), partition=0)
            sent.set()

        thread = threading.Thread(target=work)
        with broker.paused():
            thread.start()
            assert not sent.wait(0.5)
        assert sent.wait(60)
        thread.join()
    assert len(read(options, topic)) == 5001


def test_errors_are_those_of_the_asyncio_clients(options: dict[str, Any], topic: str) -> None:
    with pytest.raises(ConfigError):
        Producer(**options, acks="two")
    with pytest.raises(NotReachable):
        Producer(bootstrap_servers="127.0.0.1:1").start()
    producer = Producer(**options)
    with pytest.raises(Closed, match="not open"):
        producer.send(topic, b"")
    with producer:
        with pytest.raises(ClientError):
            producer.send(topic, b"", partition=99)
        with pytest.raises(ClientError):
            producer.send_soon(topic, b"", partition=99).result()
        with pytest.raises(ClientError, match="open already"):
            producer.start()
    with pytest.raises(Closed):
        producer.send_soon(topic, b"")
    producer.close()


# Transactions.


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(options: dict[str, Any], topic: str) -> None:
    with Producer(**options, transactional_id=f"mover-{topic}") as producer:
        with producer.transaction():
            for n in range(10):
                producer.send_soon(topic, b"%d" % n, partition=0)
        with pytest.raises(KeyError), producer.transaction():
            producer.send(topic, b"never", partition=0)
            producer.send_soon(topic, b"never", partition=0)
            raise KeyError
        producer.begin()
        dropped = producer.send_soon(topic, b"never", partition=0)
        producer.abort()
        with pytest.raises(ClientError):
            dropped.result()
        producer.begin()
        producer.send_soon(topic, b"10", partition=0)
        producer.commit()
    assert read(options, topic) == [b"%d" % n for n in range(11)]


def test_a_producer_that_was_fenced_says_so(options: dict[str, Any], topic: str) -> None:
    options["transactional_id"] = f"mover-{topic}"
    with Producer(**options) as old:
        old.begin()
        old.send(topic, b"never")
        with Producer(**options):
            with pytest.raises((ProducerFenced, TransactionAborted)):
                old.commit()
            with pytest.raises(ProducerFenced), old.transaction():
                old.send(topic, b"never")


# Consuming.


@pytest.fixture
def hundred(options: dict[str, Any], topic: str) -> str:
    """A topic with the numbers up to 99 in its first partition."""
    with Producer(**options) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(100)], partition=0)
    return topic


def values(records: Any) -> list[int]:
    return [int(record.value) for record in records]


def test_only_what_the_application_has_had_is_committed(reading: dict[str, Any], hundred: str) -> None:
    place = TopicPartition(hundred, 0)
    with Consumer(hundred, **reading, enable_auto_commit=False) as consumer:
        assert values(islice(consumer, 10)) == list(range(10))
        assert consumer.position(place) == 10 and consumer.lag(place) == 90
        consumer.commit()
        at = consumer.committed(place)[place]
        assert at is not None and at.offset == 10
        assert values(islice(consumer, 5)) == list(range(10, 15))
    with Consumer(hundred, **reading) as consumer:  # commits automatically
        assert values(islice(consumer, 20)) == list(range(10, 30))
    with Consumer(hundred, **reading) as consumer:
        assert values(consumer.getmany(3)[place]) == [30, 31, 32]


def test_who_breaks_off_in_the_middle_of_a_record_gets_it_again(reading: dict[str, Any], hundred: str) -> None:
    with pytest.raises(ZeroDivisionError), Consumer(hundred, **reading) as consumer:
        for _ in islice(consumer, 7):
            pass
        raise ZeroDivisionError
    with Consumer(hundred, **reading) as consumer:
        assert len(list(islice(consumer, 100))) == 100
        consumer.close(timeout_ms=5000)


def test_iterating_and_asking_for_many_may_be_mixed(reading: dict[str, Any], hundred: str) -> None:
    place = TopicPartition(hundred, 0)
    with Consumer(hundred, **reading, max_poll_records=20) as consumer:
        assert values(islice(consumer, 5)) == [0, 1, 2, 3, 4]
        assert values(consumer.getmany(5)[place]) == [5, 6, 7, 8, 9]
        batch = next(consumer.batches(3))
        assert (values(batch.records), batch.next_offset, batch.high_watermark) == ([10, 11, 12], 13, 100)
        consumer.seek(place, 50)
        assert values(islice(consumer, 2)) == [50, 51]
        consumer.seek(place, Offset(60))
        assert values([consumer.getone()]) == [60]
        consumer.pause(place)
        assert consumer.paused() == {place} and consumer.getmany(timeout_ms=50) == {}
        consumer.resume(place)
        assert values([consumer.getone()]) == [61]
        rest = next(consumer.undecoded())
        assert rest is not None
        consumer.seek_to_end(place)
        assert consumer.position(place) == 100 and consumer.getmany(timeout_ms=50) == {}
        assert consumer.beginning_offsets(place) == {place: 0}
        assert consumer.offsets_for_times({place: 1 << 50}) == {place: None}
        assert hundred in consumer.topics() and set(consumer.partitions_for(hundred)) == {0, 1}
        assert consumer.metrics() and consumer.group_metadata().group_id == reading["group_id"]


def test_records_come_as_columns(reading: dict[str, Any], hundred: str) -> None:
    pytest.importorskip("pyarrow")
    with Consumer(hundred, **reading) as consumer:
        assert values(islice(consumer, 5)) == [0, 1, 2, 3, 4]
        batches = list(consumer.arrow(max_rows=60, timeout_ms=1000))
        assert max(batch.num_rows for batch in batches) <= 60
        assert [int(value) for batch in batches for value in batch["value"].to_pylist()] == list(range(5, 100))


def test_callbacks_run_in_the_thread_that_reads_and_may_call_the_consumer(
    reading: dict[str, Any], hundred: str
) -> None:
    place = TopicPartition(hundred, 0)
    told: list[tuple[str, str]] = []

    def assigned(places: list[TopicPartition]) -> None:
        told.append(("assigned", threading.current_thread().name))
        for each in places:
            consumer.seek(each, 40 if each == place else 0)

    def revoked(places: list[TopicPartition]) -> None:
        told.append(("revoked", threading.current_thread().name))
        consumer.commit()
        at = consumer.committed(place)[place]
        told.append(("committed", str(at and at.offset)))

    consumer = Consumer(**reading, enable_auto_commit=False)
    consumer.subscribe([hundred], on_assigned=assigned, on_revoked=revoked)
    with consumer:
        assert values(islice(consumer, 2)) == [40, 41]
    here = threading.current_thread().name
    assert told == [("assigned", here), ("revoked", here), ("committed", "42")]


def test_threads_share_a_consumer_and_end_when_it_is_closed(reading: dict[str, Any], hundred: str) -> None:
    found: list[int] = []
    everything = threading.Event()
    consumer = Consumer(hundred, **reading)

    def work() -> None:
        for record in consumer:
            found.append(int(record.value))
            if len(found) == 100:
                everything.set()

    with consumer:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert everything.wait(30)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(found) == list(range(100))


def test_a_slow_application_gives_back_what_the_group_wants(
    reading: dict[str, Any], hundred: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that the second member would wait until the first has done all that was brought to it."""
    monkeypatch.setattr("klamm.blocking.lending.PATIENCE_S", 0.0)
    first = Consumer(hundred, **reading, partition_assignment_strategy="roundrobin", heartbeat_interval_ms=50)
    second = Consumer(hundred, **reading, partition_assignment_strategy="roundrobin", heartbeat_interval_ms=50)
    seen: list[int] = []
    with first:
        seen.append(int(first.getone().value))
        group = first._aio._group
        assert group is not None
        with second:

            def join() -> None:
                with suppress(Closed):  # when the test is over
                    second.getmany(timeout_ms=30_000)

            joined = threading.Thread(target=join)
            joined.start()
            waiting = threading.Event()
            while not group.wants_turn:
                waiting.wait(0.01)
            while len(first.assignment()) != 1:
                some = first.getmany(1, timeout_ms=100)
                seen += values(record for records in some.values() for record in records)
    joined.join()
    assert seen == sorted(set(seen)) and len(seen) < 50


def test_topics_are_made_and_described(options: dict[str, Any]) -> None:
    with Admin(**options) as admin:
        assert admin.create_topics(["made-blocking"]).check()["made-blocking"].partitions == 2
        assert "made-blocking" in admin.list_topics()
        assert admin.describe_topics(["no-such-topic"]).errors


# Processes.

PROGRAM = """
import os, sys, klamm
options = {"bootstrap_servers": sys.argv[1]}
topic = sys.argv[2]
"""


def program(code: str, options: dict[str, Any], topic: str, **kwargs: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "always", "-c", PROGRAM + code, options["bootstrap_servers"], topic]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def test_a_producer_that_nobody_closed_sends_what_it_has_when_the_interpreter_ends(
    options: dict[str, Any], topic: str
) -> None:
    process = program(
        """
producer = klamm.Producer(**options, linger_ms=2000)
producer.start()
for n in range(10):
    producer.send_soon(topic, b"%d" % n, partition=0)
""",
        options,
        topic,
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")
    assert read(options, topic) == [b"%d" % n for n in range(10)]


def test_ctrl_c_ends_a_consumer_that_waits_and_leaves_its_group(reading: dict[str, Any], hundred: str) -> None:
    process = program(
        f"""
with klamm.Consumer(topic, **options, group_id="group-of-{hundred}", auto_offset_reset="earliest") as consumer:
    for record in consumer:
        if record.value == b"99":
            print("waiting", flush=True)
""",
        reading,
        hundred,
    )
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and "Exception ignored" not in errors
    with Admin(bootstrap_servers=reading["bootstrap_servers"]) as admin:
        assert admin.describe_groups([reading["group_id"]])[reading["group_id"]].members == ()
        place = TopicPartition(hundred, 0)
        at = admin.list_group_offsets(reading["group_id"])
        assert at[place].offset == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(options: dict[str, Any], topic: str) -> None:
    process = program(
        """
producer = klamm.Producer(**options, linger_ms=0)
producer.start()
producer.send(topic, b"before", partition=0)
child = os.fork()
if not child:
    for send in (producer.send, producer.send_soon):
        try:
            send(topic, b"child")
        except klamm.errors.ClientError as error:
            print(error, flush=True)
    producer.close()
    with klamm.Producer(**options) as own:
        own.send(topic, b"own", partition=0)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.send(topic, b"after", partition=0)
producer.close()
""",
        options,
        topic,
    )
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    told = (
        "This producer was opened before the process forked, and belongs to the parent. "
        "Open a producer of its own in the child.\n"
    )
    assert output == told * 2
    assert read(options, topic) == [b"before", b"own", b"after"]


def test_one_that_is_dropped_unclosed_is_closed_with_a_warning(options: dict[str, Any], topic: str) -> None:
    producer = Producer(**options, linger_ms=60_000)
    producer.start()
    delivery = producer.send_soon(topic, b"paid", partition=0)
    background = producer._background
    assert background is not None
    with pytest.warns(ResourceWarning, match="A producer was not closed"):
        del producer
        gc.collect()
    background._thread.join(30)
    assert delivery.result().offset == 0


def test_importing_klamm_brings_no_client() -> None:
    code = "import sys, klamm; print([name for name in sys.modules if name.startswith('klamm.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.home())
    assert done.stdout == "[]\n", done.stderr
