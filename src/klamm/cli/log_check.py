"""`klamm log check DIR`: read all logs of a stopped broker and say which are damaged. Changes nothing."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from klamm.cli.output import plural
from klamm.cli.parsing import UsageError, add_verb
from klamm.cli.units import show_size

_CHECK: Final = """
  klamm log check /var/lib/klamm
  klamm log check /var/lib/klamm --json | jq 'select(.damaged)'
"""
_ABOUT: Final = """\
Read every batch of every partition in a data folder, and check it. Nothing is changed; the broker must be stopped.
Exit code 1 if something is damaged: klamm log repair then shows what would be lost, and mends it."""


def add_verbs(verbs: Any) -> None:
    check = add_verb(verbs, "check", "read all logs of a data folder and say which are damaged", run_check,
                     about=_ABOUT, examples=_CHECK)  # fmt: skip
    check.add_argument("folder", metavar="DIR", help="a broker's data folder")
    check.add_argument("--json", action="store_true", help="one JSON object for each partition")


def segments(folder: str) -> list[str]:
    """The segments of a partition's folder, in order; UsageError if it has none."""
    found = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    if not found:
        raise UsageError(
            f"{folder} holds no segments; name a file, or a folder <data folder>/topics/<topic>-<partition>."
        )
    return [os.path.join(folder, name) for name in found]


def run_check(args: argparse.Namespace) -> int:
    from klamm.core.env.real import RealFiles
    from klamm.log.folder import FolderError, take_lock

    folder = os.path.abspath(args.folder)
    if not os.path.exists(os.path.join(folder, "klamm.json")):
        raise UsageError(
            f"{folder} is not a broker's data folder: it has no klamm.json. For one partition: klamm log dump DIR."
        )
    try:
        lock = take_lock(RealFiles(), folder)
    except FolderError as error:
        raise UsageError(str(error)) from None
    try:
        return _check(folder, args.json)
    except OSError as error:
        raise UsageError(f"{error.filename or folder} cannot be read: {error.strerror or error}.") from error
    finally:
        lock.release()


def _check(folder: str, as_json: bool) -> int:
    import json

    topics = os.path.join(folder, "topics")
    names = sorted(os.listdir(topics)) if os.path.isdir(topics) else []
    partitions = damaged = size = 0
    for name in names:
        path = os.path.join(topics, name)
        if name.endswith((".deleted", ".stray")) or not os.path.isdir(path):
            continue
        found = _look_at(folder, name)
        partitions += 1
        damaged += bool(found["damaged"])
        size += found["size_bytes"]
        if as_json:
            print(json.dumps(found))
        else:
            for problem in found["damaged"]:
                print(f"{name}: {problem}")
    if not as_json:
        print(
            f"{plural(partitions, 'partition')}, {show_size(size)}: {f'{damaged} damaged' if damaged else 'all sound'}."
        )
        if damaged:
            print(f"See what would be lost with: klamm log repair {topics}/<partition>")
    return 1 if damaged else 0


def _look_at(folder: str, name: str) -> dict[str, Any]:
    from klamm.core.env.real import RealFiles
    from klamm.log.repair import lost_tail, survey

    files = RealFiles()
    path = os.path.join(folder, "topics", name)
    found = survey(files, path)
    problems = [
        f"{damage.base_offset:020d}.log, bytes {damage.position} to {damage.position + damage.size}: {damage.reason}"
        for damage in found.damages
    ]
    tail = lost_tail(files, folder, name, found)
    if tail is not None:
        problems.append(f"ends at offset {tail.first_offset}, and was on disk up to {tail.next_offset} once")
    sizes = [os.path.getsize(os.path.join(path, file)) for file in os.listdir(path) if file.endswith(".log")]
    return {
        "partition": name,
        "segments": len(found.bases),
        "end_offset": found.end_offset,
        "size_bytes": sum(sizes),
        "damaged": problems,
    }
