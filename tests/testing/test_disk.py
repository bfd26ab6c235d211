"""The faulty disk is what crash tests stand on: it must lose what it may, and keep what it must."""

from __future__ import annotations

import errno
from random import Random

import pytest

from penstock.testing.disk import FaultyDisk, PowerLoss


def disk_with(seed: int, synced: bytes, unsynced: list[bytes]) -> FaultyDisk:
    disk = FaultyDisk(Random(seed))
    disk.makedirs("/d")
    disk.sync_dir("/")
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    file.append(synced)
    file.sync()
    for data in unsynced:
        file.append(data)
    return disk


def test_synced_bytes_stay_and_others_survive_as_some_prefix() -> None:
    seen = set()
    for seed in range(300):
        disk = disk_with(seed, b"base", [b"AAAA", b"BBBB"])
        disk.restart()
        left = disk.read("/d/f")
        assert left.startswith(b"base")
        written = left.rstrip(b"\0")
        assert b"baseAAAABBBB".startswith(written)
        seen.add(left)
    assert {b"base", b"baseAAAA", b"baseAAAABBBB", b"baseA", b"baseAAAA\0\0\0\0"} <= seen


def test_a_process_that_dies_loses_nothing_but_is_no_sync() -> None:
    disk = disk_with(1, b"base", [b"more"])
    disk.restart(power_loss=False)
    assert disk.read("/d/f") == b"basemore"
    survivors = set()
    for seed in range(50):
        disk = disk_with(seed, b"base", [b"more"])
        disk.restart(power_loss=False)
        disk.restart()
        survivors.add(disk.read("/d/f"))
    assert survivors > {b"basemore"}


def test_names_last_once_their_directory_is_synced() -> None:
    seen = set()
    for seed in range(100):
        disk = FaultyDisk(Random(seed))
        disk.makedirs("/d")
        disk.sync_dir("/")
        disk.open("/d/kept", create=True)
        disk.sync_dir("/d")
        disk.open("/d/maybe", create=True)
        disk.rename("/d/kept", "/d/renamed")
        disk.restart()
        seen.add(tuple(disk.listdir("/d")))
    assert seen == {("kept",), ("kept", "maybe"), ("maybe", "renamed")}


def test_a_move_between_directories_happens_in_both_or_in_none() -> None:
    for seed in range(100):
        disk = FaultyDisk(Random(seed))
        for path in ("/a", "/b"):
            disk.makedirs(path)
        disk.open("/a/x", create=True)
        for path in ("/", "/a", "/b"):
            disk.sync_dir(path)
        disk.rename("/a/x", "/b/x")
        if seed % 2:
            disk.sync_dir("/b")
        disk.restart()
        assert (disk.listdir("/a"), disk.listdir("/b")) in [(["x"], []), ([], ["x"])]
        assert not seed % 2 or disk.listdir("/b") == ["x"]


def test_removed_files_may_come_back() -> None:
    seen = set()
    for seed in range(50):
        disk = disk_with(seed, b"base", [])
        disk.remove("/d/f")
        disk.restart()
        seen.add(disk.exists("/d/f"))
    assert seen == {True, False}


def test_the_power_goes_at_the_requested_change_and_stays_off() -> None:
    disk = disk_with(0, b"base", [])
    file = disk.open("/d/f")
    disk.crash_at = disk.changes + 2
    file.append(b"1")
    for _ in range(2):
        with pytest.raises(PowerLoss):
            file.append(b"2")
    with pytest.raises(PowerLoss):
        file.pread(1, 0)
    disk.restart()
    assert disk.read("/d/f").startswith(b"base")


def test_atomic_replacement_leaves_old_or_new() -> None:
    for crash_at in range(1, 12):
        for seed in range(20):
            disk = disk_with(seed, b"old", [])
            disk.crash_at = disk.changes + crash_at
            done = False
            try:
                disk.write_atomic("/d/f", b"new")
                done = True
            except PowerLoss:
                pass
            disk.restart()
            assert disk.read("/d/f") in ([b"new"] if done else [b"old", b"new"])


def test_space_runs_out_and_comes_back() -> None:
    disk = disk_with(0, b"base", [])
    disk.capacity = 6
    file = disk.open("/d/f")
    file.append(b"12")
    with pytest.raises(OSError) as refused:
        file.append(b"3")
    assert refused.value.errno == errno.ENOSPC
    assert file.size() == 6
    file.pwrite(b"xx", 0)
    disk.capacity = None
    file.append(b"3")
    assert file.pread(10, 0) == b"xxse123"


def test_errors_are_the_requested_ones() -> None:
    disk = disk_with(0, b"base", [])
    file = disk.open("/d/f")
    disk.sync_error = disk.read_error = errno.EIO
    for fails in (
        file.sync,
        lambda: disk.sync_dir("/d"),
        lambda: file.pread(1, 0),
        lambda: disk.read("/d/f"),
    ):
        with pytest.raises(OSError) as refused:
            fails()
        assert refused.value.errno == errno.EIO


def test_damage_changes_one_bit() -> None:
    disk = disk_with(0, b"base", [])
    disk.flip_bit("/d/f", 1, 0)
    assert disk.read("/d/f") == b"b`se"
    disk.restart()
    assert disk.read("/d/f") == b"b`se"


def test_an_evicted_file_has_to_be_read_before_it_is_cached_again() -> None:
    disk = disk_with(0, b"base", [])
    file = disk.open("/d/f")
    assert file.pread_cached(4, 0) == b"base"
    disk.evict()
    assert file.pread_cached(4, 0) is None
    assert file.pread(4, 0) == b"base"
    assert file.pread_cached(4, 0) == b"base"


def test_on_power_loss_is_called_once() -> None:
    disk = FaultyDisk(Random(0))
    reported: list[str] = []
    disk.on_power_loss = lambda: reported.append("off")
    disk.power_off()
    disk.power_off()
    with pytest.raises(PowerLoss):
        disk.makedirs("/disk")
    assert reported == ["off"]
