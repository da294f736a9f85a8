"""A log on a simulated disk, with a clock that stands still and jobs that run when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from klamm.core.env import Env, FileRange
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.log import Log
from klamm.log.results import LogState
from klamm.records.batch import BatchHeader, iter_batches
from klamm.records.record import Record, encode_batch
from klamm.testing.sim.disk import DeadIncarnation, SimDisk, SimFile

START_MS = 1_700_000_000_000
FRESH = LogState(0, 0, 0, 0)


class StillClock:
    def __init__(self) -> None:
        self.now_ms = START_MS
        self.seconds = 0.0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class HeldExecutor:
    """Runs jobs at once, or keeps them until `release`."""

    def __init__(self) -> None:
        self.hold = False
        self.jobs: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, fn: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self.jobs.append((future, fn, args))
        if not self.hold:
            self.run_all()
        return future

    def run_all(self) -> None:
        while self.jobs:
            self.run_next()

    def run_next(self) -> None:
        future, fn, args = self.jobs.pop(0)
        try:
            future.set_result(fn(*args))
        except DeadIncarnation:
            raise  # nobody is there any more to hear of it
        except Exception as error:
            future.set_exception(error)

    def close(self) -> None:
        self.run_all()


class World:
    """One log, `log`, and everything around it."""

    path = "data/topics/t-0"

    def __init__(self, seed: int = 0, config: LogConfig | None = None) -> None:
        self.clock = StillClock()
        self.disk = SimDisk(seed, advance=self.clock.advance)
        self.executor = HeldExecutor()
        self.config = config or LogConfig()
        self.loop = asyncio.new_event_loop()
        self.saved = FRESH  # what a state file would hold
        self.boot()
        self.files.make_dirs("data/topics")
        self.files.sync_dir("")
        self.files.sync_dir("data")
        self.open(FRESH)

    def boot(self) -> None:
        """A new process."""
        self.files = self.disk.mount()
        self.executor.jobs.clear()
        self.env = Env(self.clock, Random(0), self.files, self.executor, None)  # type: ignore[arg-type]
        self.handles = Handles(self.files, max_open=3, max_mapped=2, shared=True)

    def open(self, state: LogState | None, checkpoint: LogState | None = None) -> Log:
        self.log = Log.open(
            self.env,
            self.path,
            self.config,
            name="t-0",
            handles=self.handles,
            state=state,
            checkpoint=checkpoint,
        )
        return self.log

    def configure(self, **changes: Any) -> None:
        self.config = self.log.config = self.config._replace(**changes)

    # ---- doing things as the loop would

    def do(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = fn(*args, **kwargs)
            for _ in range(5):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(run())

    def turn(self) -> None:
        """Let callbacks run."""
        self.do(lambda: None)

    def batch(self, count: int = 1, size: int = 10, timestamp: int | None = None, **options: Any) -> bytearray:
        first = self.clock.now_ms if timestamp is None else timestamp
        return bytearray(encode_batch([Record(0, first + i, b"key", b"v" * size) for i in range(count)], **options))

    def append(
        self, count: int = 1, size: int = 10, timestamp: int | None = None, epoch: int = 0, **options: Any
    ) -> Any:
        return self.do(self.log.append, self.batch(count, size, timestamp, **options), leader_epoch=epoch)

    def fill(self, batches: int, count: int = 1, size: int = 10) -> None:
        for _ in range(batches):
            self.append(count, size)

    def flush(self) -> Any:
        async def run() -> Any:
            return await self.log.flush()

        return self.loop.run_until_complete(run())

    def settle(self) -> None:
        self.loop.run_until_complete(self.log.settle())

    # ---- ends and beginnings

    def save(self) -> None:
        """The state file is written."""
        self.saved = self.log.state()

    def close(self) -> LogState | None:
        self.settle()
        return self.log.close()

    def reopen(self) -> Log:
        """A clean stop and start."""
        state = self.close()
        assert state is not None, self.log.failure
        self.saved = state
        self.disk.kill()
        self.boot()
        return self.open(state)

    def kill(self) -> Log:
        self.disk.kill()
        self.boot()
        return self.open(None, self.saved)

    def power_loss(self) -> Log:
        self.disk.power_loss()
        self.boot()
        return self.open(None, self.saved)

    # ---- looking at what there is

    def read(self, offset: int, max_bytes: int = 1 << 30, limit: int | None = None, **options: Any) -> bytes | None:
        found = self.do(self.log.read, offset, max_bytes, limit=1 << 62 if limit is None else limit, **options)
        if found is None:
            return None
        assert isinstance(found, FileRange), found
        return found.file.pread(found.size, found.offset)

    def batches(self, start: int | None = None) -> list[tuple[BatchHeader, bytes]]:
        """Everything from the start, by following reads."""
        offset = self.log.start_offset if start is None else start
        found: list[tuple[BatchHeader, bytes]] = []
        while (data := self.read(offset)) is not None:
            for position, header in iter_batches(data):
                found.append((header, data[position : position + header.size]))
            offset = found[-1][0].next_offset
        return found

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.files.list(self.path) if name.endswith(suffix)]

    def file_bytes(self, name: str) -> bytearray:
        """The content of a file of the log, to be damaged in place."""
        node = self.disk.root
        for part in f"{self.path}/{name}".split("/"):
            node = node.names[part]  # type: ignore[assignment]
        return node.data  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def preads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads."""
    seen: list[int] = []
    pread = SimFile.pread

    def counting(self: SimFile, size: int, offset: int) -> bytes:
        seen.append(size)
        return pread(self, size, offset)

    monkeypatch.setattr(SimFile, "pread", counting)
    return seen


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*args: Any, **kwargs: Any) -> World:
        made.append(World(*args, **kwargs))
        return made[-1]

    yield make
    for world in made:
        world.loop.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
