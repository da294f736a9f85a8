"""Which cluster: the command line beats the environment, which beats files."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from klamm.cli.connect import add_connection, client_properties
from klamm.cli.parsing import UsageError

PROFILES = """
default = "local"

[local]
bootstrap = "local:9092"

[staging]
bootstrap.servers = ["one:9092", "two:9092"]
client.id = "me"
enable.idempotence = true
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KLAMM_BOOTSTRAP", "KLAMM_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def profiles(home: Path) -> Path:
    path = home / "config/klamm/profiles.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES)
    return path


def properties(*arguments: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    return client_properties(parser.parse_args(list(arguments)))


def bootstrap(*arguments: str) -> str:
    return properties(*arguments)["bootstrap.servers"]


def test_without_anything_it_is_localhost() -> None:
    assert properties() == {"bootstrap.servers": "localhost:9092"}


def test_a_profile_has_kafkas_names_or_bootstrap_for_short(profiles: Path) -> None:
    assert bootstrap() == "local:9092"
    assert properties("--profile", "staging") == {
        "bootstrap.servers": "one:9092,two:9092",
        "client.id": "me",
        "enable.idempotence": "true",
    }


def test_the_command_line_wins_over_the_environment_and_that_over_files(
    profiles: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "client.properties"
    file.write_text("bootstrap.servers=file:9092\nrequest.timeout.ms=7\n")
    monkeypatch.setenv("KLAMM_BOOTSTRAP", "env:9092")
    assert bootstrap() == "env:9092"
    assert bootstrap("--profile", "staging") == "one:9092,two:9092"
    assert bootstrap("--profile", "staging", "--command-config", str(file)) == "file:9092"
    assert bootstrap("--command-config", str(file), "-b", "given:9092") == "given:9092"
    assert bootstrap("-X", "bootstrap.servers=given:9092") == "given:9092"
    assert properties("--command-config", str(file), "-X", "request.timeout.ms=8")["request.timeout.ms"] == "8"


def test_a_profile_can_be_named_by_the_environment(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KLAMM_PROFILE", "staging")
    assert bootstrap() == "one:9092,two:9092"


def test_an_unknown_profile_is_told_with_the_nearest_one_and_the_file(profiles: Path) -> None:
    with pytest.raises(UsageError, match=rf"did you mean staging\?.*{profiles}"):
        properties("--profile", "stagin")


@pytest.mark.parametrize("content", ["not toml at all [", 'bootstrap = "x:1"', 'default = "gone"', "default = 3"])
def test_a_file_that_makes_no_sense_is_told_by_its_name(profiles: Path, content: str) -> None:
    profiles.write_text(content)
    with pytest.raises(UsageError, match=str(profiles)):
        properties()


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"=value without a name"])
def test_a_properties_file_that_cannot_be_read_is_told_by_its_name(home: Path, content: bytes | None) -> None:
    file = home / "client.properties"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=str(file)):
        properties("--command-config", str(file))
