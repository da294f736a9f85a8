"""Work in child processes, and the same work without any."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.core.env import ChildFailed, Env
from klamm.core.env.real import real_env


@pytest.fixture(params=["process", "executor"])
def env(request: pytest.FixtureRequest) -> Iterator[Env]:
    real = real_env()
    if request.param == "process":
        yield real
    else:
        yield Env(real.clock, real.rng, real.files, real.executor, real.network)
    real.executor.close()


async def everything(env: Env, work: Any, *args: Any) -> list[Any]:
    child = await env.processes.start(work, *args)
    found = []
    try:
        while (item := await child.next()) is not None:
            found.append(item)
    finally:
        await child.stop()
    return found


async def test_the_items_of_a_generator_come_one_by_one(env: Env) -> None:
    assert await everything(env, _counting, 3) == [(0, b"x" * 10), (1, b"x" * 10), (2, b"x" * 10)]


async def test_files_and_what_is_large_go_either_way(env: Env, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"y" * 1_000_000)
    assert await everything(env, _reading, env.files, str(tmp_path / "f"), b"z" * 3_000_000) == [4_000_000]


async def test_nothing_runs_ahead_of_whoever_asks(env: Env, tmp_path: Path) -> None:
    child = await env.processes.start(_touching, str(tmp_path))
    assert await child.next() == 1
    assert await child.next() == 2
    await child.stop()
    await child.stop()
    with pytest.raises(ChildFailed):
        await child.next()
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


async def test_an_error_of_the_system_keeps_its_number(env: Env) -> None:
    with pytest.raises(ChildFailed, match="No such file") as failed:
        await everything(env, _reading, env.files, "/nowhere", b"")
    assert failed.value.errno == errno.ENOENT


async def test_a_child_that_dies_is_told_of() -> None:
    with pytest.raises(ChildFailed, match="ended with status 3"):
        await everything(real_env(), _dying)


async def test_what_a_child_prints_does_not_disturb() -> None:
    assert await everything(real_env(), _printing) == ["printed"]


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import asyncio, os, signal\n"
        "from klamm.core.env.real import real_env\n"
        "from core_children import work\n"
        "async def main():\n"
        "    child = await real_env().processes.start(work)\n"
        "    print(await child.next(), flush=True)\n"
        "    asyncio.ensure_future(child.next())\n"
        "    await asyncio.sleep(0.1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    (tmp_path / "core_children.py").write_text(
        "import os, time\ndef work():\n    yield os.getpid()\n    time.sleep(600)\n    yield 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=60
    )
    pid = int(done.stdout)
    for _ in range(10_000):
        if not _runs(pid):
            return
    pytest.fail("it runs on")  # pragma: no cover


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _counting(count: int) -> Iterator[tuple[int, bytes]]:
    for i in range(count):
        yield i, b"x" * 10


def _reading(files: Any, path: str, more: bytes) -> Iterator[int]:
    yield len(files.read(path)) + len(more)


def _touching(folder: str) -> Iterator[int]:
    for i in range(1, 10):
        Path(folder, str(i)).touch()
        yield i


def _dying() -> Iterator[int]:
    os._exit(3)
    yield 0


def _printing() -> Iterator[str]:
    print("hello")
    yield "printed"
