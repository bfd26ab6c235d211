"""The ports to the system: clock, random numbers, files, network, object stores.

Everything below `broker` reaches the world only through these, so that the same code runs for real, over
memory (`--memory`), and under a simulator that owns time and loses what was not synced. The real doors are
in `penstock.broker.base.system_ports`, the in-memory files in `penstock.storage.memory`, the object stores in
`penstock.objectstore.object_store`.

Files raise `OSError` exactly as the operating system does (errno included): storage decides what it means.
The event loop's thread owns every `File`, from when a worker thread that opened it has handed it over; only
`sync` and `pread` may then be called from a worker thread. `Files` may be used from any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

__all__ = [
    "Buffer",
    "Clock",
    "File",
    "FileRange",
    "Files",
    "ObjectStore",
    "Rng",
    "Space",
    "StoredObject",
    "Workers",
    "World",
]

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

    def is_cached(self, position: int) -> bool:
        """Returns false if a read at `position` would wait for the disk."""
        ...

    def pread_verified(self, size: int, position: int) -> bytes:
        """As `pread`, but EBADMSG if the file itself can tell that the bytes are not those written.

        For bytes that are sent without a look at them. `pread` has other bytes in their place.
        """
        ...

    def never_written(self, position: int, end: int) -> int | None:
        """The first position from `position` on that was never written, though the file is longer.

        `end` if there is none, and None if only the content can tell.
        """
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


class Space(NamedTuple):
    """The bytes of a volume."""

    total: int
    #: free, and this process may write them
    usable: int
    #: free, and this process may not write them: kept for root, or beyond a quota
    reserved: int = 0

    @property
    def capacity(self) -> int:
        """The bytes that are used or usable: what `df` relates both to."""
        return self.total - self.reserved


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

    def takes_appends(self, path: str) -> bool:
        """Returns false for a file of an earlier format, which is only read."""
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

    def space(self, path: str) -> Space:
        """The bytes of the volume."""
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
        return self.file.pread_verified(self.size, self.position)

    def read_unverified(self) -> bytes:
        """The bytes for a reader that verifies the checksum of each batch itself."""
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


class StoredObject(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    #: by the clock of the store
    modified_ms: int


class ObjectStore(Protocol):
    """A prefix of an object store, or a folder. Names are relative to it, with '/' between their parts.

    Errors are `OSError`s, as those of files: FileNotFoundError for a missing object, FileExistsError for a
    conditional put that came second, PermissionError where credentials do not suffice, TimeoutError, and
    others for everything that may go away by itself. After an error of `put_new` the object may be there or
    not.
    """

    async def get(self, name: str) -> bytes: ...

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes [start, end) of an object."""
        ...

    async def put_new(self, name: str, data: Buffer) -> None:
        """Write an object whole, or not at all; FileExistsError if there is one (create-if-absent)."""
        ...

    async def listing(self, prefix: str) -> list[StoredObject]:
        """All objects whose names start with `prefix`, sorted by name. It may lack the newest ones."""
        ...

    async def delete(self, name: str) -> None:
        """Delete an object; deleting one that is not there is no error."""
        ...


@runtime_checkable
class BufferStore(Protocol):
    """An object store that returns ranges in its own memory: no copy takes the time of an event loop."""

    async def get_buffer(self, name: str, start: int, end: int) -> Buffer:
        """As `ObjectStore.get_range`."""
        ...


class World(NamedTuple):
    """The ports of a broker: clock, random numbers, files, worker threads and processes."""

    clock: Clock
    rng: Rng
    files: Files
    workers: Workers
    #: seconds that never go back: what slices of long computations are measured with; None for the process's.
    #: In a simulation each call takes the same time, so that the same seed gives the same slices.
    computing: Callable[[], float] | None = None
    #: the archive of tiered storage; None for the one that the config names
    archive: ObjectStore | None = None


Parts: TypeAlias = Iterable[Buffer | FileRange]
