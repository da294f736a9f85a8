"""New segments into the place of old ones, so that a crash at any moment leaves the old or the new, never a mix.

    <base>.log.<token>.cleaned    and its indexes: a new segment, written and synced by the child
    <base>.swap                   a note, written when all of these are durable: from here on the new segment counts

With the note on disk the swap is decided. It is carried out at once, and by whoever opens the log next if a crash comes
first: each file is renamed to its place if it still has its old name, the other segments that the new one replaces are
removed, and last of all the note. Every step can be done again. Without a note, what ends in `.cleaned` is a leftover.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.core.env import Files
from klamm.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_SUFFIX,
    file_name,
    remove_if_there,
)
from klamm.log.txn_index import SUFFIX as TXN_SUFFIX

_BESIDE_THE_LOG: Final = (OFFSET_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)


class Swap(NamedTuple):
    """A new segment and what it replaces."""

    token: str
    bases: list[int]  # of the old segments; the new one has the first one's
    size: int  # of its log
    has_aborted: bool  # whether it has a transaction index

    def path(self, folder: str) -> str:
        return f"{folder}/{file_name(self.bases[0], SWAP_SUFFIX)}"


def cleaned_path(folder: str, base_offset: int, suffix: str, token: str) -> str:
    return f"{folder}/{file_name(base_offset, suffix)}.{token}{CLEANED_SUFFIX}"


# ---- while the broker runs


def decide(files: Files, folder: str, swap: Swap, stopped: Callable[[], bool]) -> None:
    """Write the note. Blocks. Once it is stopped, nothing is written or removed by name: names may be somebody else's
    by then."""
    files.sync_dir(folder)  # the names of the new files
    if stopped():
        return
    files.write_atomically(swap.path(folder), json.dumps(swap._asdict()).encode())


def revoke(files: Files, folder: str, swap: Swap) -> None:
    """The log has changed meanwhile: leave the old segments as they are. Blocks. Nothing may have been renamed."""
    remove_if_there(files, swap.path(folder))
    files.sync_dir(folder)  # before any of the new files goes: a note without them would mean that they are in place


def put_in_place(files: Files, folder: str, swap: Swap) -> None:
    """Some renames: what readers must not see half of."""
    first, *others = swap.bases
    files.rename(cleaned_path(folder, first, LOG_SUFFIX, swap.token), f"{folder}/{file_name(first, LOG_SUFFIX)}")
    _move_indexes(files, folder, swap)
    for base in others:
        path = f"{folder}/{file_name(base, LOG_SUFFIX)}"
        files.rename(path, path + DELETED_SUFFIX)  # removing a large file takes long


def clear_up(files: Files, folder: str, swap: Swap, stopped: Callable[[], bool] = lambda: False) -> None:
    """After `put_in_place`: what is left of the old segments, and the note. Blocks."""
    for base in swap.bases[1:]:
        if stopped():
            return
        for suffix in (LOG_SUFFIX, LOG_SUFFIX + DELETED_SUFFIX, *_BESIDE_THE_LOG, SNAPSHOT_SUFFIX):
            remove_if_there(files, f"{folder}/{file_name(base, suffix)}")
    files.sync_dir(folder)
    remove_if_there(files, swap.path(folder))
    files.sync_dir(folder)  # before there can be another one


def remove_cleaned(files: Files, folder: str, token: str) -> None:
    """What a child has written that came to nothing. Blocks."""
    for name in files.list(folder):
        if name.endswith(f".{token}{CLEANED_SUFFIX}"):
            remove_if_there(files, f"{folder}/{name}")


def _move_indexes(files: Files, folder: str, swap: Swap) -> None:
    first = swap.bases[0]
    for suffix in _BESIDE_THE_LOG:
        path = f"{folder}/{file_name(first, suffix)}"
        try:
            files.rename(cleaned_path(folder, first, suffix, swap.token), path)
        except FileNotFoundError:
            if suffix == TXN_SUFFIX and not swap.has_aborted:
                remove_if_there(files, path)


# ---- when a log is opened


def finish_swaps(files: Files, folder: str) -> bool:
    """Carry out what was decided before a crash; whether there was anything. Blocks. Before anybody looks at the
    segments."""
    try:
        names = [name for name in files.list(folder) if name.endswith(SWAP_SUFFIX)]
    except FileNotFoundError:
        return False
    for name in names:
        path = f"{folder}/{name}"
        swap = _read(files, path)
        if swap is None or not _log_in_place(files, folder, swap):
            files.remove(path)
            files.sync_dir(folder)
        else:
            _move_indexes(files, folder, swap)
            clear_up(files, folder, swap)
    return bool(names)


def _read(files: Files, path: str) -> Swap | None:
    try:
        swap = Swap(**json.loads(files.read(path)))
    except (ValueError, TypeError):
        return None
    return swap if swap.bases and swap.path(path.rpartition("/")[0]) == path else None


def _log_in_place(files: Files, folder: str, swap: Swap) -> bool:
    """Whether the new log is where it belongs, now if not before. Its size is the proof: the note could be somebody
    else's, if files were copied about by hand, and then the old segments must stay."""
    first = swap.bases[0]
    new, place = cleaned_path(folder, first, LOG_SUFFIX, swap.token), f"{folder}/{file_name(first, LOG_SUFFIX)}"
    if files.exists(new):
        if files.size(new) != swap.size:
            return False
        files.rename(new, place)
        return True
    return files.exists(place) and files.size(place) == swap.size
