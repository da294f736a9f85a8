"""Finds what is damaged in a partition's folder, says what it would cost to go on without it, and does that if asked.

A log with a corrupt batch below its recovery point goes offline, because nothing may be dropped silently. Here somebody
decides. Two ways: *drop* puts an empty batch in the place of what is damaged, as compaction does, so that the offsets
around it stay what they are; *cut* ends the log before the first damage. What is taken out is kept beside the log in
`*.damaged` files. No broker may have the folder open meanwhile: the caller holds the lock. All calls block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.core.env import Buffer, File, Files
from klamm.log.compaction.swap import finish_swaps
from klamm.log.folder import SavedLog, read_state, state_line, write_state
from klamm.log.segment import LOG_SUFFIX, OFFSET_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, TIME_SUFFIX, file_name
from klamm.log.segments import list_folder
from klamm.log.txn_index import SUFFIX as TXN_SUFFIX
from klamm.records.batch import MAGIC, BatchError, BatchHeader, check, header_bytes, magic_offset, read_header, seal

DAMAGED_SUFFIX: Final = ".damaged"
COPY_BYTES: Final = 1 << 20
_MAX_SPAN: Final = 1 << 31  # offsets in a segment are relative to its base, in 31 bits


class Damage(NamedTuple):
    """Bytes of one segment that are no valid batches, and the offsets that were (or may have been) in them."""

    base_offset: int  # the segment
    position: int
    size: int
    first_offset: int
    next_offset: int | None  # where the log goes on; None: nothing valid follows in the whole log
    reason: str


class Survey(NamedTuple):
    folder: str
    bases: list[int]
    damages: list[Damage]
    end_offset: int  # of what is valid


class Loss(NamedTuple):
    """What a repair takes out."""

    size_bytes: int
    first_offset: int
    next_offset: int | None  # None: everything from the first one on


def survey(files: Files, folder: str) -> Survey:
    """Read all of a partition's log and check every batch. If a crash has interrupted the swap of a compacted segment,
    that is finished first: the broker would do the same."""
    finish_swaps(files, folder)
    bases = list_folder(files, folder).bases
    damages: list[Damage] = []
    expected = bases[0] if bases else 0
    for number, base in enumerate(bases):
        limit = bases[number + 1] if number + 1 < len(bases) else None
        expected = max(expected, base)
        data = files.map(f"{folder}/{file_name(base, LOG_SUFFIX)}")
        for damage in _check_segment(data, base, expected, limit):
            if isinstance(damage, int):
                expected = damage
            else:
                damages.append(damage)
        if limit is not None and expected < limit:
            if damages and damages[-1].next_offset is None:
                damages[-1] = damages[-1]._replace(next_offset=limit)
            else:
                damages.append(
                    Damage(base, len(data), 0, expected, limit, "the segment ends before the next one starts")
                )
    return Survey(folder, bases, damages, expected)


def _check_segment(data: Buffer, base: int, expected: int, limit: int | None) -> Iterator[Damage | int]:
    """The damages of a segment; each int is the offset up to which it is fine."""
    position = 0
    while position < len(data):
        reason, header = _look_at(data, position, expected, limit)
        if reason is None:
            assert header is not None
            position += header.size
            expected = header.next_offset
            yield expected
            continue
        following = _find_next(data, position, header, expected, limit)
        end, next_offset = (len(data), None) if following is None else following
        yield Damage(base, position, end - position, expected, next_offset, reason)
        position = end


def _look_at(data: Buffer, position: int, expected: int, limit: int | None) -> tuple[str | None, BatchHeader | None]:
    """Why there is no valid batch at this position, and its header as far as that can be read."""
    reason, header = _check_bytes(data, position)
    if reason is not None:
        return reason, header
    assert header is not None
    offset = header.base_offset
    if offset < expected:
        return f"the batch has offset {offset}, which comes too late", header
    if header.next_offset > (expected + _MAX_SPAN if limit is None else limit):
        return f"the batch has offset {offset}, which is not of this segment", header
    if offset > expected:
        # The offset is not under the checksum. A gap may be right (compaction leaves them), but not if what follows
        # would fit in without this batch and does not fit behind it.
        reason, following = _check_bytes(data, position + header.size)
        if reason is None and following and expected <= following.base_offset < header.next_offset:
            return f"the batch has offset {offset}, but offset {following.base_offset} follows", header
    return None, header


def _check_bytes(data: Buffer, position: int) -> tuple[str | None, BatchHeader | None]:
    """What can be said of a batch without its neighbours."""
    if len(data) - position < header_bytes:
        return "the file ends inside of a batch", None
    try:
        header = read_header(data, position)
        if position + header.size > len(data):
            return "the file ends inside of a batch", header
    except BatchError as error:
        return str(error), None
    try:
        check(data, position, header)
    except BatchError as error:
        return str(error), header
    return None, header


def _find_next(
    data: Buffer, position: int, header: BatchHeader | None, expected: int, limit: int | None
) -> tuple[int, int] | None:
    """Position and offset of the next valid batch. If the damaged one's length is right, it is just behind it;
    otherwise every place is tried where the magic byte could be."""
    if header is not None:
        behind = position + header.size
        if behind < len(data) and _valid(data, behind, expected, limit):
            return behind, read_header(data, behind).base_offset
    start = position + 1
    while start + header_bytes <= len(data):
        piece = bytes(data[start + magic_offset : start + magic_offset + COPY_BYTES])
        at = piece.find(MAGIC)
        while at >= 0:
            if _valid(data, start + at, expected, limit):
                return start + at, read_header(data, start + at).base_offset
            at = piece.find(MAGIC, at + 1)
        start += len(piece)
    return None


def _valid(data: Buffer, position: int, expected: int, limit: int | None) -> bool:
    if len(data) - position < header_bytes:
        return False
    try:
        header = read_header(data, position)
    except BatchError:
        return False
    if not expected <= header.base_offset < expected + _MAX_SPAN or position + header.size > len(data):
        return False  # before the checksum, which costs more
    return _look_at(data, position, expected, limit)[0] is None


# ---- what it costs


def losses(files: Files, found: Survey, *, cut: bool) -> list[Loss]:
    if not found.damages:
        return []
    if not cut:
        return [Loss(d.size, d.first_offset, d.next_offset) for d in found.damages]
    first = found.damages[0]
    size = -first.position
    for base in found.bases:
        if base >= first.base_offset:
            size += files.size(f"{found.folder}/{file_name(base, LOG_SUFFIX)}")
    return [Loss(size, first.first_offset, None)]


def lost_tail(files: Files, data_folder: str, name: str, found: Survey) -> Loss | None:
    """What the state file knows to have been durable behind the end of the log, as it is now."""
    log = read_state(files, data_folder).logs.get(name)
    if log is None or log.state.recovery_point <= max(found.end_offset, log.state.start_offset):
        return None
    return Loss(0, found.end_offset, log.state.recovery_point)


# ---- doing it


def repair(files: Files, found: Survey, *, cut: bool) -> list[str]:
    """Take the damage out. The paths of the files that keep what was taken out.

    Everything derived goes as well, from the first damaged segment on: indexes, aborted transactions and producer
    snapshots are made again when the log is recovered (see `ask_for_recovery`)."""
    if not found.damages:
        return []
    folder = found.folder
    first = found.damages[0]
    kept: list[str] = []
    if cut:
        for base in reversed(found.bases):
            if base > first.base_offset:
                path = f"{folder}/{file_name(base, LOG_SUFFIX)}"
                files.rename(path, path + DAMAGED_SUFFIX)
                kept.append(path + DAMAGED_SUFFIX)
        kept.append(_cut_segment(files, folder, first))
        kept.reverse()
    else:
        for base in found.bases:
            damages = [damage for damage in found.damages if damage.base_offset == base]
            if damages:
                kept += _drop_from_segment(files, folder, base, damages)
    _forget_derived(files, folder, first.base_offset)
    files.sync_dir(folder)
    return kept


def _cut_segment(files: Files, folder: str, damage: Damage) -> str:
    path = f"{folder}/{file_name(damage.base_offset, LOG_SUFFIX)}"
    file = files.open(path)
    try:
        kept = _keep(files, path, file, damage.position, file.size() - damage.position)
        file.truncate(damage.position)
        file.sync()
    finally:
        file.close()
    return kept


def _drop_from_segment(files: Files, folder: str, base: int, damages: list[Damage]) -> list[str]:
    """Write the segment without the damaged parts and put it into the place of the old one."""
    path = f"{folder}/{file_name(base, LOG_SUFFIX)}"
    temporary = path + ".tmp"  # a leftover that the log removes, should we not come to the end
    files.remove(temporary) if files.exists(temporary) else None
    old, new = files.open(path, readonly=True), files.open(temporary, create=True)
    try:
        kept = [_keep(files, path, old, damage.position, damage.size) for damage in damages if damage.size]
        position = 0
        for damage in damages:
            _copy(old, new, position, damage.position)
            new.append(_filler(damage))
            position = damage.position + damage.size
        _copy(old, new, position, old.size())
        new.sync()
    finally:
        old.close()
        new.close()
    files.rename(temporary, path)
    return kept


def _filler(damage: Damage) -> bytes:
    """A batch without records that holds the place of the lost offsets: recovery and followers expect no gaps."""
    if damage.next_offset is None or damage.next_offset <= damage.first_offset:
        return b""
    last_delta = damage.next_offset - 1 - damage.first_offset
    return seal(BatchHeader(damage.first_offset, 0, -1, MAGIC, 0, 0, last_delta, -1, -1, -1, -1, -1, 0), b"")


def _keep(files: Files, path: str, file: File, position: int, size: int) -> str:
    kept = f"{path}.{position}{DAMAGED_SUFFIX}"
    copy = files.open(kept, create=True)
    try:
        copy.truncate(0)
        _copy(file, copy, position, position + size)
        copy.sync()
    finally:
        copy.close()
    return kept


def _copy(source: File, target: File, position: int, end: int) -> None:
    while position < end:
        piece = source.pread(min(COPY_BYTES, end - position), position)
        if not piece:
            return
        target.append(piece)
        position += len(piece)


def _forget_derived(files: Files, folder: str, base_offset: int) -> None:
    for name in files.list(folder):
        stem, suffix = name[:20], name[20:]
        if suffix not in SEGMENT_SUFFIXES or not stem.isdigit():
            continue
        derived = suffix in (OFFSET_SUFFIX, TIME_SUFFIX, TXN_SUFFIX) and int(stem) >= base_offset
        if derived or (suffix == SNAPSHOT_SUFFIX and int(stem) > base_offset):
            files.remove(f"{folder}/{name}")


def ask_for_recovery(files: Files, data_folder: str, name: str, offset: int) -> None:
    """Let the next start recover this log from here on, whatever the state file said of it. Durable on return."""
    saved = read_state(files, data_folder)
    log = saved.logs.get(name)
    if log is None:
        return
    state = log.state._replace(end_offset=-1, recovery_point=min(log.state.recovery_point, offset))
    logs = dict(saved.logs, **{name: SavedLog(log.topic_id, state, False)})
    lines = [state_line(other, entry) for other, entry in logs.items()]
    write_state(files, data_folder, lines, clean=saved.clean)
