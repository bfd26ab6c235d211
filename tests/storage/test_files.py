"""The contract of `ports.Files`, held against the operating system, memory and the faulty disk alike."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.broker.base.system_ports import OsFile, OsFiles, SystemClock, SystemRng
from penstock.ports import File, FileRange, Files
from penstock.storage.memory import MemoryFiles
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import StillClock


@pytest.fixture(params=["os", "memory", "faulty"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param == "os":
        return OsFiles()
    return MemoryFiles(SystemClock()) if request.param == "memory" else FaultyDisk(Random(0), SystemClock())


@pytest.fixture
def root(files: Files, tmp_path: Path) -> str:
    path = f"{tmp_path}/a/b"
    files.makedirs(path)
    return path


@pytest.fixture
def file(files: Files, root: str) -> Iterator[File]:
    file = files.open(f"{root}/file", create=True)
    yield file
    file.close()
    file.close()


def test_bytes_are_appended_and_read_by_position(file: File) -> None:
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert file.size() == 11
    assert file.pread(5, 6) == b"world"
    assert file.pread(100, 6) == b"world"
    assert file.pread(10, 11) == b""
    assert file.pread_cached(3, 0) == b"hel"
    assert FileRange(file, 2, 6).read() == b"llo wo"


def test_bytes_are_replaced_and_cut(files: Files, file: File) -> None:
    file.append(b"0123456789")
    file.pwrite(b"ab", 3)
    assert file.pread(10, 0) == b"012ab56789"
    file.pwrite(b"xyz", 9)
    assert file.size() == 12
    file.truncate(4)
    file.append(b"!")
    assert (file.size(), file.pread(10, 0)) == (5, b"012a!")
    file.truncate(7)
    assert file.pread(10, 0) == b"012a!\0\0"
    file.sync()
    assert files.size(file.path) == 7


def test_an_open_file_outlives_its_name(files: Files, file: File, root: str) -> None:
    file.append(b"still here")
    files.rename(f"{root}/file", f"{root}/renamed")
    assert not files.exists(f"{root}/file")
    files.remove(f"{root}/renamed")
    assert file.pread(10, 0) == b"still here"


def test_missing_files_are_reported_as_missing(files: Files, root: str) -> None:
    missing = f"{root}/missing"
    assert not files.exists(missing)
    for look in (
        files.open,
        files.read,
        files.size,
        files.remove,
        files.listdir,
        files.rmtree,
        files.modified_ms,
    ):
        with pytest.raises(FileNotFoundError):
            look(missing)
    with pytest.raises(FileNotFoundError):
        files.rename(missing, f"{root}/new")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/no/directory", create=True)


def test_a_rename_replaces_its_target(files: Files, root: str) -> None:
    files.write_atomic(f"{root}/old", b"old")
    files.write_atomic(f"{root}/new", b"new")
    files.rename(f"{root}/new", f"{root}/old")
    files.sync_dir(root)
    assert (files.read(f"{root}/old"), files.listdir(root)) == (b"new", ["old"])


def test_directories_hold_files_and_directories(files: Files, root: str) -> None:
    files.makedirs(f"{root}/y/z")
    files.makedirs(f"{root}/y/z")
    files.write_atomic(f"{root}/x", b"")
    files.write_atomic(f"{root}/y/z/deep", b"content")
    assert files.listdir(root) == ["x", "y"]
    assert files.is_dir(f"{root}/y")
    assert not files.is_dir(f"{root}/x")
    files.rename(f"{root}/y", f"{root}/moved")
    assert files.read(f"{root}/moved/z/deep") == b"content"
    with pytest.raises(OSError) as refused:
        files.makedirs(f"{root}/y")
        files.rename(f"{root}/y", f"{root}/moved")
    assert refused.value.errno == errno.ENOTEMPTY
    files.rmtree(f"{root}/moved")
    assert files.listdir(root) == ["x", "y"]


def test_a_file_is_replaced_as_a_whole(files: Files, root: str) -> None:
    for content in (b"first, and longer", b"second"):
        files.write_atomic(f"{root}/checkpoint", content)
        assert files.read(f"{root}/checkpoint") == content
    assert files.listdir(root) == ["checkpoint"]


def test_a_volume_has_room_and_files_have_an_age(files: Files, root: str) -> None:
    before = SystemClock().now_ms()
    files.write_atomic(f"{root}/x", b"12345")
    space = files.space(root)
    assert 0 < space.usable <= space.capacity <= space.total
    assert before - 2000 <= files.modified_ms(f"{root}/x") <= SystemClock().now_ms() + 2000


def test_reserved_blocks_are_no_part_of_the_capacity(tmp_path: Path) -> None:
    """`df` relates used and available bytes to their sum."""
    listed = subprocess.run(
        ["df", "-B1", "--output=used,avail", str(tmp_path)], capture_output=True, text=True, check=True
    )
    used, available = map(int, listed.stdout.split()[-2:])
    space = OsFiles().space(str(tmp_path))
    # Other processes write meanwhile.
    assert space.capacity == pytest.approx(used + available, rel=0.01)
    assert space.usable == pytest.approx(available, rel=0.01)
    assert space.total == space.capacity + space.reserved


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    files = OsFiles()
    lock = files.lock(f"{tmp_path}/lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{tmp_path}/lock")
    lock.close()
    files.lock(f"{tmp_path}/lock").close()


# -- the operating system


def test_a_descriptor_goes_with_its_last_reference(tmp_path: Path) -> None:
    file = OsFile(f"{tmp_path}/x", create=True)
    descriptor = file.fileno()
    held = FileRange(file, 0, 0)
    del file
    os.fstat(descriptor)
    del held
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_an_append_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFile(f"{tmp_path}/x", create=True)
    file.append(b"before")
    real = os.pwrite

    def stingy(fd: int, data: bytes, position: int) -> int:
        if position >= 8:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, bytes(data)[:2], position)

    monkeypatch.setattr(os, "pwrite", stingy)
    with pytest.raises(OSError) as refused:
        file.append(b"and more")
    assert refused.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert (file.size(), os.path.getsize(file.path)) == (6, 6)
    file.append(b", after")
    assert file.pread(100, 0) == b"before, after"


def test_short_writes_and_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFile(f"{tmp_path}/x", create=True)
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real_read(fd, min(size, 4), at))
    file.append(b"0123456789")
    assert file.pread(9, 0) == b"012345678"


def test_a_disk_that_cannot_even_undo_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    file = OsFile(f"{tmp_path}/x", create=True)
    monkeypatch.setattr(os, "pwrite", refuse)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError) as failed:
        file.append(b"x")
    assert failed.value.errno == errno.EIO


@pytest.mark.parametrize(("code", "answer"), [(errno.EAGAIN, None), (errno.EOPNOTSUPP, b"abc")])
def test_a_read_that_would_wait_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, answer: bytes | None
) -> None:
    file = OsFile(f"{tmp_path}/x", create=True)
    file.append(b"abc")

    def refuse(*_: object) -> int:
        raise OSError(code, "not now")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.pread_cached(3, 0) == answer
    assert file.pread_cached(3, 0) == answer


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    files.write_atomic(f"{tmp_path}/x", b"old")

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError):
        files.write_atomic(f"{tmp_path}/x", b"new")
    monkeypatch.undo()
    assert (files.read(f"{tmp_path}/x"), files.listdir(str(tmp_path))) == (b"old", ["x"])


def test_clock_and_randomness_are_real() -> None:
    clock, rng = SystemClock(), SystemRng()
    assert abs(clock.now_ms() - StillClock().now_ms()) > 0
    assert clock.monotonic() <= clock.monotonic()
    assert len(rng.token(16)) == 16
    assert rng.token(16) != rng.token(16)
    assert 1 <= rng.uniform(1, 2) <= 2


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports errors when a volume is synced")
def test_a_volume_is_synced_as_one_or_gives_the_reason(tmp_path: Path) -> None:
    file = OsFiles().open(f"{tmp_path}/a", create=True)
    file.append(b"x")
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip()
    assert file.sync_volume() == (kind in ("ext2/ext3", "xfs", "btrfs"))
    file.close()
    assert not file.sync_volume()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has such a place")
def test_a_volume_in_memory_is_not_synced_as_one() -> None:
    file = OsFiles().open(f"/dev/shm/penstock-{os.getpid()}", create=True)
    try:
        assert not file.sync_volume()
    finally:
        file.close()
        os.unlink(f"/dev/shm/penstock-{os.getpid()}")
