"""The quarantine of a data directory: logs that were set aside instead of being deleted.

    <path>/quarantine/NAME/quarantine.json      topic, topic id, partitions, reason, time, size and a checksum
    <path>/quarantine/NAME/data/partition-N/    the partition's folder, as it was

A log is set aside when the broker cannot prove that deleting it is right: the metadata does not assign it to
this broker, its folder belongs to another partition, or a leader lacks committed records of its follower.

Invariant: `quarantine.json` is durable before the first folder is moved, and a move is one rename. After a
crash each folder is either in its old place or in the quarantine, never in neither.

Invariant: an entry is never deleted because its `quarantine.json` is damaged, or because its folders are
still to be moved: worker threads take turns, and only an entry whose data folder lists nothing is empty.

Metadata changes may wait for a log that is set aside, so no turn is long: an expired entry is moved to
`deleted` before its files are removed, and the time of entries is written with one turn per entry.

Everything here touches the disk, so it belongs into a worker thread once the broker serves requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from threading import Lock
from typing import Any, Final

from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId, format_topic_id
from penstock.ports import Files
from penstock.records.checksum import crc32c

__all__ = [
    "DELETED",
    "KEEP_FOREVER",
    "QUARANTINE",
    "Quarantine",
    "QuarantineEntry",
    "QuarantineRefused",
    "tree_size",
]

QUARANTINE: Final = "quarantine"
#: the folder of a data directory whose content a start deletes
DELETED: Final = "deleted"
#: a retention in milliseconds that never ends
KEEP_FOREVER: Final = -1
_ENTRY: Final = "quarantine.json"
_DATA: Final = "data"
#: the field with the checksum of all other fields; releases before it did not write it
_CHECKSUM: Final = "crc32c"
_FOLDER_PREFIX: Final = "partition-"
#: A file system allows 255 bytes for a name, a topic name alone may take 249.
_TOPIC_LENGTH_MAX: Final = 200


class QuarantineRefused(PenstockError):
    """A request for an entry that cannot be met; the message has the remedy."""


@dataclass(slots=True, kw_only=True)
class QuarantineEntry:
    """The `quarantine.json` of one set-aside topic or partition."""

    name: str
    topic: str
    #: 22 characters, as Kafka's tools show it
    topic_id: str
    partitions: list[int]
    reason: str
    #: wall clock time at which the logs were set aside
    when_ms: int
    #: bytes in the folders at that time
    size: int
    #: how long a running broker has kept the entry, by its monotonic clock
    kept_ms: int = 0


class Quarantine:
    """The quarantine of one data directory; `path` is the data directory's."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._data_directory = path
        self.path = f"{path}/{QUARANTINE}"
        #: `_lock` is held by the worker thread that moves, counts or deletes entries, `_next` by the next one
        self._lock = Lock()
        self._next = Lock()
        #: bytes of all entries, as of the last look at them, and of those that were set aside since the start
        self.size = 0
        self._set_aside_bytes = 0
        #: Names of entries that do not expire, as of the last look: they have data, and a `quarantine.json`
        #: that is missing, damaged, or does not list all of it.
        self.damaged: list[str] = []

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One turn of a worker thread; not reentrant.

        Why two locks: a thread that takes one turn after the other would mostly get a single lock again
        before a waiting thread wakes up.
        """
        with self._next:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def entries(self) -> list[QuarantineEntry]:
        """All entries, oldest first. Folders without a readable `quarantine.json` are left out."""
        found: list[QuarantineEntry] = []
        damaged: list[str] = []
        with self._turn():
            names = self._files.listdir(self.path) if self._files.is_dir(self.path) else []
            counted = self._set_aside_bytes
        for name in names:
            with self._turn():
                try:
                    entry = self._read(name)
                except (OSError, ValueError, TypeError):
                    is_damaged = not self._is_empty(name)
                else:
                    found.append(entry)
                    is_damaged = bool(self.unlisted(entry))
            if is_damaged:
                damaged.append(name)
        with self._turn():
            self.size = sum(entry.size for entry in found) + self._set_aside_bytes - counted
        self.damaged = damaged
        return sorted(found, key=lambda entry: (entry.when_ms, entry.name))

    def _read(self, name: str) -> QuarantineEntry:
        return _parsed(self._files.read(f"{self.entry_path(name)}/{_ENTRY}"), name)

    def _is_empty(self, name: str) -> bool:
        """Returns true if an entry has no data, false if its data folder cannot be read."""
        try:
            return not self._files.listdir(f"{self.entry_path(name)}/{_DATA}")
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def unlisted(self, entry: QuarantineEntry) -> list[str]:
        """The partition folders of an entry that its `quarantine.json` does not list: the file is damaged."""
        listed = {_folder(partition) for partition in entry.partitions}
        try:
            names = self._files.listdir(f"{self.entry_path(entry.name)}/{_DATA}")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError:
            return [_DATA]
        return [name for name in names if name.startswith(_FOLDER_PREFIX) and name not in listed]

    def entry(self, name: str) -> QuarantineEntry:
        for entry in self.entries():
            if entry.name == name:
                return entry
        raise QuarantineRefused(f"{self.path} has no entry {name!r}: list the entries for their names")

    def entry_path(self, name: str) -> str:
        return f"{self.path}/{name}"

    def set_aside(
        self,
        topic: str,
        topic_id: TopicId,
        folders: Sequence[tuple[int, str]],
        reason: str,
        now_ms: int,
    ) -> QuarantineEntry:
        """Move partition folders, given as (partition, path), into one new entry; durable on return."""
        with self._turn():
            return self._set_aside(topic, topic_id, folders, reason, now_ms)

    def _set_aside(
        self,
        topic: str,
        topic_id: TopicId,
        folders: Sequence[tuple[int, str]],
        reason: str,
        now_ms: int,
    ) -> QuarantineEntry:
        files = self._files
        size = sum(tree_size(files, path) for _, path in folders)
        entry = self._begin(topic, topic_id, [partition for partition, _ in folders], size, reason, now_ms)
        data = f"{self.entry_path(entry.name)}/{_DATA}"
        parents: dict[str, None] = {}
        for partition, path in folders:
            files.rename(path, f"{data}/{_folder(partition)}")
            parents[path.rpartition("/")[0]] = None
        for parent in (data, *parents):
            files.sync_dir(parent)
        self.size += entry.size
        self._set_aside_bytes += entry.size
        return entry

    def _begin(
        self, topic: str, topic_id: TopicId, partitions: Sequence[int], size: int, reason: str, now_ms: int
    ) -> QuarantineEntry:
        """Write the `quarantine.json` of a new entry."""
        files = self._files
        entry = QuarantineEntry(
            name=self._new_name(topic, partitions),
            topic=topic,
            topic_id=format_topic_id(topic_id),
            partitions=sorted(partitions),
            reason=reason,
            when_ms=now_ms,
            size=size,
        )
        files.makedirs(f"{self.entry_path(entry.name)}/{_DATA}")
        self._write(entry)
        files.sync_dir(self.path)
        files.sync_dir(self._data_directory)
        return entry

    def copy(
        self,
        topic: str,
        topic_id: TopicId,
        partition: int,
        segment: str,
        parts: Iterable[bytes],
        size: int,
        reason: str,
        now_ms: int,
    ) -> QuarantineEntry:
        """Write `parts`, of `size` bytes in all, as the one segment of a partition; durable on return.

        For the end of a log, which is truncated afterwards. A crash before that leaves the log as it was, and
        an entry with a part of the copy; an error leaves none.
        """
        files = self._files
        with self._turn():
            entry = self._begin(topic, topic_id, [partition], size, reason, now_ms)
            folder = self._held_path(entry, partition)
            files.makedirs(folder)
            self.size += size
            self._set_aside_bytes += size
        try:
            file = files.open(f"{folder}/{segment}", create=True)
            try:
                for part in parts:
                    file.append(part)
                file.sync()
            finally:
                file.close()
        except (OSError, PenstockError):
            # The log still has it all: an entry for each try would fill the disk.
            self.delete(entry.name)
            raise
        for path in (folder, folder.rpartition("/")[0], self.entry_path(entry.name)):
            files.sync_dir(path)
        return entry

    def _new_name(self, topic: str, partitions: Sequence[int]) -> str:
        """A name that no entry has: the topic, the partition if it is one, and a number."""
        stem = topic[:_TOPIC_LENGTH_MAX]
        if len(partitions) == 1:
            stem = f"{stem}-{partitions[0]}"
        taken = set(self._files.listdir(self.path)) if self._files.is_dir(self.path) else set()
        number = 1
        while f"{stem}.{number}" in taken:
            number += 1
        return f"{stem}.{number}"

    def _write(self, entry: QuarantineEntry) -> None:
        path = f"{self.entry_path(entry.name)}/{_ENTRY}"
        fields = asdict(entry)
        content = {**fields, _CHECKSUM: _checksum(fields)}
        self._files.write_atomic(path, json.dumps(content, indent=2).encode() + b"\n")

    def held(self, entry: QuarantineEntry) -> list[int]:
        """The partitions whose folders the entry holds: a crash may have left only some of them."""
        return [p for p in entry.partitions if self._files.is_dir(self._held_path(entry, p))]

    def _held_path(self, entry: QuarantineEntry, partition: int) -> str:
        return f"{self.entry_path(entry.name)}/{_DATA}/{_folder(partition)}"

    def move_back(self, entry: QuarantineEntry, places: Iterable[tuple[int, str]]) -> None:
        """Move partitions of `entry`, given as (partition, path), to free places; durable on return.

        The entry is removed when its last folder has left it.
        """
        files = self._files
        parents: dict[str, None] = {}
        with self._turn():
            for partition, path in places:
                files.rename(self._held_path(entry, partition), path)
                parents[path.rpartition("/")[0]] = None
            for parent in (*parents, f"{self.entry_path(entry.name)}/{_DATA}"):
                files.sync_dir(parent)
            if self._is_empty(entry.name):
                files.rmtree(self.entry_path(entry.name))
                files.sync_dir(self.path)
        self.entries()

    def delete(self, name: str) -> None:
        """Free the space of an entry, for a command. A running broker calls `expire`."""
        with self._turn():
            self._files.rmtree(self.entry_path(name))
            self._files.sync_dir(self.path)
        self.entries()

    def expire(self, entry: QuarantineEntry) -> bool:
        """Delete an entry that `keep` returned; false if another entry has its name by now.

        Why: a command may have deleted it meanwhile, which frees the name for a log that is set aside.
        """
        with self._turn():
            if not self._is_there(entry):
                return False
            path = self._deleted_path(entry.name)
            self._files.rename(self.entry_path(entry.name), path)
            self._files.sync_dir(self.path)
        self._files.rmtree(path)
        self.entries()
        return True

    def _is_there(self, entry: QuarantineEntry) -> bool:
        """Returns false if an entry is gone, or another one has its name."""
        try:
            return replace(self._read(entry.name), kept_ms=entry.kept_ms) == entry
        except (OSError, ValueError, TypeError):
            return False

    def _deleted_path(self, name: str) -> str:
        """A free path. No topic name contains the character before the number."""
        deleted = f"{self._data_directory}/{DELETED}"
        self._files.makedirs(deleted)
        taken = set(self._files.listdir(deleted))
        return next(f"{deleted}/{name}~{i}" for i in count(1) if f"{name}~{i}" not in taken)

    def keep(self, elapsed_ms: int, now_ms: int, retention_ms: int) -> list[QuarantineEntry]:
        """Add `elapsed_ms` of a running broker to every entry; returns the entries that may be deleted now.

        An entry that a crash left empty expires at once, any other when both the wall clock and the broker's
        own running time are past `retention_ms`; a negative one keeps entries for ever. An entry in `damaged`
        does not expire: its time and partitions may be wrong.
        Why: a wall clock that jumps ahead by days must not delete logs that were quarantined a minute ago.
        """
        expired = []
        for entry in self.entries():
            if entry.name in self.damaged:
                continue
            with self._turn():
                if not self._is_there(entry):
                    continue
                entry.kept_ms += elapsed_ms
                is_old = 0 <= retention_ms <= min(entry.kept_ms, now_ms - entry.when_ms)
                if is_old or self._is_empty(entry.name):
                    expired.append(entry)
                else:
                    # A command may have deleted it meanwhile.
                    with suppress(FileNotFoundError):
                        self._write(entry)
        return expired


def tree_size(files: Files, path: str) -> int:
    """Bytes of all files at and below `path`; files that cannot be read count as 0."""
    size = 0
    with suppress(OSError):
        for name in files.listdir(path):
            below = f"{path}/{name}"
            if files.is_dir(below):
                size += tree_size(files, below)
            else:
                with suppress(OSError):
                    size += files.size(below)
    return size


def _parsed(data: bytes, name: str) -> QuarantineEntry:
    """An entry from its file; ValueError or TypeError on anything else.

    Its name is the folder's, which every command refers to. A file without a checksum is an older release's.
    """
    fields = dict(json.loads(data))
    checksum = fields.pop(_CHECKSUM, None)
    if checksum not in (None, _checksum(fields)):
        raise ValueError(f"the checksum of {name} is not {checksum!r}")
    entry = QuarantineEntry(**{**fields, "name": name})
    numbers = (entry.when_ms, entry.size, entry.kept_ms, *entry.partitions)
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{name} has something else in the place of a number")
    return entry


def _checksum(fields: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"


def _folder(partition: int) -> str:
    return f"{_FOLDER_PREFIX}{partition}"
