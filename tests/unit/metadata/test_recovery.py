"""The journal's files as a crash, or a bad disk, may leave them."""

from __future__ import annotations

import pytest

from klamm.core.env.real import RealFiles
from klamm.metadata.entries import encode_entry, encode_snapshot
from klamm.metadata.image import EMPTY
from klamm.metadata.journal import log_path, snapshot_path
from klamm.metadata.records import FeatureRecord
from klamm.metadata.recovery import recover
from klamm.metadata.replay import replay
from klamm.metadata.store import Entry, MetadataCorrupt

FILES = RealFiles()


def entry(offset, epoch=1):
    return Entry(offset, epoch, (FeatureRecord(name=f"f{offset}", level=1),))


def encoded(offset, committed):
    return encode_entry(entry(offset), committed=committed, now_ms=0)


def image_at(offset):
    image = EMPTY
    for at in range(offset + 1):
        image, _ = replay(image, entry(at).records, offset=at, epoch=1)
    return image


class Folder:
    def __init__(self, path):
        self.path = str(path)

    def write_log(self, base, *parts):
        FILES.write_atomically(log_path(self.path, base), b"".join(parts))

    def write_snapshot(self, offset):
        data = b"".join(encode_snapshot(image_at(offset), 0))
        FILES.write_atomically(snapshot_path(self.path, offset), data)

    def damage(self, base, at):
        file = FILES.open(log_path(self.path, base))
        file.pwrite(bytes([file.pread(1, at)[0] ^ 0xFF]), at)
        file.close()

    def recover(self):
        recovered = recover(FILES, self.path)
        recovered.journal.close()
        return recovered

    def refuse(self):
        before = self.content()
        with pytest.raises(MetadataCorrupt) as caught:
            recover(FILES, self.path)
        assert self.content() == before
        return str(caught.value)

    def content(self):
        return {name: FILES.read(f"{self.path}/{name}") for name in FILES.list(self.path)}

    def names(self):
        return FILES.list(self.path)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


ONE, TWO, THREE = encoded(0, 0), encoded(1, 1), encoded(2, 2)
LATE_THREE = encoded(2, 1)  # written while entry 1 was not durable yet


def test_a_new_folder_is_empty(folder):
    recovered = folder.recover()
    assert recovered.image == EMPTY
    assert folder.names() == ["00000000000000000000.log"]


def test_a_whole_log_is_replayed(folder):
    folder.write_log(0, ONE, TWO, THREE)
    recovered = folder.recover()
    assert recovered.image == image_at(2)
    assert (recovered.cut_bytes, recovered.tail_entries) == (0, 3)


@pytest.mark.parametrize("keep", [0, 1, 11, 60, 61, len(THREE) - 1])
def test_an_entry_that_was_not_written_to_its_end_is_cut(folder, keep):
    folder.write_log(0, ONE, TWO, THREE[:keep])
    recovered = folder.recover()
    assert recovered.image == image_at(1)
    assert recovered.cut_bytes == keep
    assert FILES.read(log_path(folder.path, 0)) == ONE + TWO
    assert folder.recover().cut_bytes == 0


@pytest.mark.parametrize("garbage", [bytes(500), b"\xff" * 500, b"\x02" * 500])
def test_garbage_behind_the_last_entry_is_cut(folder, garbage):
    folder.write_log(0, ONE, TWO, garbage)
    assert folder.recover().image == image_at(1)
    assert FILES.read(log_path(folder.path, 0)) == ONE + TWO


@pytest.mark.parametrize("at", range(0, len(TWO), 7))
def test_a_torn_tail_may_have_holes_before_entries_that_came_through(folder, at):
    folder.write_log(0, ONE, TWO, LATE_THREE)
    folder.damage(0, len(ONE) + at)
    assert folder.recover().image == image_at(0)
    assert FILES.read(log_path(folder.path, 0)) == ONE


@pytest.mark.parametrize("at", range(len(TWO)))
def test_no_damaged_byte_of_what_was_safe_goes_unnoticed(folder, at):
    folder.write_log(0, ONE, TWO, THREE)
    folder.damage(0, len(ONE) + at)
    message = folder.refuse()
    assert f"damaged at byte {len(ONE)} (offset 1)" in message
    assert "Restore" in message


def test_damage_is_proved_by_entries_in_a_later_file(folder):
    folder.write_log(0, ONE, TWO)
    folder.write_log(2, THREE)
    folder.damage(0, len(ONE) + 30)
    folder.refuse()


def test_a_later_file_behind_a_torn_tail_is_dropped(folder):
    folder.write_log(0, ONE, TWO[:50])
    folder.write_log(2, LATE_THREE)
    recovered = folder.recover()
    assert recovered.image == image_at(0)
    assert folder.names() == ["00000000000000000000.log"]
    assert recovered.journal.base_offsets == [0]


def test_a_later_file_behind_a_lost_tail_is_dropped(folder):
    folder.write_log(0, ONE)
    folder.write_log(2, LATE_THREE)
    assert folder.recover().image == image_at(0)
    assert folder.names() == ["00000000000000000000.log"]


def test_a_lost_entry_that_was_safe_is_noticed(folder):
    folder.write_log(0, ONE)
    folder.write_log(2, THREE)
    folder.refuse()


def test_a_snapshot_stands_for_the_entries_before_it(folder):
    folder.write_snapshot(1)
    folder.write_log(2, THREE)
    recovered = folder.recover()
    assert recovered.image == image_at(2)
    assert (recovered.snapshot_offset, recovered.tail_entries) == (1, 1)


def test_entries_that_are_in_the_snapshot_already_are_passed_over(folder):
    folder.write_snapshot(1)
    folder.write_log(0, ONE, TWO, THREE)
    recovered = folder.recover()
    assert recovered.image == image_at(2)
    assert recovered.tail_entries == 1


def test_what_an_interrupted_snapshot_left_behind_is_removed(folder):
    folder.write_snapshot(0)
    folder.write_snapshot(1)
    folder.write_log(0, ONE, TWO[:20])  # its removal came undone, and nobody needs it
    folder.write_log(2, THREE)
    FILES.write_atomically(f"{folder.path}/00000000000000000002.snapshot.tmp", b"half")
    FILES.write_atomically(f"{folder.path}/notes.txt", b"not ours")
    assert folder.recover().image == image_at(2)
    assert folder.names() == ["00000000000000000001.snapshot", "00000000000000000002.log", "notes.txt"]


def test_a_snapshot_alone_is_enough(folder):
    folder.write_snapshot(1)
    assert folder.recover().image == image_at(1)
    assert folder.names() == ["00000000000000000001.snapshot", "00000000000000000002.log"]


def test_a_log_that_ends_before_its_snapshot_is_noticed(folder):
    folder.write_snapshot(2)
    folder.write_log(0, ONE, TWO)
    assert "ends at offset 2" in folder.refuse()


def test_a_gap_between_snapshot_and_log_is_noticed(folder):
    folder.write_snapshot(0)
    folder.write_log(2, THREE)
    assert "no entries between" in folder.refuse()


def test_a_damaged_snapshot_is_noticed(folder):
    folder.write_snapshot(1)
    path = snapshot_path(folder.path, 1)
    whole = FILES.read(path)
    for data in (whole[:-1], whole[:80], b"", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        FILES.write_atomically(path, data)
        assert "cannot be read" in folder.refuse()


def test_an_entry_from_a_newer_version_is_not_taken_for_damage(folder):
    from klamm.records.record import Record, decode_records, encode_batch

    (record,) = decode_records(TWO)
    newer = encode_batch([Record(0, 0, None, b"\x7f\x00", record.headers)], base_offset=1, leader_epoch=1)
    folder.write_log(0, ONE, newer)
    assert "newer version" in folder.refuse()
