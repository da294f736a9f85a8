"""franz-go: speaks the newest versions of everything, and checks what it is told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.downloads import FETCH_LIMIT_S, run_client
from support.process import BrokerProcess
from support.stored import CODEC_NAMES, stored_codecs

SOURCE = Path(__file__).parent / "franz_go"

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 100)


@pytest.fixture(scope="session")
def program(tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built anew each time; Go keeps what it has fetched and compiled."""
    go = tool("go", "Go, which fetches franz-go")
    built = tmp_path_factory.mktemp("franz-go") / "franzgo"
    run_client("franz-go", go, "mod", "download", cwd=SOURCE)
    build = [go, "build", "-buildvcs=false", "-mod=readonly", "-o", str(built), "."]
    done = subprocess.run(build, cwd=SOURCE, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture
def franz_go(program: Path, broker: BrokerProcess, topic: str) -> Callable[..., None]:
    def run(*arguments: str) -> None:
        command = [str(program), broker.bootstrap, topic, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_records_are_produced_and_fetched_without_a_group(
    franz_go: Callable[..., None], broker: BrokerProcess, topic: str, codec: str
) -> None:
    franz_go("records", codec)
    assert stored_codecs(broker.data, topic) == {codec}


@pytest.mark.parametrize("protocol", ["range", "cooperative", "server", "regex"])
def test_members_of_a_group_share_a_topic_and_take_over_from_each_other(
    franz_go: Callable[..., None], protocol: str
) -> None:
    """By the classic protocol in two ways, and by the new one with topics by name and by expression."""
    franz_go("group", protocol)


def test_transactions_are_committed_aborted_and_fenced(franz_go: Callable[..., None]) -> None:
    franz_go("transactions")


@pytest.mark.parametrize("protocol", ["cooperative", "server"])
def test_members_of_a_group_copy_a_topic_in_transactions(franz_go: Callable[..., None], protocol: str) -> None:
    franz_go("exactly-once", protocol)


def test_a_topics_life_is_administered(franz_go: Callable[..., None]) -> None:
    franz_go("admin")
