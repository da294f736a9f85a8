"""Spark, killed at random while it writes to a topic: the driver, its tasks, what it has next to it. Every row is there
once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.process import BrokerProcess
from support.sink_kills import Kills

pytest.importorskip("pyspark")

SEED = int(os.environ.get("KLAMM_SINK_SEED", "1"))
KILLS = int(os.environ.get("KLAMM_SINK_KILLS", "60"))


@pytest.mark.timeout(600)
def test_every_row_is_there_once_after_a_few_kills(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    killed = Kills(start_broker().bootstrap, tmp_path, seed=7).run(3, each_life=3)
    assert (killed.drivers, killed.all) == (1, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_row_is_there_once_after_many_kills(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    _kill_many(Kills(start_broker().bootstrap, tmp_path, SEED))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_so_it_is_on_a_cluster(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Tasks that are slow are also run twice there."""
    from support.spark_cluster import StandaloneCluster

    with StandaloneCluster(tmp_path, workers=2) as cluster:
        _kill_many(Kills(start_broker().bootstrap, tmp_path, SEED, cluster))


def _kill_many(kills: Kills) -> None:
    killed = kills.run(KILLS)
    print(f"seed {SEED}: {killed}")
    assert killed.all >= KILLS
