"""Syncing a file system as a whole, and when that is not to be trusted."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import pytest

from klamm.core.env import volume as volumes
from klamm.core.env.real import RealFiles

EXT4, FUSE = 0xEF53, 0x65735546


class Library:
    """A C library that says what it is told to."""

    def __init__(self, kind=EXT4, failure=0):
        self.kind = kind
        self.failure = failure
        self.synced = []

    def fstatfs(self, fd, buffer):
        ctypes.c_long.from_buffer(buffer).value = self.kind
        return 0

    def syncfs(self, fd):
        self.synced.append(fd)
        ctypes.set_errno(self.failure)
        return -1 if self.failure else 0


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: library)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(volumes, "_kernel", lambda: (6, 1))
    return library


@pytest.fixture
def volume(tmp_path):
    volume = RealFiles().volume(str(tmp_path))
    yield volume
    volume.close()


def test_a_volume_syncs_where_the_file_system_is_known(library, volume):
    assert volume.can_sync() and volume.can_sync()
    volume.sync()
    assert len(library.synced) == 1


def test_an_error_is_raised(library, volume):
    assert volume.can_sync()
    library.failure = errno.EIO
    with pytest.raises(OSError) as raised:
        volume.sync()
    assert raised.value.errno == errno.EIO


def test_a_file_system_that_might_not_reach_its_disk_is_not_trusted(library, volume):
    library.kind = FUSE
    assert not volume.can_sync()


def test_a_kernel_that_does_not_report_failed_writes_is_not_trusted(library, volume, monkeypatch):
    monkeypatch.setattr(volumes, "_kernel", lambda: (5, 7))
    assert not volume.can_sync()


def test_other_systems_sync_file_by_file(library, volume, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not volume.can_sync()


@pytest.mark.parametrize("missing", ["syncfs", "fstatfs"])
def test_a_library_without_the_calls_is_no_trouble(volume, monkeypatch, missing):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(volumes, "_kernel", lambda: (6, 1))
    without = type("Without", (), {name: Library.__dict__[name] for name in ("syncfs", "fstatfs") if name != missing})
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: without())
    assert not volume.can_sync()


def test_a_closed_volume_cannot_sync_and_may_be_closed_again(library, volume):
    volume.close()
    volume.close()
    assert not volume.can_sync()


@pytest.mark.parametrize(("release", "expected"), [("6.18.4-x", (6, 18)), ("5.8-rc1", (5, 8)), ("weird", (0, 0))])
def test_kernel_releases_are_understood(monkeypatch, release, expected):
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": release}))
    assert volumes._kernel() == expected


def test_the_real_call_works_if_it_says_so(volume, tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    if volume.can_sync():
        volume.sync()


def test_a_volume_knows_what_is_on_it(volume, tmp_path):
    (tmp_path / "inside").mkdir()
    assert volume.holds(str(tmp_path / "inside"))
    if os.stat("/proc").st_dev != os.stat(tmp_path).st_dev:
        (tmp_path / "elsewhere").symlink_to("/proc")
        assert not volume.holds(str(tmp_path / "elsewhere"))
