from __future__ import annotations

import errno

import pytest

from klamm.testing.sim.disk import DeadIncarnation, SimDisk
from klamm.testing.sim.faults import SYNC
from klamm.testing.sim.inode import SECTOR_BYTES

SEEDS = range(200)


def outcomes(prepare):
    """Whatever a power loss after `prepare(files)` leaves, over many seeds: a set of {path: content} as text."""
    found = set()
    for seed in SEEDS:
        disk = SimDisk(seed)
        prepare(disk.mount())
        disk.power_loss()
        found.add(repr(tree(disk.mount())))
    return found


def tree(files, folder=""):
    found = {}
    for name in files.list(folder):
        path = f"{folder}/{name}"
        try:
            found[path] = files.read(path)
        except IsADirectoryError:
            found.update(tree(files, path) or {path: "folder"})
    return found


def put(files, path, data):
    file = files.open(path, create=True)
    file.append(data)
    return file


class TestFilesAsAProcessSeesThem:
    def test_appends_go_to_the_end_and_reads_stop_there(self):
        files = SimDisk().mount()
        file = put(files, "a", b"one")
        file.append(b"two")
        assert (file.pread(100, 1), file.size(), files.read("a")) == (b"netwo", 6, b"onetwo")

    def test_a_write_past_the_end_fills_the_hole_with_zeros(self):
        files = SimDisk().mount()
        file = put(files, "a", b"x")
        file.pwrite(b"y", 3)
        assert files.read("a") == b"x\0\0y"

    def test_truncate_moves_the_place_where_the_next_append_goes(self):
        files = SimDisk().mount()
        file = put(files, "a", b"abcdef")
        file.truncate(2)
        file.append(b"z")
        assert files.read("a") == b"abz"

    def test_each_handle_has_a_place_of_its_own_as_a_descriptor_does(self):
        files = SimDisk().mount()
        first, second = files.open("a", create=True), files.open("a")
        first.append(b"first")
        second.append(b"2nd")
        assert files.read("a") == b"2ndst"

    def test_names_behave_as_on_posix(self):
        files = SimDisk().mount()
        files.make_dirs("/d/e")
        put(files, "/d/f", b"f")
        with pytest.raises(FileNotFoundError):
            files.open("/d/g")
        with pytest.raises(FileNotFoundError):
            files.open("/nowhere/g", create=True)
        with pytest.raises(IsADirectoryError):
            files.remove("/d/e")
        with pytest.raises(OSError) as error:
            files.rename("/d/e", "/d")
        assert error.value.errno == errno.ENOTEMPTY
        files.rename("/d/f", "/d/e/g")
        assert files.list("/d") == ["e"]
        assert files.read("/d/e/g") == b"f"
        files.remove_tree("/d")
        files.remove_tree("/d")
        assert not files.exists("/d")

    def test_a_removed_file_stays_readable_through_its_open_handle(self):
        files = SimDisk().mount()
        file = put(files, "a", b"data")
        files.remove("a")
        assert file.pread(4, 0) == b"data"

    def test_a_closed_file_is_usable_only_while_it_is_pinned(self):
        files = SimDisk().mount()
        file = put(files, "a", b"data")
        file.pin()
        file.close()
        assert file.pread(4, 0) == b"data"
        file.unpin()
        with pytest.raises(OSError):
            file.pread(4, 0)

    def test_a_readonly_handle_does_not_write(self):
        files = SimDisk().mount()
        put(files, "a", b"data")
        with pytest.raises(OSError):
            files.open("a", readonly=True).append(b"more")

    def test_a_lock_is_held_once_and_dies_with_its_process(self):
        disk = SimDisk()
        lock = disk.mount().lock("lock")
        assert lock is not None
        assert disk.mount().lock("lock") is None
        disk.kill()
        second = disk.mount().lock("lock")
        assert second is not None
        lock.release()
        assert disk.mount().lock("lock") is None
        second.release()
        assert disk.mount().lock("lock") is not None


class TestCrashes:
    def test_a_kill_keeps_everything(self):
        disk = SimDisk()
        files = disk.mount()
        put(files, "a", b"never synced")
        disk.kill()
        assert disk.mount().read("a") == b"never synced"

    @pytest.mark.parametrize("crash", ["kill", "power_loss"])
    def test_a_dead_process_can_change_nothing(self, crash):
        disk = SimDisk()
        files = disk.mount()
        files.write_atomically("a", b"data")
        file = files.open("a")
        getattr(disk, crash)()
        uses = [
            lambda: file.append(b"x"),
            lambda: file.pwrite(b"x", 0),
            lambda: file.truncate(0),
            lambda: file.sync(),
            lambda: file.pread(1, 0),
            lambda: files.open("b", create=True),
            lambda: files.rename("a", "b"),
            lambda: files.remove("a"),
            lambda: files.remove_tree(""),
            lambda: files.make_dirs("c"),
            lambda: files.sync_dir(""),
            lambda: files.write_atomically("a", b""),
            lambda: files.lock("lock"),
        ]
        for use in uses:
            with pytest.raises(DeadIncarnation):
                use()
        file.close()
        assert tree(disk.mount()) == {"/a": b"data"}

    def test_what_was_synced_in_a_synced_folder_survives_always(self):
        def prepare(files):
            files.make_dirs("d")
            files.sync_dir("")
            file = put(files, "d/a", b"x" * 2000)
            file.sync()
            files.sync_dir("d")
            files.write_atomically("d/b", b"y")

        assert outcomes(prepare) == {repr({"/d/a": b"x" * 2000, "/d/b": b"y"})}

    def test_a_synced_file_in_an_unsynced_folder_may_be_gone_but_is_never_torn(self):
        def prepare(files):
            put(files, "a", b"x" * 2000).sync()

        assert outcomes(prepare) == {repr({}), repr({"/a": b"x" * 2000})}

    def test_unsynced_appends_may_stop_anywhere_and_lose_any_sector(self):
        old, new = b"o" * 700, b"n" * 3000

        def prepare(files):
            file = put(files, "a", old)
            file.sync()
            files.sync_dir("")
            file.append(new)

        contents = [eval(text)["/a"] for text in outcomes(prepare)]
        assert len({len(content) for content in contents}) > 20
        assert old in contents
        assert old + new in contents
        holes = 0
        for content in contents:
            assert content.startswith(old)
            for at in range(0, len(content), SECTOR_BYTES):
                sector = content[max(at, len(old)) : at + SECTOR_BYTES]
                assert sector in (b"n" * len(sector), bytes(len(sector)))
                holes += sector.startswith(b"\0")
        assert holes > 20

    def test_an_overwritten_sector_has_any_of_its_versions(self):
        def prepare(files):
            file = put(files, "a", b"1")
            file.sync()
            files.sync_dir("")
            for version in (b"2", b"3"):
                file.pwrite(version, 0)

        assert outcomes(prepare) == {repr({"/a": version}) for version in (b"1", b"2", b"3")}

    def test_bytes_cut_off_do_not_come_back_behind_a_write_that_followed(self):
        def prepare(files):
            file = put(files, "a", b"old" * 10)
            file.sync()
            files.sync_dir("")
            file.truncate(3)
            file.append(b"new")

        for text in outcomes(prepare):
            content = eval(text)["/a"]
            assert content == b"old" * 10 or b"oldnew".startswith(content.rstrip(b"\0"))

    def test_changes_of_names_survive_as_a_prefix(self):
        def prepare(files):
            for name in "abc":
                put(files, name, b"").sync()
            files.sync_dir("")
            files.remove("a")
            files.rename("b", "d")
            files.remove("c")

        states = ({"a", "b", "c"}, {"b", "c"}, {"c", "d"}, {"d"})
        assert outcomes(prepare) == {repr({f"/{name}": b"" for name in sorted(state)}) for state in states}

    def test_a_rename_between_folders_is_atomic(self):
        def prepare(files):
            files.make_dirs("x")
            files.make_dirs("y")
            files.sync_dir("")
            put(files, "x/a", b"data").sync()
            files.sync_dir("x")
            put(files, "x/b", b"").sync()
            put(files, "y/c", b"").sync()
            files.rename("x/a", "y/a")
            files.remove("x/b")

        for text in outcomes(prepare):
            assert ("/x/a" in text) != ("/y/a" in text)

    def test_syncing_one_folder_of_a_rename_makes_it_durable_in_both(self):
        def prepare(files):
            files.make_dirs("x")
            files.make_dirs("y")
            files.sync_dir("")
            put(files, "x/a", b"data").sync()
            files.rename("x/a", "y/a")
            files.sync_dir("x")

        assert outcomes(prepare) == {repr({"/x": "folder", "/y/a": b"data"})}

    def test_an_atomic_write_that_crashes_anywhere_leaves_the_old_or_the_new_content(self):
        found = set()
        for seed in SEEDS:
            disk = SimDisk(seed)
            files = disk.mount()
            files.write_atomically("a", b"old")
            disk.faults.crash(1 + seed % 8, disk.power_loss)
            try:
                files.write_atomically("a", b"new")
            except DeadIncarnation:
                pass
            found.add(disk.mount().read("a"))
        assert found == {b"old", b"new"}

    def test_a_crash_in_the_middle_of_an_append_leaves_a_part_of_it(self):
        lengths = set()
        for seed in SEEDS:
            disk = SimDisk(seed)
            file = put(disk.mount(), "a", b"")
            disk.faults.crash(1, disk.kill)
            with pytest.raises(DeadIncarnation):
                file.append(b"x" * 10)
            lengths.add(len(disk.mount().read("a")))
        assert lengths == set(range(11))

    def test_the_same_seed_loses_the_same_bytes(self):
        def run(seed):
            disk = SimDisk(seed)
            files = disk.mount()
            for i in range(5):
                put(files, f"f{i}", bytes([i]) * 3000)
            disk.power_loss()
            return tree(disk.mount())

        assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]


class TestVolume:
    def prepare(self, files):
        files.make_dirs("d")
        put(files, "d/a", b"x" * 2000)
        put(files, "b", b"y").sync()
        files.rename("b", "d/c")

    def test_a_sync_makes_all_writes_and_names_durable(self):
        def prepare(files):
            volume = files.volume("")
            self.prepare(files)
            volume.sync()

        assert outcomes(prepare) == {repr({"/d/a": b"x" * 2000, "/d/c": b"y"})}

    def test_a_crash_in_the_middle_of_a_sync_may_leave_any_part_of_it(self):
        found = set()
        for seed in SEEDS:
            disk = SimDisk(seed)
            files = disk.mount()
            put(files, "a", b"")
            put(files, "b", b"")
            files.sync_dir("")
            for name in "ab":
                put(files, name, b"new")
            disk.faults.crash(1 + seed % 2, disk.power_loss)
            with pytest.raises(DeadIncarnation):
                files.volume("").sync()
            found.add(tuple(disk.mount().read(name) == b"new" for name in "ab"))
        assert found == {(False, False), (False, True), (True, False), (True, True)}

    def test_a_dead_process_cannot_sync(self):
        disk = SimDisk()
        volume = disk.mount().volume("")
        disk.kill()
        with pytest.raises(DeadIncarnation):
            volume.sync()

    def test_a_write_that_failed_is_told_to_the_volume_and_to_who_syncs_the_file_each_once(self):
        disk = SimDisk(1)
        files = disk.mount()
        volume = files.volume("")
        good, bad = put(files, "good", b"g"), put(files, "bad", b"b")
        disk.faults.fail(SYNC, path="bad")
        with pytest.raises(OSError):
            volume.sync()
        good.sync()
        with pytest.raises(OSError):
            bad.sync()
        bad.sync()
        volume.sync()
        disk.power_loss()
        assert disk.mount().read("good") == b"g"

    def test_a_volume_hears_of_a_failure_that_somebody_else_was_told_of_before(self):
        disk = SimDisk()
        files = disk.mount()
        volume = files.volume("")
        file = put(files, "a", b"x")
        disk.faults.fail(SYNC)
        with pytest.raises(OSError):
            file.sync()
        files.volume("").sync()  # made afterwards
        with pytest.raises(OSError):
            volume.sync()

    def test_a_folder_that_cannot_be_synced_is_reported(self):
        disk = SimDisk()
        files = disk.mount()
        volume = files.volume("")
        files.make_dirs("d/e")
        disk.faults.fail(SYNC, path="d")
        with pytest.raises(OSError):
            volume.sync()
        volume.sync()


class TestFaults:
    def test_a_full_disk_takes_what_fits(self):
        disk = SimDisk()
        files = disk.mount()
        file = put(files, "a", b"12345")
        disk.fill(free_bytes=3)
        with pytest.raises(OSError) as error:
            file.append(b"abcdef")
        assert error.value.errno == errno.ENOSPC
        assert files.read("a") == b"12345abc"
        file.truncate(5)
        assert files.free_bytes("") == 3
        assert files.total_bytes("") == 8
        file.append(b"xyz")
        file.pwrite(b"!", 0)

    def test_errors_come_when_they_are_ordered_and_only_where(self):
        disk = SimDisk()
        files = disk.mount()
        one, other = put(files, "one.log", b""), put(files, "other", b"")
        disk.faults.fail("sync", after=1, path=".log")
        one.sync()
        other.sync()
        with pytest.raises(OSError):
            one.sync()
        one.sync()

    def test_after_a_failed_sync_the_next_one_succeeds_and_the_data_may_be_gone(self):
        lost = 0
        for seed in SEEDS:
            disk = SimDisk(seed)
            files = disk.mount()
            file = put(files, "a", b"data")
            files.sync_dir("")
            disk.faults.fail("sync")
            with pytest.raises(OSError):
                file.sync()
            file.sync()
            assert files.read("a") == b"data"
            disk.power_loss()
            lost += disk.mount().read("a") != b"data"
        assert 0 < lost < len(SEEDS)

    def test_slow_writes_and_cold_reads_move_the_clock(self):
        waited = []
        disk = SimDisk(advance=waited.append)
        files = disk.mount()
        disk.faults.write_s = 0.5
        file = put(files, "a", b"x" * 10_000)
        disk.make_cold()
        assert not file.is_cached(5000, 100)
        file.read_ahead(5000, 100)
        assert file.is_cached(5000, 100)
        assert not file.is_cached(0, 10_000)
        assert waited == [0.5, disk.faults.cold_read_s]

    def test_a_lying_sync_loses_data(self):
        lost = 0
        for seed in SEEDS:
            disk = SimDisk(seed)
            disk.faults.lying_sync = True
            files = disk.mount()
            files.write_atomically("a", b"data")
            disk.power_loss()
            lost += tree(disk.mount()) != {"/a": b"data"}
        assert lost
