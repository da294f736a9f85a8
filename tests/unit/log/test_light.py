"""Ten thousand partitions, most of which nobody touches."""

from __future__ import annotations

import tracemalloc
from typing import Any

from klamm.log.log import Log
from klamm.log.results import LogState


def test_a_log_that_nobody_touches_is_small_and_does_nothing(world: Any) -> None:
    operations: list[str] = []
    world.disk._observe = lambda operation, path, data: operations.append(operation)
    count = 1000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    logs = [
        Log.open(
            world.env,
            f"data/topics/some-topic-{i}",
            world.config,
            name=f"some-topic-{i}",
            handles=world.handles,
            state=LogState(i, i * 2, i * 2, i * 2),
        )
        for i in range(count)
    ]
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    assert each < 1500
    assert operations == [] and world.handles.open_count == 0
    assert not any(log.touched for log in logs)
    assert [log.close() for log in logs] == [LogState(i, i * 2, i * 2, i * 2) for i in range(count)]
    assert operations == []
