"""Jars from Maven, fetched once into a folder that git ignores.

A folder gets its name when everything is in it, so that an interrupted download is not taken for a whole one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

Artifact: TypeAlias = tuple[str, str, str]
"""Group, name, version."""

CACHE = Path(__file__).resolve().parent.parent / ".cache"
FETCH_TIMEOUT_S = 600
_NOTHING_MORE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class Unavailable(Exception):
    """What is to be compared with is not to be had here; the sentence says why."""


def jars(folder: str, what: str, artifacts: Sequence[Artifact], *, alone: bool = False) -> Path:
    """The folder with these jars and those they ask for, unless they are to come `alone`."""
    cache = CACHE / folder
    if not cache.exists():
        mvn = shutil.which("mvn")
        if mvn is None:
            raise Unavailable(f"there is no Maven (mvn) on this machine to fetch {what} with")
        print(f"fetching {what} with Maven into {cache}", flush=True)
        _fetch(mvn, cache, what, _pom(artifacts, alone))
    return cache


def _pom(artifacts: Sequence[Artifact], alone: bool) -> str:
    needs = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{_NOTHING_MORE if alone else ''}</dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{needs}</dependencies></project>\n"
    )


def _fetch(mvn: str, cache: Path, what: str, pom: str) -> None:
    work = cache.with_name(f"{cache.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        (work / "pom.xml").write_text(pom)
        command = [mvn, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={work / 'jars'}")
        run = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if run.returncode != 0:
            errors = [line for line in run.stdout.splitlines() if "ERROR" in line]
            raise Unavailable(f"Maven cannot fetch {what}: " + (errors or ["it does not say why"])[0].strip())
        (work / "jars").rename(cache)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not fetch {what} in {FETCH_TIMEOUT_S} s") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
