"""Copies the folder of a log to another data directory while the log is in use: Kafka's future replica.

    <directory>/future/TOPIC-ID/partition-N/    the copy, with the identity of the partition

A copy is made in passes. A pass copies the files that are not in the copy, or that have changed since they
were copied, and removes those that are gone. The last pass runs when the log is closed: then the copy is the
log. `moved_folders` puts it in its place.

A file counts as unchanged if size and modification time are those of the copied one. A file that was modified
just before it was copied may be modified again without a new time, so that only an older one counts, unless
the caller knows that nothing rewrites segments (`settled`). The small files of the whole log are rewritten at
any time.

Invariants: a file is in the copy if all of its bytes were read back with the checksum of the source, and the
disk has them. The source is never written to. Runs in worker threads, one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.model.ids import format_topic_id
from penstock.ports import Files
from penstock.records.checksum import crc32c
from penstock.storage.folders import FUTURE, PARTITION_METADATA, StoredPartition
from penstock.storage.removal import DELETED
from penstock.storage.segment_files import LOG, base_offset_of

__all__ = ["CopyFailed", "FutureCopy", "SourceFailed", "future_path"]

#: files that may disappear at any time, and of which nothing depends on
_DEBRIS: Final = (DELETED, ".tmp")
#: a modification time this much older than the copy is that of the last change
_SETTLED_MS: Final = 2000


def future_path(directory: str, stored: StoredPartition) -> str:
    """The folder of the future replica of a partition in a data directory."""
    return f"{directory}/{FUTURE}/{format_topic_id(stored.topic_id)}/partition-{stored.partition}"


class CopyFailed(Exception):
    """The copy cannot be written, or is not what was written."""


class SourceFailed(Exception):
    """The log cannot be read."""


class _Version(NamedTuple):
    """A file of the source when it was copied."""

    size: int
    modified_ms: int
    #: whether the file could not have been changed since without a new time
    aged: bool


class FutureCopy:
    """The copy of one log in `directory`, the path of a data directory."""

    def __init__(self, files: Files, source: str, directory: str, stored: StoredPartition) -> None:
        """`source` is the folder of the log of `stored`."""
        self._files = files
        self.source = source
        self._directory = directory
        self.path = future_path(directory, stored)
        self._topic = self.path.rpartition("/")[0]
        self._copied: dict[str, _Version] = {}
        #: bytes of the files in the copy
        self.size = 0
        #: all records below are in the copy, as far as it is known
        self.end_offset = 0

    def begin(self) -> None:
        """Make the folder, durably, with the identity of the partition: the move goes on after a restart."""
        files = self._files
        try:
            if files.is_dir(self.path):
                files.rmtree(self.path)
            files.makedirs(self.path)
            self._write_identity()
            for path in (self.path, self._topic, f"{self._directory}/{FUTURE}", self._directory):
                files.sync_dir(path)
        except OSError as e:
            raise CopyFailed(f"cannot make {self.path}: {e}") from e

    def _write_identity(self) -> None:
        try:
            identity = self._files.read(f"{self.source}/{PARTITION_METADATA}")
        except OSError as e:
            raise SourceFailed(f"cannot read {self.source}/{PARTITION_METADATA}: {e}") from e
        self._files.write_atomic(f"{self.path}/{PARTITION_METADATA}", identity)

    def discard(self) -> None:
        """Remove the copy; the source stays as it is."""
        if self._files.is_dir(self.path):
            self._files.rmtree(self.path)
            self._files.sync_dir(self._topic)

    def missing_bytes(self) -> int:
        """The bytes that a pass would copy now."""
        return sum(
            version.size for name, version in self._found(0).items() if not self._has(name, version, True)
        )

    def copy(self, now_ms: int, slice_bytes: int, active: int | None, settled: bool) -> Iterator[int]:
        """One pass, in slices: yields the bytes that were copied since the last one.

        The segment at the offset `active` is left out, because it grows. With `settled`, nothing has
        rewritten or cut a segment since the pass before.
        """
        found = self._found(now_ms)
        for name, version in found.items():
            stem = _base_offset(name)
            if active is not None and stem == active and name.endswith(LOG):
                # It may have been copied before a truncation made it the last one again.
                self._drop(name)
                continue
            if name.endswith(LOG) and stem is not None:
                self.end_offset = stem
            if not self._has(name, version, settled):
                yield from self._copy_file(name, version, slice_bytes)
        for name in self._copied.keys() - found.keys():
            self._drop(name)
        self._sync()
        if active is not None:
            self.end_offset = active

    def check_complete(self) -> None:
        """After a last pass of a closed log: compare names and sizes once more; CopyFailed if they differ."""
        found = self._found(0)
        try:
            names = {name for name in self._files.listdir(self.path) if name != PARTITION_METADATA}
            sizes = {name: self._files.size(f"{self.path}/{name}") for name in names}
        except OSError as e:
            raise CopyFailed(f"cannot list {self.path}: {e}") from e
        if sizes != {name: version.size for name, version in found.items()}:
            raise CopyFailed(f"{self.path} does not have the files of {self.source}")

    def _found(self, now_ms: int) -> dict[str, _Version]:
        """The files of the source, in their order."""
        files, found = self._files, {}
        try:
            names = files.listdir(self.source)
        except OSError as e:
            raise SourceFailed(f"cannot list {self.source}: {e}") from e
        for name in names:
            path = f"{self.source}/{name}"
            if name == PARTITION_METADATA or name.endswith(_DEBRIS) or files.is_dir(path):
                continue
            try:
                # The time first: a change between the two is seen by the next pass.
                modified_ms = files.modified_ms(path)
                found[name] = _Version(files.size(path), modified_ms, now_ms - modified_ms >= _SETTLED_MS)
            except FileNotFoundError:
                continue
            except OSError as e:
                raise SourceFailed(f"cannot read {path}: {e}") from e
        return found

    def _has(self, name: str, version: _Version, settled: bool) -> bool:
        copied = self._copied.get(name)
        settled = settled and _base_offset(name) is not None
        return copied is not None and copied[:2] == version[:2] and (settled or copied.aged)

    def _copy_file(self, name: str, version: _Version, slice_bytes: int) -> Iterator[int]:
        self._drop(name)
        checksum, size = 0, 0
        try:
            new = self._files.open(f"{self.path}/{name}", create=True)
        except OSError as e:
            raise CopyFailed(f"cannot write {self.path}/{name}: {e}") from e
        try:
            for piece in self._pieces(name, version.size, slice_bytes):
                checksum, size = crc32c(piece, checksum), size + len(piece)
                try:
                    new.append(piece)
                except OSError as e:
                    raise CopyFailed(f"cannot write {self.path}/{name}: {e}") from e
                yield len(piece)
            try:
                new.sync()
            except OSError as e:
                raise CopyFailed(f"cannot sync {self.path}/{name}: {e}") from e
        finally:
            new.close()
        for _ in self._read_back(name, size, checksum, slice_bytes):
            yield 0
        if size == version.size:
            # A file that was cut or removed meanwhile is copied again, or dropped, by the next pass.
            self._copied[name] = version
            self.size += size

    def _pieces(self, name: str, size: int, slice_bytes: int) -> Iterator[bytes]:
        path = f"{self.source}/{name}"
        try:
            old = self._files.open(path)
        except FileNotFoundError:
            return
        except OSError as e:
            raise SourceFailed(f"cannot read {path}: {e}") from e
        try:
            position = 0
            while position < size:
                piece = old.pread(min(slice_bytes, size - position), position)
                if not piece:
                    return
                position += len(piece)
                yield piece
        except OSError as e:
            raise SourceFailed(f"cannot read {path}: {e}") from e
        finally:
            old.close()

    def _read_back(self, name: str, size: int, checksum: int, slice_bytes: int) -> Iterator[None]:
        """Compare what the copy has with what was read from the source."""
        path, found, position = f"{self.path}/{name}", 0, 0
        try:
            file = self._files.open(path)
            try:
                while position < size:
                    piece = file.pread(min(slice_bytes, size - position), position)
                    if not piece:
                        break
                    found, position = crc32c(piece, found), position + len(piece)
                    yield
                longer = file.size() != size
            finally:
                file.close()
        except OSError as e:
            raise CopyFailed(f"cannot read {path}: {e}") from e
        if longer or (found, position) != (checksum, size):
            raise CopyFailed(f"{path} does not have the bytes that were written")

    def _drop(self, name: str) -> None:
        copied = self._copied.pop(name, None)
        self.size -= 0 if copied is None else copied.size
        try:
            if self._files.exists(f"{self.path}/{name}"):
                self._files.remove(f"{self.path}/{name}")
        except OSError as e:
            raise CopyFailed(f"cannot remove {self.path}/{name}: {e}") from e

    def _sync(self) -> None:
        try:
            self._files.sync_dir(self.path)
        except OSError as e:
            raise CopyFailed(f"cannot sync {self.path}: {e}") from e


def _base_offset(name: str) -> int | None:
    """The offset that a file is named after; None for the files of the whole log."""
    return base_offset_of(name) if name[:20].isdigit() else None
