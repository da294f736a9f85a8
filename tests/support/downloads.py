"""What tests fetch from package registries: once, into a folder that git ignores, by the registry's own client.

A folder gets its name when everything is in it, so that an interrupted download is not taken for a whole one. Test
processes that run side by side wait for each other instead of fetching twice.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from support.tools import unavailable

CACHE = Path(__file__).resolve().parents[2] / ".cache"
FETCH_LIMIT_S = 500  # a machine that has nothing yet, and a slow line


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder `name`, which `fetch` fills the first time."""
    folder = CACHE / name
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half = CACHE / f"{name}.half"
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            fetch(half)
            half.rename(folder)
    return folder


def run_client(what: str, *command: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a registry's client; the test is skipped, with the client's last words, if it fails."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        unavailable(f"{what} did not come within {FETCH_LIMIT_S} s")
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        unavailable(f"{what} is not to be had: {said}")
