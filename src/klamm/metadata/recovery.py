"""The image and the journal as they are found at start: after a clean stop, a kill, or a power loss.

An entry is acknowledged only after it is durable, so at most the tail behind the last sync may be torn, and cutting it
loses nothing that anybody was told. Damage anywhere else must not be mistaken for such a tail: each entry says up to
where the log was durable when it was written, so an intact entry behind the damage can prove that what is damaged was
safe once. Then nothing is changed and the broker does not start. All of this blocks: run it in the executor.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klamm.core.env import Files
from klamm.metadata.entries import StoredEntry, decode_entry, decode_snapshot
from klamm.metadata.image import EMPTY, Image
from klamm.metadata.journal import LOG_SUFFIX, SNAPSHOT_SUFFIX, Journal, log_path, offsets_of, snapshot_path
from klamm.metadata.records import MetadataRecord, UnreadableRecord
from klamm.metadata.replay import InconsistentMetadata, replay
from klamm.metadata.store import MetadataCorrupt
from klamm.records import batch
from klamm.records.batch import BatchError

_MAGIC_BYTE = bytes([batch.MAGIC])


class Recovered(NamedTuple):
    image: Image
    journal: Journal
    snapshot_offset: int
    tail_entries: int  # in the log behind the snapshot
    cut_bytes: int  # of a torn tail


class _Damage(NamedTuple):
    """The first place where the log is not what was written: nothing from `offset` on can be read in order."""

    file: int  # index into the list of base offsets
    position: int
    offset: int
    reason: str


class _Scan:
    """What the journal's files hold behind the snapshot, up to their end or to the first damage."""

    def __init__(self, files: Files, folder: str, bases: list[int], snapshot_offset: int) -> None:
        self.files = files
        self.folder = folder
        self.bases = bases
        self.snapshot_offset = snapshot_offset
        self.next_offset = bases[0]
        self.epoch = -1
        self.entries = 0
        self.records: list[MetadataRecord] = []
        self.damage: _Damage | None = None

    def run(self) -> None:
        for index, base in enumerate(self.bases):
            if base != self.next_offset:
                reason = f"it begins with offset {base}, where {self.next_offset} should follow"
                self.damage = _Damage(index, 0, self.next_offset, reason)
            else:
                self._scan_file(index, self.files.read(log_path(self.folder, base)))
            if self.damage is not None:
                return

    def _scan_file(self, index: int, data: bytes) -> None:
        position = 0
        while position < len(data):
            try:
                stored = decode_entry(data, position)
                if stored.entry.base_offset != self.next_offset:
                    raise batch.CorruptBatch(f"offset {stored.entry.base_offset} where {self.next_offset} should be")
            except BatchError as error:
                self.damage = _Damage(index, position, self.next_offset, str(error))
                return
            except UnreadableRecord as error:
                path = log_path(self.folder, self.bases[index])
                raise MetadataCorrupt(f"{path}, offset {self.next_offset}: {error}. Nothing was changed.") from error
            self._take(stored)
            position += batch.read_header(data, position).size

    def _take(self, stored: StoredEntry) -> None:
        entry = stored.entry
        self.next_offset = entry.last_offset + 1
        if entry.last_offset > self.snapshot_offset:
            self.epoch = entry.epoch
            self.entries += 1
            self.records.extend(entry.records)

    def refuse_damage_to_what_was_safe(self) -> None:
        damage = self.damage
        if damage is None:
            if self.next_offset <= self.snapshot_offset:
                last = log_path(self.folder, self.bases[-1])
                raise MetadataCorrupt(
                    f"{last} ends at offset {self.next_offset}, before the snapshot of offset {self.snapshot_offset}, "
                    f"so entries are missing. Nothing was changed. Restore {self.folder} from a copy, or remove its "
                    f"{LOG_SUFFIX} files to go on from the snapshot."
                )
            return
        if damage.offset <= self.snapshot_offset or self._proof_behind(damage):
            path = log_path(self.folder, self.bases[damage.file])
            raise MetadataCorrupt(
                f"{path} is damaged at byte {damage.position} (offset {damage.offset}), where it was safely written "
                f"once: {damage.reason}. Nothing was changed. Restore {self.folder} from a copy. To give up all "
                f"metadata changes from offset {damage.offset} on instead, cut the file there and remove later ones."
            )

    def _proof_behind(self, damage: _Damage) -> bool:
        """Whether an intact entry somewhere behind the damage says that its offset was durable."""
        for index in range(damage.file, len(self.bases)):
            data = self.files.read(log_path(self.folder, self.bases[index]))
            start = damage.position if index == damage.file else 0
            if _any_entry(data, start, committed_past=damage.offset):
                return True
        return False

    def cut(self) -> int:
        """Remove the torn tail; how many bytes it had."""
        damage = self.damage
        if damage is None:
            return 0
        removed = 0
        for base in reversed(self.bases[damage.file + 1 :]):
            removed += self.files.size(log_path(self.folder, base))
            self.files.remove(log_path(self.folder, base))
        file = self.files.open(log_path(self.folder, self.bases[damage.file]))
        removed += file.size() - damage.position
        file.truncate(damage.position)
        file.close()
        del self.bases[damage.file + 1 :]
        if damage.position == 0 and damage.file:
            self.files.remove(log_path(self.folder, self.bases.pop()))  # its name may be of an offset we never reached
        return removed


def _any_entry(data: bytes, start: int, *, committed_past: int) -> bool:
    """Whether an entry that says it was written when `committed_past` was durable begins anywhere from `start` on."""
    at = start
    while (magic := data.find(_MAGIC_BYTE, at + batch.magic_offset)) != -1:
        at = magic - batch.magic_offset
        try:
            if decode_entry(data, at).committed > committed_past:
                return True
        except (BatchError, UnreadableRecord):
            pass
        at += 1
    return False


def recover(files: Files, folder: str) -> Recovered:
    """Read snapshot and journal, cut a torn tail, and open the journal for appending."""
    files.make_dirs(folder)
    files.sync_dir(os.path.dirname(folder) or ".")
    names = files.list(folder)
    image = _latest_snapshot(files, folder, names)
    snapshot_offset = image.offset
    bases = _needed(offsets_of(names, LOG_SUFFIX), snapshot_offset)
    tail_entries, cut_bytes = 0, 0
    if bases:
        scan = _Scan(files, folder, bases, snapshot_offset)
        if bases[0] > snapshot_offset + 1:
            raise MetadataCorrupt(
                f"{folder} has no entries between offset {snapshot_offset + 1} and {bases[0]}. Nothing was changed. "
                "Restore it from a copy."
            )
        scan.run()
        scan.refuse_damage_to_what_was_safe()
        image = _replay_tail(folder, image, scan)
        cut_bytes = scan.cut()
        tail_entries = scan.entries
    _clean_up(files, folder, names, bases, snapshot_offset)
    journal = Journal(files, folder, bases or [image.offset + 1])
    _make_durable(files, folder, journal.base_offsets)
    return Recovered(image, journal, snapshot_offset, tail_entries, cut_bytes)


def _latest_snapshot(files: Files, folder: str, names: list[str]) -> Image:
    offsets = offsets_of(names, SNAPSHOT_SUFFIX)
    if not offsets:
        return EMPTY
    path = snapshot_path(folder, offsets[-1])
    try:
        image = decode_snapshot(files.read(path))
    except (BatchError, UnreadableRecord, InconsistentMetadata) as error:
        raise MetadataCorrupt(
            f"{path} cannot be read: {error}. Nothing was changed. Restore {folder} from a copy."
        ) from error
    if image.offset != offsets[-1]:
        raise MetadataCorrupt(f"{path} is a snapshot of offset {image.offset}. Restore {folder} from a copy.")
    return image


def _needed(bases: list[int], snapshot_offset: int) -> list[int]:
    """Without the files that end before the snapshot does (their removal may have been undone by a power loss)."""
    while len(bases) > 1 and bases[1] <= snapshot_offset + 1:
        bases = bases[1:]
    return bases


def _replay_tail(folder: str, image: Image, scan: _Scan) -> Image:
    if not scan.records:
        return image
    try:
        return replay(image, scan.records, offset=scan.next_offset - 1, epoch=scan.epoch)[0]
    except InconsistentMetadata as error:
        raise MetadataCorrupt(
            f"the metadata log in {folder} contradicts itself: {error}. Nothing was changed."
        ) from error


def _clean_up(files: Files, folder: str, names: list[str], bases: list[int], snapshot_offset: int) -> None:
    """What an interrupted snapshot has left behind."""
    keep = {os.path.basename(log_path(folder, base)) for base in bases}
    keep.add(os.path.basename(snapshot_path(folder, snapshot_offset)))
    for name in names:
        ours = name.endswith((LOG_SUFFIX, SNAPSHOT_SUFFIX, ".tmp"))
        if ours and name not in keep and files.exists(os.path.join(folder, name)):
            files.remove(os.path.join(folder, name))


def _make_durable(files: Files, folder: str, bases: list[int]) -> None:
    """What was found may still be in the page cache only (a kill, not a power loss). It counts from now on."""
    for base in bases:
        file = files.open(log_path(folder, base))
        file.sync()
        file.close()
    files.sync_dir(folder)
