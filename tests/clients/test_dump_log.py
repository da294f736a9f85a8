"""Apache Kafka's own dump-log tool reads our segments and finds nothing to complain about.

It checks every index entry against the log: positions, offsets and timestamps.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from klamm.coordinator.machine import Producer as Owner
from klamm.coordinator.records import TRANSACTIONS
from klamm.coordinator.transactions.machine import Settings
from klamm.coordinator.transactions.state import Transaction
from klamm.core.env.real import real_env
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.log import Log
from klamm.log.results import Appended, LogState
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker
from klamm.wire.messages.coordinator import TransactionLogValue
from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess
from support.transactions import LAST_EPOCH, T0, T1, U0, Driver

BATCHES = 600

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 100)


async def write_log(path: Path) -> LogState:
    """Segments with every codec, times that go up and down, open, committed and aborted transactions."""
    env = real_env()
    config = LogConfig(segment_bytes=30_000, index_interval_bytes=1000)
    log = Log.open(env, str(path), config, name="t-0", handles=Handles(env.files), state=LogState(0, 0, 0, 0))
    now = env.clock.time_ms() - 100_000
    sequence = 0
    for i in range(BATCHES):
        timestamp = now + i * 10 + i * 37 % 101
        records = [Record(0, timestamp + k % 2, b"key", b"value" * 20, (("h", b"x"),)) for k in range(1 + i % 5)]
        batch = encode_batch(
            records,
            codec=Codec(i % 5),
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        sequence += len(records)
        assert isinstance(log.append(bytearray(batch), leader_epoch=i // 200), Appended)
        if i % 50 == 49:
            kind = ControlType.ABORT if i % 100 == 99 else ControlType.COMMIT
            marker = encode_end_marker(EndMarker(kind, 0), producer_id=7, producer_epoch=0, timestamp=timestamp)
            assert isinstance(log.append(bytearray(marker), leader_epoch=i // 200, from_client=False), Appended)
    await log.settle()
    state = log.close()
    env.executor.close()
    assert state is not None
    return state


def write_transactions(path: Path) -> list[str]:
    """A transactional id in all of its states, as the coordinator keeps it. Returns the states."""
    driver = Driver(settings=Settings(two_phase_commit=True))
    driver.put(Transaction("x", Owner(7, LAST_EPOCH), 1000, driver.now.time_ms))
    driver.add(Owner(7, LAST_EPOCH), T0, T1, U0)
    driver.finish(Owner(7, LAST_EPOCH))  # with another producer id, because there are no more epochs
    driver.write_markers()
    driver.add(Owner(100, 0), U0)
    driver.init(keep=True)  # whose fields Kafka does not know
    driver.finish(Owner(100, 1), False)
    driver.write_markers()
    env = real_env()
    log = Log.open(env, str(path), LogConfig(), name=path.name, handles=Handles(env.files), state=LogState(0, 0, 0, 0))
    states: list[str] = []
    for key, value, _ in driver.log:
        batch = encode_batch([Record(0, driver.now.time_ms, key, value)])
        assert isinstance(log.append(bytearray(batch), leader_epoch=0, from_client=False), Appended)
        record = TRANSACTIONS.decode(key, value)
        assert record is not None and isinstance(record.value, TransactionLogValue)
        states.append(str(record.value.transaction_status))
    log.close()
    env.executor.close()
    return states


def test_kafkas_dump_log_reads_our_transactions(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    states = write_transactions(tmp_path / "__transaction_state-0")
    (file,) = tmp_path.glob("*/*.log")
    text = kafka_tools("kafka-dump-log", "--transaction-log-decoder", "--files", str(file))
    assert re.findall(r'"transactionStatus":(\d)', text) == states == list("01241135")
    assert text.count('"transactionalId":"x"') == len(states)
    assert '"nextProducerId":100' in text and '"previousProducerId":7' in text
    assert re.search(r'"topic":"t","partitionIds":\[0,1\]\},\{"topic":"u","partitionIds":\[0\]', text)


def test_kafkas_dump_log_reads_our_segments(tmp_path: Path, kafka_tools: KafkaTools) -> None:
    state = asyncio.run(write_log(tmp_path / "t-0"))
    files = [str(f) for suffix in ("log", "index", "timeindex", "txnindex") for f in tmp_path.glob(f"t-0/*.{suffix}")]
    assert len(files) >= 12
    text = kafka_tools("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    for complaint in ("mismatch", "not found", "out of order", "Corrupt", "isvalid: false", "rror"):
        assert complaint not in text
    assert len(re.findall(r"^baseOffset: ", text, re.M)) == BATCHES + BATCHES // 50
    assert len(re.findall(r"^\| offset: ", text, re.M)) == state.end_offset
    assert len(re.findall(r"producerId: 7 firstOffset: ", text)) == BATCHES // 100  # the transaction indexes
    assert len(re.findall(r"^offset: \d+ position: ", text, re.M)) > 50
    assert len(re.findall(r"^timestamp: \d+ offset: ", text, re.M)) > 50
    indexes = ",".join(file for file in files if file.endswith("index") and not file.endswith("txnindex"))
    sane = kafka_tools("kafka-dump-log", "--index-sanity-check", "--files", indexes)
    assert sane.count("passed sanity check") == sane.count("Dumping ") > 0


def test_kafkas_dump_log_reads_compacted_segments(
    tmp_path: Path, kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess]
) -> None:
    options = {
        "log.cleanup.policy": "compact",
        "log.segment.bytes": 5000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.backoff.ms": 20,
        "log.index.interval.bytes": 500,
    }
    broker = start_broker(tmp_path, options=options)
    for codec in ("none", "gzip", "lz4"):
        sender = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True}
        )
        for i in range(600):
            noise = random.Random(i).randbytes(30)
            sender.produce("t", None if i % 7 == 0 else noise, key=b"k%d" % (i % 97), partition=0)
            if i % 20 == 0:
                assert sender.flush(30) == 0
        assert sender.flush(30) == 0
    folder = tmp_path / "topics" / "t-0"
    while len(list(folder.glob("*.log"))) > 8:  # 20 without compaction
        Consumer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": "g"}).list_topics(timeout=30)
    assert broker.stop() == 0
    files = [str(f) for suffix in ("log", "index", "timeindex") for f in folder.glob(f"*.{suffix}")]
    text = kafka_tools("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    for complaint in ("mismatch", "not found", "out of order", "Corrupt", "isvalid: false", "rror"):
        assert complaint not in text
    assert "deleteHorizonMs: OptionalLong[1" in text
    assert 97 <= len(re.findall(r"^\| offset: ", text, re.M)) < 1000
