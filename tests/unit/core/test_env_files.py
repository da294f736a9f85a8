"""The operating system's files behind `Files` and `File`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from klamm.core.env.real import RealFile, RealFiles
from klamm.core.env.unsynced import UnsyncedFiles


@pytest.fixture(params=[RealFiles, UnsyncedFiles])
def files(request):
    return request.param()


def path_of(tmp_path, name):
    return str(tmp_path / name)


def test_a_file_must_be_there_unless_it_may_be_made(files, tmp_path):
    with pytest.raises(FileNotFoundError):
        files.open(path_of(tmp_path, "a"))
    files.open(path_of(tmp_path, "a"), create=True).close()
    assert files.exists(path_of(tmp_path, "a"))


def test_appends_go_to_the_end_also_of_a_file_that_had_content(files, tmp_path):
    file = files.open(path_of(tmp_path, "a"), create=True)
    file.append(b"one")
    file.append(memoryview(bytearray(b"two")))
    file.close()
    again = files.open(path_of(tmp_path, "a"))
    again.append(b"three")
    assert again.pread(100, 0) == b"onetwothree"
    assert again.pread(3, 3) == b"two"
    assert again.pread(5, 100) == b""
    assert again.size() == 11
    again.close()


def test_pwrite_does_not_move_where_appends_go(files, tmp_path):
    file = files.open(path_of(tmp_path, "a"), create=True)
    file.append(b"aaaa")
    file.pwrite(b"XY", 1)
    file.append(b"b")
    assert files.read(file.path) == b"aXYab"
    file.close()


def test_after_a_truncate_appends_go_to_the_new_end(files, tmp_path):
    file = files.open(path_of(tmp_path, "a"), create=True)
    file.append(b"abcdef")
    file.truncate(2)
    file.append(b"X")
    file.sync()
    assert files.read(file.path) == b"abX"
    file.close()


def test_an_append_goes_on_after_a_short_write(files, tmp_path, monkeypatch):
    file = files.open(path_of(tmp_path, "a"), create=True)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, memoryview(data)[:3]))
    file.append(b"abcdefgh")
    monkeypatch.undo()
    assert files.read(file.path) == b"abcdefgh"
    file.close()


def test_a_read_goes_on_after_a_short_read(files, tmp_path, monkeypatch):
    files.write_atomically(path_of(tmp_path, "a"), b"abcdefgh")
    file = files.open(path_of(tmp_path, "a"), readonly=True)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 3), offset))
    assert file.pread(8, 0) == b"abcdefgh"
    assert file.pread(100, 2) == b"cdefgh"
    file.close()


def test_a_file_opened_for_reading_cannot_be_written(files, tmp_path):
    files.write_atomically(path_of(tmp_path, "a"), b"x")
    file = files.open(path_of(tmp_path, "a"), readonly=True)
    with pytest.raises(OSError) as caught:
        file.append(b"y")
    assert caught.value.errno == errno.EBADF
    file.close()


def test_a_pinned_file_stays_open_until_the_last_pin_is_gone(files, tmp_path):
    file: RealFile = files.open(path_of(tmp_path, "a"), create=True)
    file.append(b"x")
    file.pin()
    file.pin()
    file.close()
    file.unpin()
    assert file.pread(1, 0) == b"x"
    descriptor = file.fileno()
    file.unpin()
    with pytest.raises(OSError):
        os.fstat(descriptor)
    file.close()  # closing twice is fine


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_else(files, tmp_path):
    files.write_atomically(path_of(tmp_path, "a"), b"old content")
    files.write_atomically(path_of(tmp_path, "a"), b"new")
    assert files.read(path_of(tmp_path, "a")) == b"new"
    assert files.list(str(tmp_path)) == ["a"]


def test_a_failed_atomic_write_leaves_the_old_file(files, tmp_path, monkeypatch):
    files.write_atomically(path_of(tmp_path, "a"), b"old")

    def fail(*args):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "replace" if isinstance(files, UnsyncedFiles) else "fsync", fail)
    with pytest.raises(OSError):
        files.write_atomically(path_of(tmp_path, "a"), b"new")
    monkeypatch.undo()
    assert files.read(path_of(tmp_path, "a")) == b"old"


def test_a_map_shows_the_content_and_an_empty_file_too(files, tmp_path):
    files.write_atomically(path_of(tmp_path, "a"), b"content")
    files.write_atomically(path_of(tmp_path, "b"), b"")
    assert bytes(files.map(path_of(tmp_path, "a"))) == b"content"
    assert bytes(files.map(path_of(tmp_path, "b"))) == b""


def test_folders_are_made_listed_in_order_and_removed_whole(files, tmp_path):
    root = path_of(tmp_path, "x/y")
    files.make_dirs(root)
    files.make_dirs(root)
    for name in ("c", "a", "b"):
        files.write_atomically(os.path.join(root, name), b"12")
    assert files.list(root) == ["a", "b", "c"]
    assert files.size(os.path.join(root, "a")) == 2
    files.rename(os.path.join(root, "a"), os.path.join(root, "z"))
    files.remove(os.path.join(root, "b"))
    files.sync_dir(root)
    assert files.list(root) == ["c", "z"]
    files.remove_tree(path_of(tmp_path, "x"))
    assert not files.exists(path_of(tmp_path, "x"))
    files.remove_tree(path_of(tmp_path, "x"))  # gone already: fine
    with pytest.raises(FileNotFoundError):
        files.remove(os.path.join(root, "c"))


def test_what_was_just_written_is_cached_and_reading_ahead_is_harmless(files, tmp_path):
    file = files.open(path_of(tmp_path, "a"), create=True)
    file.append(bytes(3 * 1024 * 1024))
    assert file.is_cached(0, 3 * 1024 * 1024)
    assert file.is_cached(100, 1)
    file.read_ahead(0, 10 * 1024 * 1024)
    file.close()


def test_there_is_free_space_to_report(files, tmp_path):
    assert files.total_bytes(str(tmp_path)) > files.free_bytes(str(tmp_path)) > 0


def test_a_lock_is_held_by_one_and_free_after_release(files, tmp_path):
    path = path_of(tmp_path, "lock")
    lock = files.lock(path)
    assert lock is not None
    assert files.lock(path) is None
    lock.release()
    lock.release()
    again = files.lock(path)
    assert again is not None
    again.release()


def test_a_lock_dies_with_its_process(files, tmp_path):
    path = path_of(tmp_path, "lock")
    script = (
        "import sys; from klamm.core.env.real import RealFiles\n"
        "lock = RealFiles().lock(sys.argv[1]); print('held' if lock else 'refused', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        assert files.lock(path) is None
        child.kill()
        child.wait(20)
        lock = files.lock(path)
        assert lock is not None
        lock.release()
    finally:
        child.kill()
        child.communicate()
