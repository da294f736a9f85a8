"""One broker, a thousand seeds of crashes: nothing acknowledged is lost by a kill, nothing flushed by a power loss."""

from __future__ import annotations

from klamm.testing.sim.broker.scenario import run_seed
from support.seeds import in_every_run, in_soak, tell_all


@in_every_run(100, step=10)
def test_the_broker_keeps_its_promises_over_crashes(seeds: range) -> None:
    tell_all(run_seed, seeds, "", lives=2)


@in_soak()
def test_the_broker_keeps_its_promises_over_many_crashes(seeds: range) -> None:
    tell_all(run_seed, seeds, "", lives=2)
