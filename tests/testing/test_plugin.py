"""The fixtures as somebody's test suite finds them: in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def klamm_options():
    return {"num_partitions": 2, "log_level": "info"}
"""

GOOD = """
import pytest

pytestmark = pytest.mark.klamm(num_partitions=3, message_max_bytes=5000)
seen = []

def partitions(broker):
    broker.create_topic("t", partitions=-1)
    return broker.topics()["t"]

@pytest.mark.parametrize("number", range(4))
def test_a_fresh_one_for_each_test_and_one_for_the_session(klamm_broker, klamm_session_broker, number):
    assert klamm_broker.topics() == {}
    klamm_broker.create_topic("mine")
    klamm_session_broker.create_topic(f"ours-{number}")
    seen.append(klamm_broker.pid)
    assert len(set(seen)) == len(seen) == len(klamm_session_broker.topics())

def test_options_of_the_module(klamm_broker):
    assert partitions(klamm_broker) == 3
    assert "serves" in klamm_broker.log

@pytest.mark.klamm(num_partitions=4)
def test_options_of_the_function(klamm_broker):
    assert partitions(klamm_broker) == 4

def test_options_of_the_fixture(klamm_brokers, klamm_options):
    assert klamm_options == {"num_partitions": 2, "log_level": "info"}
    one, other = klamm_brokers(), klamm_brokers(num_partitions=5)
    assert (partitions(one), partitions(other)) == (2, 5)

def test_the_async_one_is_the_same(klamm_broker, klamm_async_broker):
    assert klamm_async_broker.sync is klamm_broker
"""

BAD = """
import pytest

def test_with_a_log(klamm_broker):
    assert False

def test_without_a_broker():
    assert False

@pytest.mark.klamm(num_partition=3)
def test_with_a_mistake(klamm_broker):
    pass

def test_that_is_interrupted(klamm_broker, klamm_session_broker):
    raise KeyboardInterrupt
"""


@pytest.fixture
def run(tmp_path: Path, tmp: Path) -> Run:
    """Run pytest on a file; what it prints."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers -W error\nasyncio_default_fixture_loop_scope = function\n"
    )
    (tmp_path / "conftest.py").write_text(CONFTEST)

    def pytest_on(code: str, *arguments: str, passes: bool) -> str:
        (tmp_path / "test_it.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "test_it.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert (done.returncode == 0) == passes, done.stdout + done.stderr
        return done.stdout

    return pytest_on


def test_the_fixtures_give_what_they_say(run: Run) -> None:
    assert "8 passed" in run(GOOD, passes=True)


def test_workers_of_xdist_have_sessions_of_their_own(run: Run) -> None:
    assert "8 passed" in run(GOOD, "-n", "2", passes=True)


def test_a_failed_test_shows_why_and_nothing_stays_of_an_interrupted_session(run: Run) -> None:
    out = run(BAD, passes=False)
    assert out.count("--- klamm broker ") == 1
    assert "of cluster" in out
    assert "did you mean num.partitions?" in out
    assert "KeyboardInterrupt" in out


def test_the_plugin_can_be_left_out(run: Run) -> None:
    out = run("def test_it(klamm_broker): pass", "-p", "no:klamm", passes=False)
    assert "fixture 'klamm_broker' not found" in out


def test_the_plugin_imports_nothing() -> None:
    code = """
import sys, pytest, _pytest.fixtures
before = set(sys.modules)
import klamm.testing.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["klamm", "klamm.testing", "klamm.testing.pytest_plugin"]
