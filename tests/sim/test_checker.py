"""A checker that cannot fail proves nothing: break the broker, or its disk, and see that it does."""

from __future__ import annotations

import pytest

from klamm.log.manager import LogManager
from klamm.log.producer_state import ProducerStates
from klamm.log.results import Appended
from klamm.replica.partition import Partition
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.broker.scenario import run_seed
from klamm.testing.sim.disk import SimFile, SimFiles, SimVolume

SEEDS = range(30)  # all of them pass unless something is broken: see test_broker_crashes.py


def is_found():
    """Whether a broken promise comes to light in some seed. Broken things may also fail in other ways."""
    for seed in SEEDS:
        try:
            run_seed(seed)
        except Violation:
            return True
        except Exception:
            continue
    return False


@pytest.mark.parametrize("suffix", [".log", ""])
def test_syncs_of_files_that_do_nothing_are_found(monkeypatch, suffix):
    sync = SimFile.sync

    def lying(self):
        if not self.path.endswith(suffix):
            sync(self)

    monkeypatch.setattr(SimFile, "sync", lying)
    assert is_found()


def test_syncs_of_folders_that_do_nothing_are_found(monkeypatch):
    monkeypatch.setattr(SimFiles, "sync_dir", lambda self, path: None)
    assert is_found()


def test_syncs_of_the_whole_disk_that_do_nothing_are_found(monkeypatch):
    monkeypatch.setattr(SimVolume, "sync", lambda self: None)
    assert is_found()


def test_an_acknowledgement_before_the_write_is_found(monkeypatch):
    append = Partition.append
    appended = 0

    def forgetful(self, records, acks):
        nonlocal appended
        appended += 1
        if appended % 50 == 0 and self.log is not None:
            return Appended(self.log.end_offset, self.log.end_offset, -1)
        return append(self, records, acks)

    monkeypatch.setattr(Partition, "append", forgetful)
    assert is_found()


def test_deleted_records_that_come_back_are_found(monkeypatch):
    async def forgetful(self, targets):
        for log, offset in targets:
            log.advance_start_offset(offset)  # and the next start does not know

    monkeypatch.setattr(LogManager, "move_starts", forgetful)
    assert is_found()


def test_a_duplicate_that_is_written_again_is_found(monkeypatch):
    monkeypatch.setattr(ProducerStates, "check", lambda self, *args, **options: None)
    assert is_found()
