"""The folders of a data directory's partitions: their names, how they are made, moved away and set aside.

    <path>/topics/NAME/topic.metadata                       the topic's id
    <path>/topics/NAME/partition-N/                         a log
    <path>/topics/NAME/partition-N/partition.metadata       its identity: topic id and partition
    <path>/future/TOPIC-ID/partition-N/                     a copy that is being made (`future_copy`)
    <path>/deleted/                                         what the controller had removed, expired entries
    <path>/quarantine/                                      what was set aside (`quarantine`)

A folder's identity stays the same when the folder is renamed by hand. Release 0.1.0 did not write it, and a
power loss may take it before the log's first flush. Then, and if it fails its checksum, the path of the
folder counts, if the manifest of the last clean shutdown does not contradict it.

Names in a directory are synced before anything relies on them. Everything here raises `OSError` as the disk
does, and touches files only, so it may run in a worker thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition, format_topic_id, parse_topic_id
from penstock.ports import Clock, Files
from penstock.storage.checkpoint import format_fields, parse_fields
from penstock.storage.flush import ClosedFile, Unsynced
from penstock.storage.quarantine import DELETED, Quarantine, QuarantineEntry
from penstock.storage.segment_files import LOG, base_offset_of, file_name

__all__ = [
    "DELETED",
    "FUTURE",
    "IDENTITY_FIELDS",
    "PARTITION_METADATA",
    "TOPICS",
    "Identity",
    "PartitionFolder",
    "PartitionFolders",
    "StoredPartition",
]

TOPICS: Final = "topics"
FUTURE: Final = "future"
#: Kafka's name for the file that has a partition's topic id
PARTITION_METADATA: Final = "partition.metadata"
_TOPIC_METADATA: Final = "topic.metadata"
#: A file system allows 255 bytes for a name, a topic name alone may take 249.
_NAME_LENGTH_MAX: Final = 200
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION: Final = re.compile(r"partition-(0|[1-9][0-9]{0,9})")
_PARTITION_MAX: Final = 2**31 - 1
_SEGMENT: Final = re.compile(r"0[0-9]{19}\.log")
#: the fields of `partition.metadata` and `topic.metadata`
IDENTITY_FIELDS: Final = frozenset({"version", "topic_id", "partition"})


class StoredPartition(NamedTuple):
    """A partition in a directory; its topic id is `NO_TOPIC_ID` where that was lost."""

    topic: str
    partition: int
    topic_id: TopicId


class Identity(NamedTuple):
    """The partition that a folder belongs to."""

    topic_id: TopicId
    partition: int


class PartitionFolder(NamedTuple):
    """A folder: the partition that its path names, and the identity that its file names."""

    topic: str
    partition: int
    #: of the topic's folder, `NO_TOPIC_ID` where that was lost
    topic_id: TopicId
    #: None where the folder does not say
    identity: Identity | None


class PartitionFolders:
    """The partition folders of one data directory, whose path is `path`."""

    def __init__(self, files: Files, path: str, quarantine: Quarantine, clock: Clock | None) -> None:
        self._files = files
        self._path = path
        self._quarantine = quarantine
        self._clock = clock
        self._removals = count()
        #: paths that `found` has come across and left alone
        self.foreign: list[str] = []
        #: files of identities and topic ids that were damaged when they were read, with the errors
        self.damaged: dict[str, str] = {}
        #: the topics' ids, as far as they have been read or written
        self._topic_ids: dict[str, TopicId] = {}
        self._texts: dict[TopicId, str] = {}
        #: folders whose identity was written and not synced
        self._unsynced: set[tuple[str, int]] = set()

    def topic_path(self, topic: str) -> str:
        return f"{self._path}/{TOPICS}/{topic}"

    def partition_path(self, topic: str, partition: int) -> str:
        return f"{self.topic_path(topic)}/partition-{partition}"

    def found(self) -> list[StoredPartition]:
        """The partition folders; `foreign` has the paths of files and folders that are no partitions."""
        return [
            StoredPartition(topic, index, topic_id)
            for topic, topic_id, indexes in self._found()
            for index in indexes
        ]

    def _found(self) -> Iterator[tuple[str, TopicId, list[int]]]:
        """Each topic folder, its topic id, and the partitions in it."""
        self.foreign = []
        for topic in self._files.listdir(f"{self._path}/{TOPICS}"):
            try:
                indexes = self._indexes(topic) if _TOPIC.fullmatch(topic) else None
            except OSError:
                # Not a folder, or not one that may be read.
                indexes = None
            if indexes is None:
                self.foreign.append(self.topic_path(topic))
                continue
            topic_id = self._topic_ids[topic] = self._read_topic_id(topic)
            yield topic, topic_id, indexes

    def identified(self) -> list[PartitionFolder]:
        """As `found`, with each folder's identity."""
        read, folders = self._files.read, []
        for topic, topic_id, indexes in self._found():
            path = f"{self.topic_path(topic)}/partition-"
            expected = _identity(self._text(topic_id), "%d")
            for index in indexes:
                file = f"{path}{index}/{PARTITION_METADATA}"
                try:
                    data = read(file)
                except OSError:
                    identity = None
                else:
                    own = data in (format_fields(content := expected % index), content)
                    identity = Identity(topic_id, index) if own else self._parsed_identity(data, file)
                folders.append(PartitionFolder(topic, index, topic_id, identity))
        return folders

    def identity(self, stored: StoredPartition) -> Identity | None:
        """The identity in the folder at a path; None if the folder has none."""
        return self.identity_at(self.partition_path(stored.topic, stored.partition))

    def identity_at(self, folder: str) -> Identity | None:
        """As `identity`, of any folder."""
        path = f"{folder}/{PARTITION_METADATA}"
        try:
            data = self._files.read(path)
        except OSError:
            return None
        return self._parsed_identity(data, path)

    def _parsed_identity(self, data: bytes, path: str) -> Identity | None:
        """The identity in a `partition.metadata`; None if it is damaged or does not name the partition."""
        try:
            fields = parse_fields(data, IDENTITY_FIELDS)
            if fields.get("version") != "0":
                raise ValueError("its version is not 0")
            topic_id, partition = parse_topic_id(fields.get("topic_id", "")), fields.get("partition")
            return None if partition is None else Identity(topic_id, int(partition))
        except ValueError as e:
            self.damaged[path] = str(e)
            return None

    def segments(self, topic: str, partition: int) -> list[int]:
        """Base offset and size of each segment of a folder in turn, rising."""
        path = self.partition_path(topic, partition)
        bases = sorted(base_offset_of(name) for name in self._files.listdir(path) if _SEGMENT.fullmatch(name))
        return [n for base in bases for n in (base, self._files.size(f"{path}/{file_name(base)}{LOG}"))]

    def identify(self, topic: str, partition: int, topic_id: TopicId) -> None:
        """Write a folder's identity; the log's next flush syncs it."""
        file = self._files.open(self._identity_path(topic, partition), create=True)
        try:
            if file.size():
                file.truncate(0)
            file.append(format_fields(_identity(self._text(topic_id), partition)))
        finally:
            file.close()
        self._unsynced.add((topic, partition))

    def unsynced_identity(self, topic: str, partition: int) -> Unsynced | None:
        """The file to sync with a log's first flush, None if it has been synced. Called once for each log."""
        if (topic, partition) not in self._unsynced:
            return None
        self._unsynced.discard((topic, partition))
        return ClosedFile(self._files, self._identity_path(topic, partition))

    def _identity_path(self, topic: str, partition: int) -> str:
        return f"{self.partition_path(topic, partition)}/{PARTITION_METADATA}"

    def _indexes(self, topic: str) -> list[int]:
        """The partitions whose folders lie in a topic's folder."""
        indexes = []
        for name in self._files.listdir(self.topic_path(topic)):
            match = _PARTITION.fullmatch(name)
            if match is not None and int(match[1]) <= _PARTITION_MAX:
                indexes.append(int(match[1]))
            elif not name.startswith(_TOPIC_METADATA):
                self.foreign.append(f"{self.topic_path(topic)}/{name}")
        return indexes

    def topic_id(self, topic: str) -> TopicId:
        """The id in a topic's folder, `NO_TOPIC_ID` where that was lost."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = self._read_topic_id(topic)
        return self._topic_ids[topic]

    def topic_id_text(self, topic: str) -> str:
        """As `topic_id`, in the 22 characters that Kafka's tools show."""
        return self._text(self.topic_id(topic))

    def _text(self, topic_id: TopicId) -> str:
        text = self._texts.get(topic_id)
        if text is None:
            text = self._texts[topic_id] = format_topic_id(topic_id)
        return text

    def _read_topic_id(self, topic: str) -> TopicId:
        path = f"{self.topic_path(topic)}/{_TOPIC_METADATA}"
        try:
            return parse_topic_id(parse_fields(self._files.read(path), IDENTITY_FIELDS).get("topic_id", ""))
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return NO_TOPIC_ID
        except ValueError as e:
            self.damaged[path] = str(e)
            return NO_TOPIC_ID

    def create(self, partitions: Iterable[StoredPartition]) -> None:
        """Make places for logs, durably; syncs once per topic, however many they are."""
        topics: dict[tuple[str, TopicId], list[int]] = {}
        for topic, partition, topic_id in partitions:
            topics.setdefault((topic, topic_id), []).append(partition)
        for (topic, topic_id), indexes in topics.items():
            self._create(topic, topic_id, indexes)
        self._files.sync_dir(f"{self._path}/{TOPICS}")

    def _create(self, topic: str, topic_id: TopicId, indexes: Iterable[int]) -> None:
        found = self._read_topic_id(topic)
        if found not in (topic_id, NO_TOPIC_ID):
            # An earlier topic of this name, which could not be moved away in its time.
            leftover = self._indexes(topic)
            if leftover:
                self.quarantine(topic, leftover, "a new topic has its name")
        for index in indexes:
            self._files.makedirs(self.partition_path(topic, index))
            self.identify(topic, index, topic_id)
        self._topic_ids[topic] = topic_id
        if found == topic_id:
            self._files.sync_dir(self.topic_path(topic))
        else:
            self._write_topic_id(topic, topic_id)

    def _write_topic_id(self, topic: str, topic_id: TopicId) -> None:
        metadata = format_fields(f"version: 0\ntopic_id: {self._text(topic_id)}\n".encode())
        self._files.write_atomic(f"{self.topic_path(topic)}/{_TOPIC_METADATA}", metadata)
        self._topic_ids[topic] = topic_id

    def keep_topic(self, topic: str, topic_id: TopicId) -> None:
        """Have a topic's folder, durably, with this id in it."""
        path = self.topic_path(topic)
        if not self._files.is_dir(path):
            self._files.makedirs(path)
            self._files.sync_dir(f"{self._path}/{TOPICS}")
        if self._read_topic_id(topic) != topic_id:
            self._write_topic_id(topic, topic_id)

    def aside(self, name: str) -> str:
        """The path to move a folder to that is to be deleted."""
        return f"{self._path}/{DELETED}/{name[:_NAME_LENGTH_MAX]}.{next(self._removals)}"

    def quarantine(self, topic: str, indexes: Iterable[int], reason: str) -> QuarantineEntry:
        """Set partitions of one topic aside, durably, and the topic's folder with the last of them."""
        path = self.topic_path(topic)
        folders = [(index, self.partition_path(topic, index)) for index in indexes]
        now_ms = 0 if self._clock is None else self._clock.now_ms()
        identity = self.identity(StoredPartition(topic, folders[0][0], NO_TOPIC_ID))
        topic_id = self._read_topic_id(topic) if identity is None else identity.topic_id
        entry = self._quarantine.set_aside(topic, topic_id, folders, reason, now_ms)
        if set(self._files.listdir(path)) <= {_TOPIC_METADATA}:
            # The entry has the id; without partitions nothing else in the folder is worth keeping.
            self._files.rmtree(path)
            self._files.sync_dir(f"{self._path}/{TOPICS}")
        return entry

    def put_back(
        self, moves: Iterable[tuple[PartitionFolder, StoredPartition]]
    ) -> tuple[dict[TopicPartition, str], list[QuarantineEntry]]:
        """Move folders that lie under other partitions' names to their own.

        All of them pass through the quarantine: two that were swapped find free places, and a crash loses
        none. Returns the moved partitions, each with the reason, and the entries of folders whose paths are
        taken. Such a folder stays in the quarantine.
        """
        moved: dict[TopicPartition, str] = {}
        left = []
        aside = [
            (self.quarantine(folder.topic, [folder.partition], _misplaced(self, folder, own)), folder, own)
            for folder, own in moves
        ]
        for entry, folder, (topic, partition, topic_id) in aside:
            place = self.partition_path(topic, partition)
            if self._files.exists(place):
                left.append(entry)
                continue
            self.keep_topic(topic, topic_id)
            self._quarantine.move_back(entry, [(folder.partition, place)])
            moved[TopicPartition(topic, partition)] = entry.reason
        return moved, left


def _misplaced(folders: PartitionFolders, folder: PartitionFolder, own: StoredPartition) -> str:
    found, place = (folders.partition_path(each.topic, each.partition) for each in (folder, own))
    return f"the folder of {place} was found at {found}"


def _identity(topic_id: str, partition: int | str) -> bytes:
    """Kafka's `partition.metadata`, with the partition, and without the checksum."""
    return f"version: 0\ntopic_id: {topic_id}\npartition: {partition}\n".encode()
