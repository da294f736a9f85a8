"""Which of several test processes (pytest-xdist) runs what, and in which order.

A module stays whole, with the broker that its tests share, and goes to whoever is free. Spark takes long to start, so
one process runs all tests that share a session. What takes long comes first: the many short tests at the end leave
nobody without work.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
APART = frozenset({
    "test_cluster.py", "test_pipeline_process.py", "test_sink_kills.py", "test_sink_rules.py", "test_sink_stories.py",
    "test_source_readers.py",
})  # fmt: skip
"""Those of Spark's that have sessions in processes of their own, or none."""
FOLDERS = ("spark", "clients", "process", "sim", "testing", "unit")


def rank(path: str) -> int:
    """Of a test in the order of all, by its path below the project; one that is nowhere of these comes first."""
    folder = path.removeprefix("tests/").partition("/")[0]
    return FOLDERS.index(folder) if folder in FOLDERS else -1


class ByModule(LoadScopeScheduling):  # type: ignore[misc]
    """In the order in which the processes have collected: see `rank`."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return SPARK if path.startswith(SPARK) and path.removeprefix(SPARK) not in APART else path
