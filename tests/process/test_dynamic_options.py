"""Every option of a topic that is honoured, changed with IncrementalAlterConfigs while the broker runs: it does what it
says from then on, and no restart was needed. Then the same for options of the broker."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)

from klamm.core.env.real import RealFiles, real_env
from klamm.log.folder import read_state
from klamm.wire.frames import decode_response, encode_request
from klamm.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.process import BrokerProcess
from support.stored import stored_codecs

SECOND = 1000
HOUR = 3600 * SECOND
# Jobs of the clock as often as they may be: what retention and flushing do is waited for.
HASTY = {
    "log.retention.check.interval.ms": 20,
    "log.flush.offset.checkpoint.interval.ms": 20,
    "log.cleaner.backoff.ms": 20,
    "auto.create.topics.enable": "false",
}


class Broker:
    """A running broker with what these tests do to it. `topic` is one for each test."""

    def __init__(self, process: BrokerProcess, topic: str = "t") -> None:
        self.process = process
        self.topic = topic
        self.admin = AdminClient({"log_level": 0, "bootstrap.servers": process.bootstrap})

    def create(self, **configs: object) -> Broker:
        given = {name.replace("_", "."): str(value) for name, value in configs.items()}
        (made,) = self.admin.create_topics([NewTopic(self.topic, 1, config=given)]).values()
        made.result(30)
        return self

    def set(self, **configs: object) -> None:
        self.change(ConfigResource(ResourceType.TOPIC, self.topic), **configs)

    def set_for_all_brokers(self, **configs: object) -> None:
        """librdkafka has no way to say "all brokers", so this is written by hand."""
        changes = [
            AlterableConfig(
                name=name.replace("_", "."),
                config_operation=AlterConfigOpType.DELETE.value if value is None else AlterConfigOpType.SET.value,
                value=None if value is None else str(value),
            )
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER.value, resource_name="", configs=changes)
        frame = b"".join(bytes(p) for p in encode_request(IncrementalAlterConfigsRequest(resources=[resource]), 1, 1))
        with socket.create_connection(("127.0.0.1", self.process.port), timeout=30) as connection:
            connection.sendall(frame)
            stream = connection.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            _, response = decode_response(IncrementalAlterConfigsResponse, stream.read(size), 1)
        assert [result.error_code for result in response.responses] == [0], response

    def change(self, resource: ConfigResource, **configs: object) -> None:
        """None takes an option back."""
        for name, value in configs.items():
            operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            text = None if value is None else str(value)
            resource.add_incremental_config(ConfigEntry(name.replace("_", "."), text, incremental_operation=operation))
        (done,) = self.admin.incremental_alter_configs([resource]).values()
        done.result(30)

    def described(self, resource_type: ResourceType, name: str) -> dict[str, ConfigEntry]:
        (found,) = self.admin.describe_configs([ConfigResource(resource_type, name)]).values()
        return dict(found.result(30))

    def produce(
        self, *values: bytes | None, timestamps: list[int] | None = None, key: bytes | None = None, **config: object
    ) -> KafkaError | None:
        """Each value in a batch of its own; the first error, if there is one."""
        producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": self.process.bootstrap,
                "linger.ms": 0,
                "acks": "all",
                "message.timeout.ms": 30_000,
            }
            | {name.replace("_", "."): value for name, value in config.items()}
        )
        errors: list[KafkaError] = []
        stamps = timestamps or [real_env().clock.time_ms()] * len(values)
        for value, stamp in zip(values, stamps, strict=True):
            producer.produce(
                self.topic,
                value,
                key,
                timestamp=stamp,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
            assert producer.flush(30) == 0
        return errors[0] if errors else None

    def code_of(self, *values: bytes, **kwargs: Any) -> int | None:
        error = self.produce(*values, **kwargs)
        return None if error is None else error.code()

    def consumer(self) -> Consumer:
        return Consumer(
            {
                "log_level": 0,
                "bootstrap.servers": self.process.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
            }
        )

    def offsets(self) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=30)  # type: ignore[no-any-return]
        finally:
            consumer.close()

    def first_message(self, offset: int = OFFSET_BEGINNING) -> Any:
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(self.topic, 0, offset)])
            return consumer.consume(1, timeout=30)[0]
        finally:
            consumer.close()

    @property
    def folder(self) -> Path:
        return self.process.data / "topics" / f"{self.topic}-0"

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.folder.glob(f"*{suffix}"))

    def size(self, suffix: str) -> int:
        """The bytes of those files; the broker may delete one between its listing and its stat."""
        total = 0
        for path in self.files(suffix):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def recovery_point(self) -> int:
        saved = read_state(RealFiles(), str(self.process.data)).logs.get(f"{self.topic}-0")
        return 0 if saved is None else saved.state.recovery_point

    def until(self, condition: Callable[[], object]) -> None:
        """Ask the broker something until the condition holds; the test's time limit is the only one."""
        while not condition():
            self.admin.list_topics(self.topic, timeout=30)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options=dict(HASTY))
    yield process
    assert process.stop() == 0
    assert not [line for line in process.errors if "Traceback" in line], "".join(process.errors)


@pytest.fixture
def broker(process: BrokerProcess, request: pytest.FixtureRequest) -> Broker:
    return Broker(process, request.node.name.replace("[", ".").replace("]", ""))


def old(count: int) -> list[int]:
    """Timestamps of an hour ago, a millisecond apart."""
    start = real_env().clock.time_ms() - HOUR
    return list(range(start, start + count))


# ---- topics


def test_max_message_bytes(broker: Broker) -> None:
    broker.create()
    assert broker.code_of(b"x" * 5000) is None
    broker.set(max_message_bytes=1000)
    assert broker.code_of(b"x" * 5000) == KafkaError.MSG_SIZE_TOO_LARGE
    broker.set(max_message_bytes=None)
    assert broker.code_of(b"x" * 5000) is None


def test_segment_bytes(broker: Broker) -> None:
    broker.create()
    broker.produce(*[b"x" * 100] * 5)
    assert len(broker.files(".log")) == 1
    broker.set(segment_bytes=400)
    broker.produce(*[b"x" * 100] * 6)
    assert len(broker.files(".log")) == 4


def test_segment_ms(broker: Broker) -> None:
    broker.create()
    now = real_env().clock.time_ms()
    stamps = [now - 30 * SECOND, now - 20 * SECOND, now - 10 * SECOND]
    broker.produce(b"1", b"2", b"3", timestamps=stamps)
    assert len(broker.files(".log")) == 1
    broker.set(segment_ms=5 * SECOND)
    broker.produce(b"4", b"5", timestamps=[now - 3 * SECOND, now])
    assert len(broker.files(".log")) == 2


def test_segment_jitter_ms(broker: Broker) -> None:
    broker.create(segment_ms=10 * SECOND)
    now = real_env().clock.time_ms()
    stamps = [now - 200 * SECOND + i * SECOND for i in range(200)]
    broker.produce(*[b"x"] * 100, timestamps=stamps[:100])
    without = len(broker.files(".log"))
    assert without == 10
    broker.set(segment_jitter_ms=10 * SECOND)
    broker.produce(*[b"x"] * 100, timestamps=stamps[100:])
    assert len(broker.files(".log")) > 2 * without + 1


def test_index_interval_bytes(broker: Broker) -> None:
    broker.create(segment_bytes=1000)
    broker.produce(*[b"x"] * 30)
    broker.until(lambda: len(broker.files(".index")) == 2)  # of the segments that are finished
    assert [path.stat().st_size for path in broker.files(".index")] == [0, 0]
    broker.set(index_interval_bytes=1)  # from the next segment on, as with Kafka
    broker.produce(*[b"x"] * 30)
    broker.until(lambda: len(broker.files(".index")) == 4)
    assert broker.files(".index")[3].stat().st_size >= 10 * 8


def test_segment_index_bytes(broker: Broker) -> None:
    broker.create(index_interval_bytes=1)
    broker.produce(*[b"x"] * 12)
    assert len(broker.files(".log")) == 1
    broker.set(segment_index_bytes=36)
    broker.produce(*[b"x"] * 12)
    assert len(broker.files(".log")) > 3


def test_retention_ms(broker: Broker) -> None:
    broker.create()
    broker.produce(*[b"x"] * 3, timestamps=old(3))
    assert broker.offsets() == (0, 3)
    broker.set(retention_ms=60 * SECOND)
    broker.until(lambda: broker.offsets() == (3, 3))


def test_retention_bytes(broker: Broker) -> None:
    broker.create(segment_bytes=400)
    broker.produce(*[b"x" * 100] * 20)
    assert broker.offsets() == (0, 20)
    broker.set(retention_bytes=1000)
    broker.until(lambda: broker.offsets()[0] > 0)
    broker.until(lambda: broker.size(".log") <= 1400)
    assert broker.offsets()[0] < 20


def test_cleanup_policy(broker: Broker) -> None:
    broker.create(cleanup_policy="compact", retention_ms=60 * SECOND)
    assert broker.code_of(b"x") == KafkaError.INVALID_RECORD  # it has no key
    broker.produce(*[b"x"] * 3, timestamps=old(3), key=b"k")
    other = Broker(broker.process, f"{broker.topic}-deleted").create(retention_ms=60 * SECOND)
    other.produce(b"x", timestamps=old(1))
    other.until(lambda: other.offsets() == (1, 1))  # retention has run
    assert broker.offsets() == (0, 3)
    broker.set(cleanup_policy="delete")
    broker.until(lambda: broker.offsets() == (3, 3))


def compacted(broker: Broker) -> bool:
    """Whether it was just after the last record."""
    state = read_state(RealFiles(), str(broker.process.data)).logs.get(f"{broker.topic}-0")
    return state is not None and state.state.clean_offset >= broker.offsets()[1] - 1


@pytest.mark.parametrize(
    ("option", "before", "after"),
    [
        ("min.cleanable.dirty.ratio", {"min.cleanable.dirty.ratio": 1}, 0.01),
        ("min.compaction.lag.ms", {"min.cleanable.dirty.ratio": 0, "min.compaction.lag.ms": 2 * HOUR}, 0),
        ("max.compaction.lag.ms", {"min.cleanable.dirty.ratio": 1}, 1),
    ],
)
def test_when_a_log_is_compacted(broker: Broker, option: str, before: dict[str, object], after: float) -> None:
    broker.create(cleanup_policy="compact", segment_bytes=100, **before)
    broker.produce(b"x", b"y", b"z", timestamps=old(3), key=b"k")
    other = Broker(broker.process, f"{broker.topic}-other")
    other.create(cleanup_policy="compact", segment_bytes=100, min_cleanable_dirty_ratio=0)
    other.produce(b"x", b"y", key=b"k")
    other.until(lambda: compacted(other))  # they were looked at
    assert not compacted(broker)
    broker.set(**{option: after})
    broker.until(lambda: compacted(broker))
    assert broker.first_message().value() == b"y"  # the last one is in the active segment


def test_delete_retention_ms(broker: Broker) -> None:
    broker.create(cleanup_policy="compact", segment_bytes=100, min_cleanable_dirty_ratio=0, delete_retention_ms=HOUR)
    broker.produce(None, timestamps=old(1), key=b"gone")
    broker.produce(b"x", b"y", key=b"k")
    broker.until(lambda: compacted(broker))
    assert broker.first_message().key() == b"gone"
    broker.set(delete_retention_ms=0)
    broker.produce(None, timestamps=old(1), key=b"gone too")  # the first one has its hour already
    broker.until(lambda: broker.produce(b"z", key=b"k") or (broker.size(".log") and not _has(broker, b"gone too")))
    assert _has(broker, b"gone")


def _has(broker: Broker, key: bytes) -> bool:
    return any(key in path.read_bytes() for path in broker.files(".log") if path.exists())


def test_file_delete_delay_ms(broker: Broker) -> None:
    broker.create(segment_bytes=400, file_delete_delay_ms=HOUR)
    broker.produce(*[b"x" * 100] * 10)
    broker.set(retention_bytes=1000)
    broker.until(lambda: broker.offsets()[0] > 0)
    first = broker.offsets()[0]
    live = (".log", ".index", ".timeindex")  # files get their new names one after the other
    broker.until(lambda: all(int(path.stem) >= first for suffix in live for path in broker.files(suffix)))
    kept = broker.files(".deleted")
    assert kept
    broker.set(file_delete_delay_ms=0)
    start = broker.offsets()[0]
    broker.produce(*[b"x" * 100] * 10)
    broker.until(lambda: broker.offsets()[0] > start)
    broker.until(lambda: broker.files(".deleted") == kept)  # those that went before the change keep their time


def test_message_timestamp_type(broker: Broker) -> None:
    broker.create()
    stamps = old(1)
    broker.produce(b"x", timestamps=stamps)
    assert broker.first_message().timestamp() == (TIMESTAMP_CREATE_TIME, stamps[0])
    broker.set(message_timestamp_type="LogAppendTime")
    broker.produce(b"x", timestamps=stamps)
    kind, stamp = broker.first_message(1).timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME and stamp > stamps[0]


@pytest.mark.parametrize(("option", "away"), [("before", -2 * HOUR), ("after", HOUR // 2)])
def test_message_timestamp_limits(broker: Broker, option: str, away: int) -> None:
    broker.create()
    stamp = [real_env().clock.time_ms() + away]
    assert broker.code_of(b"x", timestamps=stamp) is None
    broker.set(**{f"message_timestamp_{option}_max_ms": 60 * SECOND})
    assert broker.code_of(b"x", timestamps=stamp) == KafkaError.INVALID_TIMESTAMP
    broker.set(**{f"message_timestamp_{option}_max_ms": None})
    assert broker.code_of(b"x", timestamps=stamp) is None


@pytest.mark.parametrize(("option", "value"), [("flush_messages", 1), ("flush_ms", 1)])
def test_flush(broker: Broker, option: str, value: int) -> None:
    broker.create()
    broker.produce(b"1", b"2")
    assert broker.recovery_point() == 0
    broker.set(**{option: value})
    broker.produce(b"3")
    broker.until(lambda: broker.recovery_point() == 3)


def test_compression_type(broker: Broker) -> None:
    broker.create()
    broker.produce(b"x" * 1000, compression_type="lz4")
    assert stored_codecs(broker.process.data, broker.topic) == {"lz4"}
    for codec in ("gzip", "zstd", "snappy"):
        broker.set(compression_type=codec)
        broker.produce(b"x" * 1000, compression_type="lz4")
    broker.set(compression_type="uncompressed")
    broker.produce(b"y" * 1000, compression_type="lz4")
    assert stored_codecs(broker.process.data, broker.topic) == {"lz4", "gzip", "zstd", "snappy", "none"}
    broker.set(compression_type="producer")
    assert broker.first_message(4).value() == b"y" * 1000


def test_min_insync_replicas_is_never_more_than_there_are_replicas(broker: Broker) -> None:
    broker.create()
    broker.set(min_insync_replicas=3)
    assert broker.described(ResourceType.TOPIC, broker.topic)["min.insync.replicas"].value == "3"
    assert broker.code_of(b"x") is None


def test_the_honoured_options_that_have_a_test_here_are_all_there_are() -> None:
    from klamm.core.options import TOPIC_OPTIONS

    tested = {
        "max.message.bytes", "segment.bytes", "segment.ms", "segment.jitter.ms", "segment.index.bytes",
        "index.interval.bytes", "retention.ms", "retention.bytes", "cleanup.policy", "file.delete.delay.ms",
        "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
        "flush.messages", "flush.ms", "compression.type", "min.insync.replicas", "delete.retention.ms",
        "min.compaction.lag.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio",
    }  # fmt: skip
    levels = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"}  # tests/unit/replica
    assert tested | levels == {
        name for name, option in TOPIC_OPTIONS.items() if option.honoured and not option.internal
    }


def test_what_cannot_be_is_refused_and_changes_nothing(broker: Broker) -> None:
    broker.create()
    for configs, code, words in [
        ({"retention_mss": 1}, KafkaError.INVALID_CONFIG, "did you mean retention.ms?"),
        ({"retention_ms": "soon"}, KafkaError.INVALID_CONFIG, "not a whole number"),
    ]:
        with pytest.raises(KafkaException) as refused:
            broker.set(segment_ms=5, **configs)
        assert refused.value.args[0].code() == code and words in refused.value.args[0].str()
    assert broker.described(ResourceType.TOPIC, broker.topic)["segment.ms"].is_default


# ---- the broker


def test_a_limit_for_all_brokers_is_that_of_every_topic_without_one_of_its_own(broker: Broker) -> None:
    broker.create()
    own = Broker(broker.process, f"{broker.topic}-own").create(max_message_bytes=900_000)
    assert (broker.code_of(b"x" * 5000), own.code_of(b"x" * 5000)) == (None, None)
    broker.set_for_all_brokers(message_max_bytes=2000)
    assert (broker.code_of(b"x" * 5000), own.code_of(b"x" * 5000)) == (KafkaError.MSG_SIZE_TOO_LARGE, None)
    broker.set_for_all_brokers(message_max_bytes=None)
    assert broker.code_of(b"x" * 5000) is None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_retention_set_after_a_restart_reaches_logs_that_nobody_has_asked_for(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, end: str
) -> None:
    first = Broker(start_broker(tmp_path / "data", options=dict(HASTY))).create()
    first.produce(*[b"x"] * 3, timestamps=old(3))
    getattr(first.process, end)()
    second = Broker(start_broker(tmp_path / "data", options=dict(HASTY)), "t")
    assert len(second.files(".log")) == 1
    second.set_for_all_brokers(log_retention_ms=60 * SECOND)
    second.until(lambda: second.files(".log.deleted"))
    second.until(lambda: second.offsets() == (3, 3))


def test_dynamic_options_of_a_broker_outlive_a_restart(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = Broker(start_broker(tmp_path / "data"))
    broker.set_for_all_brokers(log_retention_ms=HOUR, background_threads=11)
    broker.change(ConfigResource(ResourceType.BROKER, "1"), log_retention_ms=2 * HOUR)
    for number in itertools.count():
        entry = broker.described(ResourceType.BROKER, "1")["log.retention.ms"]
        assert (entry.value, entry.source) == (str(2 * HOUR), ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        assert [synonym.value for synonym in entry.synonyms.values()]
        if number:
            break
        broker.process.stop()
        assert any("without effect in Klamm: background.threads" in line for line in broker.process.errors)
        broker = Broker(start_broker(tmp_path / "data"))


def test_the_number_of_connections_is_limited_while_the_broker_runs(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = Broker(start_broker(tmp_path / "data"))

    def is_served() -> bool:
        with socket.create_connection(("127.0.0.1", broker.process.port), timeout=30) as connection:
            connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions v0
            try:
                return bool(connection.recv(1))
            except ConnectionResetError:
                return False

    broker.admin.list_topics(timeout=30)
    for limit in (
        {"max_connections": 1},
        {"max_connections_per_ip": 1},
        {"max_connections_per_ip_overrides": "127.0.0.1:1"},
    ):
        assert is_served()
        broker.change(ConfigResource(ResourceType.BROKER, "1"), **limit)
        assert not is_served()  # the admin client has its own
        broker.change(ConfigResource(ResourceType.BROKER, "1"), **dict.fromkeys(limit))
