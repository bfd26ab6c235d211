"""The four doors to the world: clock, randomness, files, network.

Everything below `broker` reaches the world only through these, so that the same code runs for real, over
memory (`--memory`), and under a simulator that owns time and loses what was not synced. The real doors are
in `penstock.broker.base.system_ports`, the in-memory files in `penstock.storage.memory`.

Files raise `OSError` exactly as the operating system does (errno included): storage decides what it means.
The event loop's thread owns every `File`, from when a worker thread that opened it has handed it over; only
`sync` and `pread` may then be called from a worker thread. `Files` may be used from any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

__all__ = ["Buffer", "Clock", "File", "FileRange", "Files", "Rng", "Workers", "World"]

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970: what records are stamped with."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: what timeouts are measured with."""
        ...


class Rng(Protocol):
    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes."""
        ...

    def uniform(self, low: float, high: float) -> float: ...


class File(Protocol):
    """An open file."""

    path: str

    def fileno(self) -> int:
        """A descriptor that `sendfile` may read from, or -1 where there is none."""
        ...

    def size(self) -> int: ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. On an error nothing stays: the file is cut back, then it raises."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; may wait for the disk."""
        ...

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """As `pread`, but None where that would wait for the disk."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when everything written so far is on the disk (`fdatasync`)."""
        ...

    def sync_volume(self) -> bool:
        """As `sync`, for every file on this one's volume; False, and nothing done, where that cannot be."""
        ...

    def close(self) -> None:
        """Let go of the file; closing twice is harmless."""
        ...


class Files(Protocol):
    """A file system. Paths are absolute strings joined with '/'."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create` is true."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def makedirs(self, path: str) -> None:
        """Make the directory and its parents where they are missing."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the file, without opening it."""
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Replace the file's content durably: temporary file, fsync, rename, fsync of the directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move over whatever is there. Durable only after `sync_dir` of the directory."""
        ...

    def remove(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def lock(self, path: str) -> File:
        """Make and lock a file; BlockingIOError while another process has it. Closing it unlocks it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        ...


class FileRange:
    """Bytes of an open file that go to a socket without being read: `size` bytes from `position`.

    Holds the file open: storage may unlink the file while a slow reader is being served.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)

    def behind(self, skipped: int) -> FileRange:
        """The range without its first `skipped` bytes."""
        return FileRange(self.file, self.position + skipped, self.size - skipped)


class Workers(Protocol):
    """Runs work that must not block the event loop."""

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """For what waits (disk) or releases the interpreter (compression, checksums)."""
        ...

    def in_process(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """For what holds the interpreter; function, arguments and result are pickled."""
        ...

    def close(self) -> None:
        """Wait for what runs, and take no more."""
        ...


class World(NamedTuple):
    """The ports of a broker: clock, random numbers, files, worker threads and processes."""

    clock: Clock
    rng: Rng
    files: Files
    workers: Workers


Parts: TypeAlias = Iterable[Buffer | FileRange]
