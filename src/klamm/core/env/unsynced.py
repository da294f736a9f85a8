"""The operating system for a broker whose data nobody needs after a power loss: nothing waits for the disk.

What is written is in the page cache, so it survives the death of the process as always; only the syncs are left out.
They are most of what a broker on a slow disk waits for, and a test has no use for them. Nor are there child processes:
one more that could stay behind. Must never be what a broker that keeps somebody's data runs on.
"""

from __future__ import annotations

import os
import random

from klamm.core.env import Buffer, Clock, Env
from klamm.core.env.real import RealFile, RealFiles, ThreadExecutor
from klamm.core.env.sockets import RealNetwork
from klamm.core.env.volume import RealVolume


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedVolume(RealVolume):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedFiles(RealFiles):
    __slots__ = ()

    file_type = UnsyncedFile

    def write_atomically(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)

    def sync_dir(self, path: str) -> None:
        pass

    def volume(self, path: str) -> UnsyncedVolume:
        return UnsyncedVolume(path)


def unsynced_env(clock: Clock, *, io_threads: int = 4, files: UnsyncedFiles | None = None) -> Env:
    executor = ThreadExecutor(io_threads)
    return Env(
        clock=clock,
        rng=random.SystemRandom(),
        files=files or UnsyncedFiles(),
        executor=executor,
        network=RealNetwork(executor),
    )
