"""A data directory: which partitions it holds, whose it is, and whether it was closed in good order.

    <path>/meta.json                                who owns it: cluster, node, the directory's own id
    <path>/lock                                     held while a broker uses it
    <path>/clean-shutdown                           there only while no broker uses it, and all is well
    <path>/recovery-point-offset-checkpoint         per log: below this everything is on the disk
    <path>/log-start-offset-checkpoint              per log: where DeleteRecords has moved its start to
    <path>/topics/NAME/partition-N/                 a log, and `partition.metadata` with its topic's id
    <path>/deleted/                                 partitions on their way out

The marker of a clean shutdown is removed, durably, as soon as the directory is opened: whatever happens then,
the next start knows that it has to look. Names in a directory are synced before anything relies on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.ids import NO_TOPIC_ID, TopicId, TopicPartition, format_topic_id, parse_topic_id
from penstock.ports import Clock, File, Files, Rng
from penstock.storage.checkpoint import format_checkpoint, parse_checkpoint
from penstock.storage.config import LogConfig
from penstock.storage.health import Health
from penstock.storage.log import Log
from penstock.storage.segments import SegmentCache

__all__ = ["Checkpoint", "DataDirectory", "DirectoryRefused", "PartitionRemoval", "StoredPartition"]

_META: Final = "meta.json"
_META_VERSION: Final = 1
_LOCK: Final = "lock"
_CLEAN: Final = "clean-shutdown"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_LOG_STARTS: Final = "log-start-offset-checkpoint"
_TOPICS: Final = "topics"
_DELETED: Final = "deleted"
_PARTITION_METADATA: Final = "partition.metadata"
_PARTITION: Final = re.compile(r"partition-(\d+)")


class DirectoryRefused(PenstockError):
    """A directory that this broker must not use; the message says what to do about it."""


class StoredPartition(NamedTuple):
    """A partition in a directory; its topic id is `NO_TOPIC_ID` where that was lost."""

    topic: str
    partition: int
    topic_id: TopicId


class Checkpoint:
    """Offsets of one moment, to be written by a worker thread."""

    __slots__ = ("_contents", "_files", "_health", "_path", "partitions")

    def __init__(
        self,
        files: Files,
        path: str,
        health: Health,
        contents: Mapping[str, bytes],
        partitions: Set[TopicPartition] = frozenset(),
    ) -> None:
        #: that it speaks of
        self.partitions = partitions
        self._files = files
        self._path = path
        self._health = health
        self._contents = contents

    def write(self) -> None:
        for name, content in self._contents.items():
            try:
                self._files.write_atomic(f"{self._path}/{name}", content)
            except OSError as e:
                raise self._health.failed(e, f"cannot write {self._path}/{name}") from e


class PartitionRemoval:
    """A partition's directory, out of the way; `delete` frees its space, in a worker thread."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def delete(self) -> None:
        self._files.rmtree(self._path)


class DataDirectory:
    """One data directory of a broker, open until `close`."""

    def __init__(
        self, files: Files, path: str, lock: File, *, cluster_id: str, directory_id: str, clean: bool
    ) -> None:
        self._files = files
        self.path = path
        self._lock = lock
        self.cluster_id = cluster_id
        #: 22 characters, as Kafka's tools would show it
        self.directory_id = directory_id
        #: whether the last broker that used it shut down in good order
        self.clean = clean
        self.health = Health()
        self.cache = SegmentCache()
        self._logs: dict[TopicPartition, Log] = {}
        #: what the checkpoints said of logs that have not been opened since
        self._recovery_points = self._read_offsets(_RECOVERY_POINTS)
        self._log_starts = self._read_offsets(_LOG_STARTS)
        #: what the checkpoints on the disk may speak of
        self._checkpointed = self._checkpoint_keys()
        self._opened: set[TopicPartition] = set()
        self._removals = count()

    @classmethod
    def open(
        cls, files: Files, path: str, *, cluster_id: str | None, node_id: int, rng: Rng
    ) -> DataDirectory:
        """Open `path`, formatting it if it is new; DirectoryRefused if it is another broker's, or in use.

        Without a `cluster_id`, the directory's own is taken, or a new one if it has none.
        """
        try:
            if not files.exists(f"{path}/{_META}"):
                _make(files, path)
            files.makedirs(f"{path}/{_TOPICS}")
            lock = files.lock(f"{path}/{_LOCK}")
            cluster_id, directory_id = _own(files, path, cluster_id, node_id, rng)
            if files.is_dir(f"{path}/{_DELETED}"):
                files.rmtree(f"{path}/{_DELETED}")
            files.makedirs(f"{path}/{_DELETED}")
            clean = files.exists(f"{path}/{_CLEAN}")
            if clean:
                files.remove(f"{path}/{_CLEAN}")
            files.sync_dir(path)
        except BlockingIOError as e:
            raise DirectoryRefused(f"{path} is in use by another broker: stop it, or use another path") from e
        except OSError as e:
            raise DirectoryRefused(f"{path} cannot be used: {e}") from e
        return cls(files, path, lock, cluster_id=cluster_id, directory_id=directory_id, clean=clean)

    def close(self, clean: bool = True) -> None:
        """Close every log that is still open; with `clean`, the next start may trust what it finds."""
        for log in self._logs.values():
            log.close(clean)
        if clean:
            self.checkpoint().write()
            Checkpoint(self._files, self.path, self.health, {_CLEAN: b""}).write()
        self._logs = {}
        self._lock.close()

    def space(self) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        self.health.check()
        try:
            return self._files.space(self.path)
        except OSError as e:
            raise self.health.failed(e, f"cannot look at {self.path}") from e

    # -- partitions

    def partitions(self) -> list[StoredPartition]:
        """What lies in the directory."""
        found = []
        root = f"{self.path}/{_TOPICS}"
        for topic in self._files.listdir(root):
            for name in self._files.listdir(f"{root}/{topic}"):
                match = _PARTITION.fullmatch(name)
                if match is not None:
                    topic_id = self._read_topic_id(f"{root}/{topic}/{name}")
                    found.append(StoredPartition(topic, int(match[1]), topic_id))
        return found

    def _read_topic_id(self, partition_path: str) -> TopicId:
        try:
            lines = self._files.read(f"{partition_path}/{_PARTITION_METADATA}").decode().split("\n")
            return parse_topic_id(dict(line.split(": ") for line in lines if line)["topic_id"])
        except (FileNotFoundError, KeyError, ValueError):
            return NO_TOPIC_ID

    def partition_path(self, topic: str, partition: int) -> str:
        return f"{self.path}/{_TOPICS}/{topic}/partition-{partition}"

    def forget(self, partitions: Iterable[StoredPartition]) -> bool:
        """Before new partitions are made: forget earlier ones of their names, whose logs were longer.

        True if a checkpoint on the disk may still speak of those: another has to be written first, or a crash
        would have the new logs recovered by the old ones' offsets.
        """
        keys = {TopicPartition(topic, partition) for topic, partition, _ in partitions}
        for key in keys:
            self._recovery_points.pop(key, None)
            self._log_starts.pop(key, None)
        return not keys.isdisjoint(self._checkpointed)

    def create_partitions(self, partitions: Iterable[StoredPartition]) -> None:
        """Make places for logs, durably. Touches files only: it syncs, so it belongs into a worker thread."""
        self.health.check()
        parents: dict[str, None] = {}
        try:
            for topic, partition, topic_id in partitions:
                path = self.partition_path(topic, partition)
                self._files.makedirs(path)
                metadata = f"version: 0\ntopic_id: {format_topic_id(topic_id)}\n"
                self._files.write_atomic(f"{path}/{_PARTITION_METADATA}", metadata.encode())
                parents[f"{self.path}/{_TOPICS}/{topic}"] = None
            for parent in (*parents, f"{self.path}/{_TOPICS}"):
                self._files.sync_dir(parent)
        except OSError as e:
            raise self.health.failed(e, f"cannot make partitions in {self.path}") from e

    def open_log(
        self, topic: str, partition: int, config: LogConfig, clock: Clock, rng: Rng | None = None
    ) -> Log:
        """The log of a partition that is here; it is closed with the directory, or by `close_log`."""
        key = TopicPartition(topic, partition)
        log = Log.open(
            self._files,
            self.partition_path(topic, partition),
            config,
            clock,
            # What this process has had open already may have been left in any state.
            clean=self.clean and key not in self._opened,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            rng=rng,
            health=self.health,
            cache=self.cache,
        )
        log.before_truncation = lambda: self.checkpoint().write()
        self._opened.add(key)
        self._logs[key] = log
        return log

    def close_log(self, topic: str, partition: int, clean: bool = True) -> None:
        key = TopicPartition(topic, partition)
        log = self._logs.pop(key)
        log.close(clean)
        self._remember(key, log)

    def remove_partition(self, topic: str, partition: int) -> PartitionRemoval:
        """Take a partition, its log open or not, out of the way at once; its space is freed later."""
        self.health.check()
        key = TopicPartition(topic, partition)
        log = self._logs.pop(key, None)
        if log is not None:
            log.close(clean=False)
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        aside = f"{self.path}/{_DELETED}/{topic}-{partition}.{next(self._removals)}"
        parent = f"{self.path}/{_TOPICS}/{topic}"
        try:
            self._files.rename(self.partition_path(topic, partition), aside)
            if not self._files.listdir(parent):
                self._files.rmtree(parent)
        except OSError as e:
            raise self.health.failed(e, f"cannot remove {topic}-{partition} from {self.path}") from e
        return PartitionRemoval(self._files, aside)

    # -- checkpoints

    def checkpoint(self) -> Checkpoint:
        """What the logs are at now; `write` it in a worker thread."""
        for key, log in self._logs.items():
            self._remember(key, log)
        partitions = self._checkpoint_keys()
        self._checkpointed |= partitions
        contents = {
            _LOG_STARTS: _format_offsets(self._log_starts),
            _RECOVERY_POINTS: _format_offsets(self._recovery_points),
        }
        return Checkpoint(self._files, self.path, self.health, contents, partitions)

    def checkpointed(self, written: Checkpoint) -> None:
        """`written` is on the disk: what only earlier ones spoke of is gone from there."""
        self._checkpointed = self._checkpoint_keys() | written.partitions

    def _checkpoint_keys(self) -> set[TopicPartition]:
        return {*self._recovery_points, *self._log_starts}

    def _remember(self, key: TopicPartition, log: Log) -> None:
        self._recovery_points[key] = log.recovery_point
        self._log_starts.pop(key, None)
        if log.log_start_offset:
            # Even where it is the first segment's base: that file may be gone after a power loss.
            self._log_starts[key] = log.log_start_offset

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint's offsets; none where the file is missing or damaged: then all has to be looked at."""
        offsets = {}
        with suppress(FileNotFoundError, ValueError):
            for line in parse_checkpoint(self._files.read(f"{self.path}/{name}")):
                topic, partition, offset = line.split(" ")
                offsets[TopicPartition(topic, int(partition))] = int(offset)
        return offsets


def _make(files: Files, path: str) -> None:
    """Make a directory and what is missing above it, durably: names, too, are lost unless they are synced."""
    parent = path.rpartition("/")[0] or "/"
    if not files.exists(parent):
        _make(files, parent)
    files.makedirs(path)
    # A parent that we may not even read has not got its names from us.
    with suppress(PermissionError):
        files.sync_dir(parent)


def _own(files: Files, path: str, cluster_id: str | None, node_id: int, rng: Rng) -> tuple[str, str]:
    """(cluster id, directory id) of `path`, which is this node's from now on if it was nobody's."""
    if not files.exists(f"{path}/{_META}"):
        meta = {
            "version": _META_VERSION,
            "cluster.id": cluster_id or format_topic_id(rng.token(16)),
            "node.id": node_id,
            "directory.id": format_topic_id(rng.token(16)),
        }
        files.write_atomic(f"{path}/{_META}", json.dumps(meta, indent=2).encode())
        return str(meta["cluster.id"]), str(meta["directory.id"])
    try:
        meta = json.loads(files.read(f"{path}/{_META}"))
        version, owner = meta["version"], (meta["cluster.id"], meta["node.id"])
        directory_id = str(meta["directory.id"])
    except (ValueError, KeyError, TypeError) as e:
        raise DirectoryRefused(f"{path}/{_META} is damaged ({e}): restore it from a backup") from e
    if version != _META_VERSION:
        raise DirectoryRefused(
            f"{path} has version {version}, this Penstock knows {_META_VERSION}: upgrade it"
        )
    if owner != (cluster_id or owner[0], node_id):
        raise DirectoryRefused(f"{path} belongs to node {owner[1]} of cluster {owner[0]}: use another path")
    return str(owner[0]), directory_id


def _format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_checkpoint(f"{key.topic} {key.partition} {offset}" for key, offset in offsets.items())
