"""Nothing stays, whatever happens to the process that started a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klamm.testing
from klamm.testing.embedded.folder import ABANDONED_S, Folder, make
from klamm.testing.embedded.nursery import is_available
from support.brokers import LIMIT_S, Watched, folders_in, processes_with

pytestmark = pytest.mark.skipif(not is_available(), reason="watches processes that are not its own by pidfds")

PARENT = """
import json, os, sys
import klamm.testing

forked = None
nursery = klamm.testing.Nursery() if {forked} else None
brokers = [klamm.testing.broker(nursery=nursery, {arguments}) for _ in range({count})]
for broker in brokers:
    broker.start()
{extra}
pids = [broker.pid for broker in brokers] + ([nursery._process._process.pid] if nursery else [])
print(json.dumps(dict(pids=pids, forked=forked)), flush=True)
sys.stdin.readline()
{ending}
"""

FORK = """
forked = os.fork()
if not forked:
    import signal
    os.close(1)
    signal.pause()
"""


class Parent:
    """A program with brokers that waits to be told to end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "it did not come up"
        self.told: dict[str, Any] = json.loads(line)
        self.children = [Watched(pid) for pid in self.told["pids"]]

    def go_on(self) -> int:
        self.process.communicate("\n", timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def all_have_ended(self) -> bool:
        return all(child.has_ended() for child in self.children)


Start = Callable[..., Parent]


@pytest.fixture
def start(tmp: Path) -> Iterator[Start]:
    started: list[Parent] = []

    def make(*, forked: bool = False, count: int = 1, extra: str = "", ending: str = "", arguments: str = "") -> Parent:
        code = PARENT.format(forked=forked, count=count, extra=extra, ending=ending, arguments=arguments)
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(Parent(process))
        return started[-1]

    yield make
    for parent in started:
        parent.process.kill()
        parent.process.communicate()
        for child in parent.children:
            child.close()


@pytest.fixture(params=[False, True], ids=["spawned", "forked"])
def forked(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_killed_parent_takes_its_brokers_and_their_folders_along(start: Start, forked: bool, tmp: Path) -> None:
    parent = start(forked=forked, count=3)
    assert len(folders_in(tmp)) == 3
    parent.kill()
    assert parent.all_have_ended()
    assert folders_in(tmp) == set()


def test_so_does_one_that_ends_without_closing_them(start: Start, forked: bool) -> None:
    parent = start(forked=forked)
    assert parent.go_on() == 0
    assert parent.all_have_ended()


def test_so_does_one_that_leaves_in_a_hurry(start: Start, forked: bool) -> None:
    parent = start(forked=forked, ending="os._exit(3)")
    assert parent.go_on() == 3
    assert parent.all_have_ended()


def test_a_paused_broker_notices_too(start: Start, forked: bool) -> None:
    parent = start(forked=forked, extra="broker.pause(); broker.refuse_connections()")
    parent.kill()
    assert parent.all_have_ended()


def test_a_process_that_the_parent_has_forked_does_not_keep_the_broker_alive(start: Start, forked: bool) -> None:
    parent = start(forked=forked, extra=FORK)
    try:
        parent.kill()
        assert parent.all_have_ended()
    finally:
        os.kill(parent.told["forked"], signal.SIGKILL)


def test_an_interrupt_from_the_terminal_is_the_parents_business(start: Start, forked: bool) -> None:
    parent = start(forked=forked, ending="print(broker.is_running)")
    for child in parent.told["pids"]:
        os.kill(child, signal.SIGINT)
    out, _ = parent.process.communicate("\n", timeout=60)
    assert out.strip() == "True"
    assert parent.all_have_ended()


def test_a_killed_parent_leaves_data_of_ones_own_in_good_order(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "mine"
    parent = start(arguments=f"data={str(data)!r}", extra="broker.create_topic('t')")
    parent.kill()
    assert parent.all_have_ended()
    assert json.loads((data / "state.json").read_bytes())["clean"] is True
    with klamm.testing.broker(data=data) as broker:
        assert broker.topics() == {"t": 1}


RESTLESS = """
import klamm.testing

nursery = klamm.testing.Nursery() if {forked} else None
while True:
    print("start", flush=True)
    broker = klamm.testing.broker(nursery=nursery)
    broker.start()
    print("started", flush=True)
    broker.close()
    print("closed", flush=True)
"""


def test_a_parent_that_is_killed_at_any_moment_leaves_nothing_behind(tmp: Path, forked: bool) -> None:
    for lines in range(8):
        process = subprocess.Popen([sys.executable, "-c", RESTLESS.format(forked=forked)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        process.kill()
        process.communicate()
    waited = threading.Event()
    for _ in range(LIMIT_S * 20):
        if not processes_with(f"TMPDIR={tmp}"):
            break
        waited.wait(0.05)  # there is no event for the end of processes that one does not know
    assert processes_with(f"TMPDIR={tmp}") == []
    assert folders_in(tmp) == set()


def test_what_was_left_by_a_death_of_both_goes_with_the_next_start(tmp: Path) -> None:
    left, fresh = tmp / "klamm-test-left", tmp / "klamm-test-fresh"
    for folder in (left, fresh):
        (folder / "data").mkdir(parents=True)
    old = left.stat().st_mtime - ABANDONED_S - 1
    os.utime(left, (old, old))
    held = Folder()
    make(held.path)
    held.hold()
    os.utime(held.path, (old, old))
    assert not left.exists()
    left.mkdir()
    os.utime(left, (old, old))
    with klamm.testing.broker():
        assert folders_in(tmp) >= {fresh.name, Path(held.path).name}
        assert not left.exists()
    held.remove()
    (fresh / "data").rmdir()
    fresh.rmdir()
