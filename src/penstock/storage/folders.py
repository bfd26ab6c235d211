"""The folders of a data directory's partitions: their names, how they are made, moved away and set aside.

    <path>/topics/NAME/topic.metadata       the topic's id
    <path>/topics/NAME/partition-N/         a log
    <path>/deleted/                         what a committed decision of the controller removed
    <path>/quarantine/                      what was set aside (`quarantine`)

Names in a directory are synced before anything relies on them. Everything here raises `OSError` as the disk
does, and touches files only, so it may run in a worker thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

from penstock.model.ids import NO_TOPIC_ID, TopicId, format_topic_id, parse_topic_id
from penstock.ports import Clock, Files
from penstock.storage.health import Health
from penstock.storage.quarantine import Quarantine, QuarantineEntry

__all__ = ["DELETED", "TOPICS", "PartitionFolders", "PartitionRemoval", "StoredPartition"]

TOPICS: Final = "topics"
DELETED: Final = "deleted"
_TOPIC_METADATA: Final = "topic.metadata"
#: A file system allows 255 bytes for a name, a topic name alone may take 249.
_NAME_LENGTH_MAX: Final = 200
_PARTITION: Final = re.compile(r"partition-(\d+)")


_text: Final = lru_cache(maxsize=1024)(format_topic_id)


class StoredPartition(NamedTuple):
    """A partition in a directory; its topic id is `NO_TOPIC_ID` where that was lost."""

    topic: str
    partition: int
    topic_id: TopicId


class PartitionRemoval:
    """Partitions that their directory has let go of; a worker thread does the rest.

    `set_aside` makes their place free for others, `delete` frees their space.
    """

    __slots__ = ("_aside", "_files", "_health", "_path")

    def __init__(self, files: Files, health: Health, path: str, aside: str) -> None:
        self._files = files
        self._health = health
        self._path = path
        self._aside = aside

    def set_aside(self) -> None:
        self._health.check()
        try:
            # One that could not even be made is not there.
            with suppress(FileNotFoundError):
                self._files.rename(self._path, self._aside)
        except OSError as e:
            raise self._health.failed(e, f"cannot remove {self._path}") from e

    def delete(self) -> None:
        with suppress(FileNotFoundError):
            self._files.rmtree(self._aside)


class PartitionFolders:
    """The partition folders of one data directory, whose path is `path`."""

    def __init__(self, files: Files, path: str, quarantine: Quarantine, clock: Clock | None) -> None:
        self._files = files
        self._path = path
        self._quarantine = quarantine
        self._clock = clock
        self._removals = count()
        #: the topics' ids, as far as they have been read or written
        self._topic_ids: dict[str, TopicId] = {}

    def topic_path(self, topic: str) -> str:
        return f"{self._path}/{TOPICS}/{topic}"

    def partition_path(self, topic: str, partition: int) -> str:
        return f"{self.topic_path(topic)}/partition-{partition}"

    def found(self) -> list[StoredPartition]:
        """What lies in the directory."""
        found = []
        for topic in self._files.listdir(f"{self._path}/{TOPICS}"):
            topic_id = self._topic_ids[topic] = self._read_topic_id(topic)
            found += [StoredPartition(topic, index, topic_id) for index in self._indexes(topic)]
        return found

    def _indexes(self, topic: str) -> list[int]:
        """The partitions whose folders lie in a topic's folder."""
        matches = map(_PARTITION.fullmatch, self._files.listdir(self.topic_path(topic)))
        return [int(match[1]) for match in matches if match is not None]

    def topic_id(self, topic: str) -> TopicId:
        """The id in a topic's folder, `NO_TOPIC_ID` where that was lost."""
        if topic not in self._topic_ids:
            self._topic_ids[topic] = self._read_topic_id(topic)
        return self._topic_ids[topic]

    def topic_id_text(self, topic: str) -> str:
        """As `topic_id`, in the 22 characters that Kafka's tools show."""
        return _text(self.topic_id(topic))

    def _read_topic_id(self, topic: str) -> TopicId:
        try:
            data = self._files.read(f"{self.topic_path(topic)}/{_TOPIC_METADATA}")
            lines = data.decode().split("\n")
            return parse_topic_id(dict(line.split(": ") for line in lines if line)["topic_id"])
        except (FileNotFoundError, KeyError, ValueError):
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
            self.quarantine(topic, self._indexes(topic), "a new topic has its name")
        for index in indexes:
            self._files.makedirs(self.partition_path(topic, index))
        self._topic_ids[topic] = topic_id
        if found == topic_id:
            self._files.sync_dir(self.topic_path(topic))
        else:
            metadata = f"version: 0\ntopic_id: {format_topic_id(topic_id)}\n"
            self._files.write_atomic(f"{self.topic_path(topic)}/{_TOPIC_METADATA}", metadata.encode())

    def aside(self, name: str) -> str:
        """Where to move something that is to be deleted."""
        return f"{self._path}/{DELETED}/{name[:_NAME_LENGTH_MAX]}.{next(self._removals)}"

    def quarantine(self, topic: str, indexes: Iterable[int], reason: str) -> QuarantineEntry:
        """Set partitions of one topic aside, durably, and the topic's folder with the last of them."""
        path = self.topic_path(topic)
        folders = [(index, self.partition_path(topic, index)) for index in indexes]
        now_ms = 0 if self._clock is None else self._clock.now_ms()
        entry = self._quarantine.set_aside(topic, self._read_topic_id(topic), folders, reason, now_ms)
        if set(self._files.listdir(path)) <= {_TOPIC_METADATA}:
            # The entry has the id; without partitions nothing else in the folder is worth keeping.
            self._files.rmtree(path)
            self._files.sync_dir(f"{self._path}/{TOPICS}")
        return entry
