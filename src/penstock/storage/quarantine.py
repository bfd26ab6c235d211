"""The quarantine of a data directory: logs that were set aside instead of being deleted.

    <path>/quarantine/NAME/quarantine.json      topic, topic id, partitions, reason, time and size
    <path>/quarantine/NAME/data/partition-N/    the partition's folder, as it was

A log is set aside when the broker cannot prove that deleting it is right: the metadata does not assign it to
this broker, its folder belongs to another partition, or a leader lacks committed records of its follower.

Invariant: `quarantine.json` is durable before the first folder is moved, and a move is one rename. After a
crash each folder is either in its old place or in the quarantine, never in neither.

Everything here touches the disk, so it belongs into a worker thread once the broker serves requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId, format_topic_id
from penstock.ports import Files

__all__ = ["KEEP_FOREVER", "QUARANTINE", "Quarantine", "QuarantineEntry", "QuarantineRefused", "tree_size"]

QUARANTINE: Final = "quarantine"
#: a retention in milliseconds that never ends
KEEP_FOREVER: Final = -1
_ENTRY: Final = "quarantine.json"
_DATA: Final = "data"
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
        #: bytes of all entries, as of the last look at them
        self.size = 0

    def entries(self) -> list[QuarantineEntry]:
        """All entries, oldest first. Folders without a readable `quarantine.json` are left out."""
        found = []
        if self._files.is_dir(self.path):
            for name in self._files.listdir(self.path):
                with suppress(OSError, ValueError, TypeError):
                    found.append(_parsed(self._files.read(f"{self.path}/{name}/{_ENTRY}"), name))
        self.size = sum(entry.size for entry in found)
        return sorted(found, key=lambda entry: (entry.when_ms, entry.name))

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
        files = self._files
        entry = QuarantineEntry(
            name=self._new_name(topic, [partition for partition, _ in folders]),
            topic=topic,
            topic_id=format_topic_id(topic_id),
            partitions=sorted(partition for partition, _ in folders),
            reason=reason,
            when_ms=now_ms,
            size=sum(tree_size(files, path) for _, path in folders),
        )
        data = f"{self.entry_path(entry.name)}/{_DATA}"
        files.makedirs(data)
        self._write(entry)
        files.sync_dir(self.path)
        files.sync_dir(self._data_directory)
        parents: dict[str, None] = {}
        for partition, path in folders:
            files.rename(path, f"{data}/{_folder(partition)}")
            parents[path.rpartition("/")[0]] = None
        for parent in (data, *parents):
            files.sync_dir(parent)
        self.size += entry.size
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
        self._files.write_atomic(path, json.dumps(asdict(entry), indent=2).encode() + b"\n")

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
        for partition, path in places:
            files.rename(self._held_path(entry, partition), path)
            parents[path.rpartition("/")[0]] = None
        for parent in (*parents, f"{self.entry_path(entry.name)}/{_DATA}"):
            files.sync_dir(parent)
        if not self.held(entry):
            self.delete(entry.name)

    def delete(self, name: str) -> None:
        """Free the space of an entry."""
        self._files.rmtree(self.entry_path(name))
        self._files.sync_dir(self.path)
        self.entries()

    def keep(self, elapsed_ms: int, now_ms: int, retention_ms: int) -> list[QuarantineEntry]:
        """Add `elapsed_ms` of a running broker to every entry; returns the entries that may be deleted now.

        An entry that a crash left empty expires at once, any other when both the wall clock and the broker's
        own running time are past `retention_ms`; a negative one keeps entries for ever.
        Why: a wall clock that jumps ahead by days must not delete logs that were quarantined a minute ago.
        """
        expired = []
        for entry in self.entries():
            entry.kept_ms += elapsed_ms
            if not self.held(entry) or 0 <= retention_ms <= min(entry.kept_ms, now_ms - entry.when_ms):
                expired.append(entry)
            else:
                # A command may have deleted or restored it meanwhile.
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

    Its name is the folder's, which every command refers to.
    """
    entry = QuarantineEntry(**{**json.loads(data), "name": name})
    numbers = (entry.when_ms, entry.size, entry.kept_ms, *entry.partitions)
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{name} has something else in the place of a number")
    return entry


def _folder(partition: int) -> str:
    return f"partition-{partition}"
