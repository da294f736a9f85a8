"""Each fault, and what real clients make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, RequestTimedOutError
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from klamm.testing import AsyncBroker, Broker

LIMIT_S = 30
TOPIC = "t"

Deliver = Callable[..., KafkaError | None]


@pytest.fixture
def broker(klamm_broker: Broker) -> Broker:
    klamm_broker.create_topic(TOPIC)
    return klamm_broker


@pytest.fixture
def deliver(broker: Broker) -> Iterator[Deliver]:
    """Produce one record with confluent-kafka and wait for what comes of it."""
    producers: dict[str, Producer] = {}

    def send(value: str, **config: str | int | float | bool) -> KafkaError | None:
        settings = {"log_level": 0, "bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 5, "linger.ms": 0}
        settings |= {name.replace("_", "."): setting for name, setting in config.items()}
        producer = producers.setdefault(str(settings), Producer(settings, logger=None))
        outcome: list[KafkaError | None] = []

        def done(error: KafkaError | None, message: Message) -> None:
            outcome.append(error)

        producer.produce(TOPIC, value, on_delivery=done)
        producer.flush(LIMIT_S)
        (result,) = outcome
        return result

    yield send


def stored(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records(TOPIC)]


# -- answer with an error


def test_a_producer_tries_again_after_an_error_that_passes(broker: Broker, deliver: Deliver) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    assert deliver("a") is None
    assert broker.request_count("Produce") == 4
    assert stored(broker) == [b"a"]


def test_a_producer_gives_up_after_an_error_that_stays(broker: Broker, deliver: Deliver) -> None:
    broker.fail("Produce", "POLICY_VIOLATION")
    error = deliver("a")
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION
    assert stored(broker) == []
    assert deliver("b") is None


def test_kafka_python_raises_the_error_that_was_asked_for(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(TOPIC, b"a").get(LIMIT_S)
    assert producer.send(TOPIC, b"b").get(LIMIT_S).offset == 0
    producer.close()


async def test_aiokafka_raises_the_error_that_was_asked_for(broker: Broker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        broker.fail("Produce", "MESSAGE_TOO_LARGE")
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(TOPIC, b"a")
        assert (await producer.send_and_wait(TOPIC, b"b")).offset == 0


def test_an_admin_client_gets_the_error_that_was_asked_for(broker: Broker) -> None:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    broker.fail("CreateTopics", "POLICY_VIOLATION")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic("new", 1)])["new"].result(LIMIT_S)
    admin.create_topics([NewTopic("new", 1)])["new"].result(LIMIT_S)
    assert "new" in broker.topics()


def test_a_consumer_tries_again_after_a_failed_fetch(broker: Broker, deliver: Deliver) -> None:
    assert deliver("a") is None
    broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    message = consumer.poll(LIMIT_S)
    assert message is not None
    assert message.value() == b"a"
    assert broker.faults_left("Fetch") == 0
    consumer.close()


# -- hang up after the append


def test_a_retry_after_a_lost_answer_doubles_the_record_of_a_plain_producer(broker: Broker, deliver: Deliver) -> None:
    broker.drop_after("Produce")
    assert deliver("a", enable_idempotence=False, acks="all") is None
    assert stored(broker) == [b"a", b"a"]


def test_an_idempotent_producer_stores_it_once(broker: Broker, deliver: Deliver) -> None:
    broker.drop_after("Produce", times=2)
    assert deliver("a", enable_idempotence=True) is None
    assert broker.request_count("Produce") == 3
    assert stored(broker) == [b"a"]


async def test_aiokafka_with_and_without_idempotence(broker: Broker) -> None:
    for idempotent, expected in ((False, [b"a", b"a"]), (True, [b"a", b"a", b"a"])):
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=idempotent) as producer:
            broker.drop_after()
            await producer.send_and_wait(TOPIC, b"a")
        assert stored(broker) == expected


def test_kafka_python_with_and_without_idempotence(broker: Broker) -> None:
    for idempotent, expected in ((False, [b"a", b"a"]), (True, [b"a", b"a", b"a"])):
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=idempotent, retries=5, retry_backoff_ms=5
        )
        broker.drop_after()
        producer.send(TOPIC, b"a").get(LIMIT_S)
        producer.close()
        assert stored(broker) == expected


def test_a_topic_that_was_created_unanswered_exists_at_the_second_try(broker: Broker) -> None:
    broker.drop_after("CreateTopics")
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("new", 1)], request_timeout=5)["new"].result(LIMIT_S)
    assert "new" in broker.topics()


# -- pause


def test_a_producer_times_out_while_the_broker_pauses(broker: Broker, deliver: Deliver) -> None:
    assert deliver("a", message_timeout_ms=2000) is None
    with broker.paused():
        error = deliver("b", message_timeout_ms=2000)
        assert error is not None
        assert error.code() == KafkaError._MSG_TIMED_OUT
    assert deliver("c") is None
    assert stored(broker)[0] == b"a"
    assert stored(broker)[-1] == b"c"


async def test_what_was_sent_to_a_paused_broker_arrives_when_it_resumes(broker: Broker) -> None:
    paused = AsyncBroker(broker)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"a")
        async with paused.paused():
            waiting = await producer.send(TOPIC, b"b")
            assert await paused.request_count("Produce") == 1
            assert not waiting.done()
        assert (await waiting).offset == 1


def test_a_waiting_consumer_gets_nothing_from_a_paused_broker(broker: Broker, deliver: Deliver) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([_partition()])
    assert deliver("a") is None
    assert [r.value for r in _poll(consumer)] == [b"a"]
    with broker.paused():
        assert consumer.poll(timeout_ms=200) == {}
    assert deliver("b") is None
    assert [r.value for r in _poll(consumer)] == [b"b"]
    consumer.close()


def _partition() -> object:
    from kafka import TopicPartition as KafkaPythonPartition

    return KafkaPythonPartition(TOPIC, 0)


def _poll(consumer: KafkaConsumer) -> list[object]:
    for _ in range(LIMIT_S):
        if found := consumer.poll(timeout_ms=1000):
            return [record for records in found.values() for record in records]
    return []


# -- be unreachable


def test_an_unreachable_broker_is_found_again(broker: Broker, deliver: Deliver) -> None:
    assert deliver("a", reconnect_backoff_ms=5, reconnect_backoff_max_ms=20) is None
    with broker.unreachable():
        error = deliver("b", message_timeout_ms=300)
        assert error is not None
        assert error.code() == KafkaError._MSG_TIMED_OUT
    assert deliver("c", reconnect_backoff_ms=5, reconnect_backoff_max_ms=20) is None
    assert stored(broker) == [b"a", b"c"]


def test_cut_connections_are_made_again(broker: Broker, deliver: Deliver) -> None:
    assert deliver("a") is None
    assert broker.drop_connections() >= 1
    assert deliver("b") is None
    assert stored(broker) == [b"a", b"b"]


def test_a_client_goes_on_after_a_crash_of_the_broker(broker: Broker, deliver: Deliver) -> None:
    fast = {"reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20, "enable_idempotence": True}
    assert deliver("a", **fast) is None
    broker.kill()
    broker.start()
    assert deliver("b", **fast) is None
    assert stored(broker) == [b"a", b"b"]


# -- delay


async def test_a_delayed_answer_is_one_that_a_client_may_give_up_on(broker: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, request_timeout_ms=1500, retry_backoff_ms=10)
    async with producer:
        await producer.send_and_wait(TOPIC, b"a")
        broker.delay(3600, api="Produce")
        with pytest.raises((KafkaTimeoutError, RequestTimedOutError)):
            await producer.send_and_wait(TOPIC, b"b")
        broker.clear_faults()
        await producer.send_and_wait(TOPIC, b"c")
    assert stored(broker)[1] == b"b", "it was handled, and only the answer was late"


def test_a_delay_is_felt(broker: Broker) -> None:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    admin.list_topics(timeout=LIMIT_S)
    broker.delay(3600)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)
    broker.delay(0)
    broker.drop_connections()
    assert TOPIC in admin.list_topics(timeout=LIMIT_S).topics


# -- time


def test_records_past_their_retention_go_when_time_is_advanced(klamm_broker: Broker) -> None:
    klamm_broker.create_topic(TOPIC, retention_ms=60_000)
    producer = Producer({"log_level": 0, "bootstrap.servers": klamm_broker.bootstrap})
    for i in range(10):
        producer.produce(TOPIC, str(i))
    assert producer.flush(LIMIT_S) == 0
    klamm_broker.advance_time(30)
    assert len(klamm_broker.records(TOPIC)) == 10
    klamm_broker.advance_time(31)
    assert klamm_broker.records(TOPIC) == []
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": klamm_broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=LIMIT_S) == (10, 10)
    consumer.close()


def test_records_go_that_were_written_before_a_restart(klamm_broker: Broker) -> None:
    klamm_broker.create_topic(TOPIC, retention_ms=60_000)
    producer = Producer({"log_level": 0, "bootstrap.servers": klamm_broker.bootstrap})
    producer.produce(TOPIC, "a")
    assert producer.flush(LIMIT_S) == 0
    klamm_broker.restart()
    klamm_broker.advance_time(61)
    assert klamm_broker.records(TOPIC) == []


async def test_log_append_time_is_the_brokers_time(klamm_async_broker: AsyncBroker) -> None:
    await klamm_async_broker.create_topic(TOPIC, message_timestamp_type="LogAppendTime")
    async with AIOKafkaProducer(bootstrap_servers=klamm_async_broker.bootstrap) as producer:
        await producer.send_and_wait(TOPIC, b"now")
        await klamm_async_broker.advance_time(3600)
        await producer.send_and_wait(TOPIC, b"later")
    first, second = await klamm_async_broker.records(TOPIC)
    assert second.timestamp_ms - first.timestamp_ms >= 3_600_000
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=klamm_async_broker.bootstrap, auto_offset_reset="earliest")
    async with consumer:
        assert (await consumer.getone()).value == b"now"
