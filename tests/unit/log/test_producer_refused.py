"""Idempotent producers and a disk that is full for a moment: nothing may be lost behind an accepted batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.core.env import Buffer
from klamm.core.env.real import RealFile, real_env
from klamm.core.errors import ErrorCode
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.log import Log
from klamm.log.results import Appended, LogState, Rejected
from klamm.records.record import Record, encode_batch

pytestmark = pytest.mark.usefixtures("quick_disk")


def batch(sequence: int, producer_id: int = 7) -> bytearray:
    now_ms = real_env().clock.time_ms()
    return bytearray(
        encode_batch(
            [Record(0, now_ms, None, b"value")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
    )


def code_of(result: Appended | Rejected) -> ErrorCode:
    return result.code if isinstance(result, Rejected) else ErrorCode.NONE


class FullDisk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        for name in ("append", "pwrite"):
            real = getattr(RealFile, name)

            def write(file: RealFile, data: Buffer, *args: int, real: object = real) -> None:
                if self.full and file.path.endswith(".log"):
                    raise OSError(28, "No space left on device")
                real(file, data, *args)  # type: ignore[operator]

            monkeypatch.setattr(RealFile, name, write)


async def test_what_a_new_producer_sent_behind_a_batch_that_did_not_fit_is_refused_until_that_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = real_env()
    log = Log.open(
        env, str(tmp_path / "t-0"), LogConfig(), name="t-0", handles=Handles(env.files), state=LogState(0, 0, 0, 0)
    )
    disk = FullDisk(monkeypatch)
    assert code_of(log.append(batch(0), leader_epoch=0)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.full = False
    assert code_of(log.append(batch(1), leader_epoch=0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [code_of(log.append(batch(n), leader_epoch=0)) for n in (0, 1, 2)] == [ErrorCode.NONE] * 3
    await log.settle()
    log.discard()


async def test_the_same_holds_for_batches_that_were_queued_and_then_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = real_env()
    config = LogConfig(flush_messages=1)  # every write goes through the queue
    log = Log.open(
        env, str(tmp_path / "t-0"), config, name="t-0", handles=Handles(env.files), state=LogState(0, 0, 0, 0)
    )
    assert code_of(log.append(batch(0, producer_id=1), leader_epoch=0)) == ErrorCode.NONE
    await log.settle()
    disk = FullDisk(monkeypatch)
    for sequence in (0, 1):
        assert code_of(log.append(batch(sequence), leader_epoch=0)) == ErrorCode.NONE  # a place, not written yet
    await log.settle()
    disk.full = False
    assert log.failure is None and log.end_offset == 1
    assert code_of(log.append(batch(2), leader_epoch=0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [code_of(log.append(batch(n), leader_epoch=0)) for n in (0, 1, 2)] == [ErrorCode.NONE] * 3
    await log.settle()
    assert log.end_offset == 4
    log.discard()
    env.executor.close()
