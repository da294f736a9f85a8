"""A checker that cannot fail proves nothing: break the broker, or its disk, and see that it does."""

from __future__ import annotations

import pytest

from klamm.log.results import Appended
from klamm.replica.partition import Partition
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.broker.scenario import run_seed
from klamm.testing.sim.disk import SimFile, SimFiles
from klamm.testing.sim.world import SimFailure

SEEDS = range(30)


def violations():
    """What goes wrong over some seeds: broken promises, and starts that the broker refuses."""
    found = []
    for seed in SEEDS:
        try:
            run_seed(seed)
        except Violation as violation:
            found.append(str(violation))
            if len(found) == 3:
                break
        except (SimFailure, Exception):
            continue
    return found


@pytest.mark.parametrize("cls", [SimFile, SimFiles])
def test_syncs_that_do_nothing_are_found(monkeypatch, cls):
    monkeypatch.setattr(cls, "sync" if cls is SimFile else "sync_dir", lambda self, *path: None)
    assert violations()


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
    assert violations()


def test_a_duplicate_that_is_written_again_is_found(monkeypatch):
    from klamm.log.producer_state import ProducerStates

    check = ProducerStates.check

    def careless(self, *args, **kwargs):
        result = check(self, *args, **kwargs)
        return None if result is not None else result

    monkeypatch.setattr(ProducerStates, "check", careless)
    assert violations()
