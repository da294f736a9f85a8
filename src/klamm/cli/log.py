"""`klamm log dump` shows what is in the files of a log; `klamm log repair DIR` mends a partition's folder.

`klamm log check`, which reads a whole data folder, is in log_check.py."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from klamm.cli import UsageError, log_check

if TYPE_CHECKING:
    from klamm.core.env import Files, Lock
    from klamm.log.repair import Loss


_REPAIR = """\
Reads the whole log of one partition and shows what is damaged and what would be lost. With --yes it takes the damage
out: only the damaged bytes (those offsets are then empty), or with --cut all from the first damage on. What is
taken out is kept beside the log in *.damaged files. The broker must be stopped."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    log_check.add_verbs(verbs)
    show = verbs.add_parser("dump", help="show what is in a segment, index, checkpoint or producer snapshot")
    show.add_argument("file", metavar="FILE", help="a .log, .index, .timeindex, .txnindex or .snapshot file, or "
                      "leader-epoch-checkpoint; a partition's folder shows all its segments")  # fmt: skip
    show.add_argument("--records", action="store_true", help="show the records of each batch too")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    show.set_defaults(run=lambda args: dump(args.file, records=args.records, as_json=args.json))
    mend = verbs.add_parser(
        "repair",
        help="show what is damaged in a partition's folder, and take it out",
        description=_REPAIR,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mend.add_argument("folder", metavar="DIR", help="a partition's folder: <data folder>/topics/<topic>-<partition>")
    mend.add_argument("--cut", action="store_true", help="end the log before the first damage")
    mend.add_argument("--yes", action="store_true", help="do it; without this nothing is changed")
    mend.set_defaults(run=lambda args: repair(args.folder, cut=args.cut, yes=args.yes))


def dump(path: str, *, records: bool = False, as_json: bool = False) -> int:
    """0 if the file is sound, 1 if something in it is damaged."""
    from klamm.log import dump as dumping

    if not os.path.exists(path):
        raise UsageError(f"{path} does not exist. A partition has no folder before its first record.")
    paths = log_check.segments(path) if os.path.isdir(path) else [path]
    show = dumping.as_json if as_json else dumping.as_text
    damaged = False
    try:
        for one in paths:
            for entry in dumping.entries(_files(), one, records=records):
                damaged |= "error" in entry
                print(show(entry))
    except dumping.DumpError as error:
        raise UsageError(str(error)) from error
    return 1 if damaged else 0


def repair(path: str, *, cut: bool = False, yes: bool = False) -> int:
    """0 if the log is sound (now), 1 if it is damaged and was left as it is."""
    from klamm.log.folder import FolderError, take_lock

    path = os.path.abspath(path)
    files = _files()
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder; name a partition's: <data folder>/topics/<topic>-<partition>.")
    data_folder = _data_folder_of(path)
    if data_folder and os.path.dirname(path) == data_folder:
        raise UsageError(f"{path} is not a partition's folder; those are in {data_folder}/topics.")
    lock: Lock | None = None
    try:
        if data_folder:
            try:
                lock = take_lock(files, data_folder)
            except FolderError as error:
                raise UsageError(str(error)) from None
        return _repair(files, path, data_folder, cut, yes)
    except OSError as error:
        raise UsageError(f"{error.filename or path} cannot be used: {error.strerror or error}.") from error
    finally:
        if lock is not None:
            lock.release()


def _repair(files: Files, path: str, data_folder: str | None, cut: bool, yes: bool) -> int:
    from klamm.log.repair import ask_for_recovery, losses, lost_tail, survey
    from klamm.log.repair import repair as mend

    name = os.path.basename(path)
    found = survey(files, path)
    tail = lost_tail(files, data_folder, name, found) if data_folder else None
    if not found.bases and tail is None:
        raise UsageError(f"{path} is not a partition's folder: it holds no segments.")
    if not found.damages and tail is None:
        print(f"{path} is sound: {len(found.bases)} segments up to offset {found.end_offset}.")
        return 0
    for damage in found.damages:
        end = damage.position + damage.size
        print(f"{damage.base_offset:020d}.log: bytes {damage.position} to {end}: {damage.reason}.")
    for loss in losses(files, found, cut=cut):
        print(f"Would be lost: {_offsets(loss)}, {loss.size_bytes} bytes.")
    if tail is not None:
        print(f"Is lost already: {_offsets(tail)}, which were on disk once.")
    if not yes:
        print("Nothing was changed. Add --yes to do this." + ("" if cut else " Or --cut, to end the log there."))
        return 1
    if data_folder:  # before the files change: the state file must never promise what is not there any more
        first = found.damages[0].base_offset if found.damages else found.end_offset
        ask_for_recovery(files, data_folder, name, first)
    for kept in mend(files, found, cut=cut):
        print(f"Kept: {kept}")
    print(f"{path} is repaired; the broker recovers it at its next start.")
    return 0


def _offsets(loss: Loss) -> str:
    if loss.next_offset is None:
        return f"all offsets from {loss.first_offset} on"
    if loss.next_offset <= loss.first_offset:
        return "no offsets"
    if loss.next_offset == loss.first_offset + 1:
        return f"offset {loss.first_offset}"
    return f"offsets {loss.first_offset} to {loss.next_offset - 1}"


def _data_folder_of(path: str) -> str | None:
    """The data folder that a partition's folder lies in, if it lies in one."""
    for _ in range(2):
        path = os.path.dirname(path)
        if os.path.exists(f"{path}/klamm.json"):
            return path
    return None


def _files() -> Files:
    from klamm.core.env.real import RealFiles

    return RealFiles()
