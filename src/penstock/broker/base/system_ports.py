"""The ports on the operating system: clock, random numbers, files.

A descriptor is closed with the last reference to its `OsFile`, so a range that is still being sent keeps the
file of a closed or deleted segment open. Files are written by position (never with `O_APPEND`), so the cached
size is right as long as no other process writes the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import cache

from penstock.broker.base.descriptors import DESCRIPTORS, EXHAUSTED
from penstock.net.randomness import SystemRng
from penstock.ports import Buffer, File, Space

__all__ = ["OsFile", "OsFiles", "SystemClock", "SystemRng"]

#: errno of a read that would block, and of file systems that do not support RWF_NOWAIT
_WOULD_WAIT = errno.EAGAIN
_NO_NOWAIT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_READ_BYTES = 1 << 20
#: most files that are read as a whole are smaller; a larger buffer would cost more than a second read
_SMALL_FILE_BYTES = 8 << 10
#: the types of ext4, XFS and btrfs, in the first word of `statfs`; and an upper bound of its size in words
_SYNCED_AS_ONE = frozenset({0xEF53, 0x58465342, 0x9123683E})
_STATFS_LONGS = 64
#: Records and credentials are for the broker's user alone, whatever the umask is.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700


@cache
def _syncfs() -> Callable[[int], bool] | None:
    """The system call syncfs, which Python does not provide. It reports all errors on Linux since 5.17.

    The function returns False, and does nothing, on file systems whose syncfs may be weaker than `fdatasync`.
    """
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or version is None or (int(version[1]), int(version[2])) < (5, 17):
        return None
    try:
        # Imported late: only a sync of many files needs it, in a worker thread.
        import ctypes
    except ImportError:
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def syncfs(fd: int) -> bool:
        about = (ctypes.c_long * _STATFS_LONGS)()
        if libc.fstatfs(fd, about) or about[0] & 0xFFFFFFFF not in _SYNCED_AS_ONE:
            return False
        if libc.syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return True

    return syncfs


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class OsFile:
    """An open file of the operating system."""

    __slots__ = ("_fd", "_nowait", "_size", "path")

    def __init__(self, path: str, *, create: bool) -> None:
        self._fd = -1
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        # A new file is a segment or other durable state: opening it must not fail for lack of a descriptor.
        self._fd = DESCRIPTORS.open(os.open, path, flags, _FILE_MODE, vital=create)
        if self._fd >= DESCRIPTORS.high:
            DESCRIPTORS.relieve()
        self._size = os.fstat(self._fd).st_size
        self._nowait = True

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        size = self._size
        try:
            written = os.pwrite(self._fd, data, size)
            if written != len(data):
                self._write_rest(memoryview(data)[written:], size + written)
        except OSError as e:
            self._cut_back(size, e)
            raise
        self._size = size + len(data)

    def _write_rest(self, rest: memoryview, position: int) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position += written
            rest = rest[written:]

    def _cut_back(self, size: int, cause: OSError) -> None:
        """Undo a partial append; if that fails, too, the disk has failed, whatever the first cause was."""
        try:
            os.ftruncate(self._fd, size)
        except OSError as e:
            raise OSError(errno.EIO, f"cannot undo a failed append: {e}", self.path) from cause

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        return data + self.pread(size - len(data), position + len(data))

    def pread_cached(self, size: int, position: int) -> bytes | None:
        if not self._nowait:
            return self.pread(size, position)
        data = bytearray(size)
        try:
            read = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except OSError as e:
            if e.errno == _WOULD_WAIT:
                return None
            if e.errno not in _NO_NOWAIT:
                raise
            # This file system (tmpfs, overlays) does not support RWF_NOWAIT: use a normal read.
            self._nowait = False
            return self.pread(size, position)
        if read == size or position + read >= self._size:
            return bytes(memoryview(data)[:read])
        return None

    def is_cached(self, position: int) -> bool:
        return self.pread_cached(1, position) is not None

    def pread_verified(self, size: int, position: int) -> bytes:
        return self.pread(size, position)

    def never_written(self, position: int, end: int) -> int | None:
        return None

    def pwrite(self, data: Buffer, position: int) -> None:
        self._write_rest(memoryview(data), position)
        self._size = max(self._size, position + len(data))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def sync_volume(self) -> bool:
        syncfs = _syncfs()
        return syncfs is not None and syncfs(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsFiles:
    """The operating system's file system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        return OsFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as e:
            if e.errno not in EXHAUSTED:
                raise
        return sorted(DESCRIPTORS.briefly(os.listdir, path))

    def makedirs(self, path: str) -> None:
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if os.path.isdir(parent):  # a file system without new directories, such as /proc
                raise
            self.makedirs(parent)
            self.makedirs(path)
        except OSError:
            if not os.path.isdir(path):
                raise

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def takes_appends(self, path: str) -> bool:
        return True

    def read(self, path: str) -> bytes:
        # A start reads three files per partition, so `briefly` is called only in a shortage.
        try:
            return _read(path)
        except OSError as e:
            if e.errno not in EXHAUSTED:
                raise
        return DESCRIPTORS.briefly(_read, path)

    def write_atomic(self, path: str, data: Buffer) -> None:
        DESCRIPTORS.briefly(self._write_atomic, path, data)

    def _write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise
        _sync_dir(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        DESCRIPTORS.briefly(shutil.rmtree, path)

    def sync_dir(self, path: str) -> None:
        DESCRIPTORS.briefly(_sync_dir, path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> File:
        file = OsFile(path, create=True)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def space(self, path: str) -> Space:
        volume = os.statvfs(path)
        size = volume.f_frsize
        reserved = volume.f_bfree - volume.f_bavail
        return Space(volume.f_blocks * size, volume.f_bavail * size, reserved * size)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, _SMALL_FILE_BYTES)
        if len(data) < _SMALL_FILE_BYTES:
            return data
        parts = [data]
        while chunk := os.read(fd, _READ_BYTES):
            parts.append(chunk)
    finally:
        os.close(fd)
    return b"".join(parts)


def _sync_dir(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
