"""Apache Kafka's own dump-log tool reads our segments and finds nothing to complain about.

It checks every index entry against the log: positions, offsets and timestamps.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from klamm.core.env.real import real_env
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.log import Log
from klamm.log.results import Appended, LogState
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker
from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools

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
