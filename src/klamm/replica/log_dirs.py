"""The data folder as administrators look at it: how full its disk is, and how large the partitions in it are.

Nothing is opened for it: the folders of partitions that nobody has used since the start are looked at off the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.core.env import Files
from klamm.log.folder import partition_name
from klamm.log.housekeeping import sliced
from klamm.log.segment import LOG_SUFFIX

if TYPE_CHECKING:
    from klamm.log.manager import LogManager

SLICE: Final = 200
"""Partitions that are measured before others have their turn: on the loop, and in one job of the executor."""


class LogDir(NamedTuple):
    path: str
    total_bytes: int
    usable_bytes: int
    sizes: dict[str, dict[int, int]]
    """Of batches, without indexes; by topic and partition."""


def log_dir_path(logs: LogManager) -> str:
    """The one folder that this broker keeps partitions in."""
    return os.path.abspath(logs.folder.path)


async def describe_log_dir(logs: LogManager, partitions: Iterable[tuple[str, int]]) -> LogDir:
    """OSError if the folder itself cannot be looked at."""
    files, submit, folder = logs.env.files, logs.env.executor.submit, logs.folder
    total, usable = await submit(lambda: (files.total_bytes(folder.path), files.free_bytes(folder.path)))
    sizes: dict[str, dict[int, int]] = {}
    for some in sliced(partitions, SLICE):
        unopened: list[tuple[str, int]] = []
        for topic, index in some:
            log = logs.get(topic, index)
            if log is None or not log.touched:
                unopened.append((topic, index))
            sizes.setdefault(topic, {})[index] = log.size_bytes if log is not None and log.touched else 0
        if unopened:
            paths = [folder.log_path(partition_name(*partition)) for partition in unopened]
            measured = await submit(_measure, files, paths)
            for (topic, index), size in zip(unopened, measured, strict=True):
                sizes[topic][index] = size
        else:
            await asyncio.sleep(0)
    return LogDir(log_dir_path(logs), total, usable, sizes)


def _measure(files: Files, paths: list[str]) -> list[int]:
    """Blocks."""
    return [_size(files, path) for path in paths]


def _size(files: Files, path: str) -> int:
    """0 for a folder that is not there: nothing was ever written to that partition."""
    try:
        return sum(files.size(f"{path}/{name}") for name in files.list(path) if name.endswith(LOG_SUFFIX))
    except OSError:
        return 0
