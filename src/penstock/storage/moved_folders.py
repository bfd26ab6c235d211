"""Moves the folder of a partition from one data directory to another, so that a crash leaves one to believe.

    <old directory>/moved/TOPIC-ID-N        the mark: which partition, and the id of the new directory

The order of `move`, each step durable before the next one:

1. the new directory has all files of the closed log, below `future` (`future_copy`), and its offsets;
2. the mark is written: from now on the folder in the old directory is not believed any more;
3. the folder in the new directory is renamed to its place;
4. the folder in the old directory is moved away, to be deleted;
5. the mark is removed.

Before 2, the old folder is the log, and the copy a future replica. Behind 2, the new one is. `settle` runs at
each start, before any folder is opened, and goes on where a crash has interrupted the steps. It deletes
nothing: an old folder goes to the quarantine. An old folder with more records than a copy that is not yet in
its place stays the log: a release that does not know marks has used it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.model.errors import StorageError
from penstock.model.ids import TopicPartition, format_topic_id, parse_topic_id
from penstock.ports import Files
from penstock.storage.checkpoint import format_fields, parse_fields
from penstock.storage.directory import DataDirectory
from penstock.storage.folders import DELETED, FUTURE, Identity, StoredPartition
from penstock.storage.future_copy import CopyFailed, future_path
from penstock.storage.ownership import DirectoryRefused
from penstock.storage.quarantine import QuarantineEntry
from penstock.storage.removal import PartitionRemoval
from penstock.storage.segment_files import LOG, base_offset_of

__all__ = ["MOVED", "MoveUnfinished", "Settled", "future_folders", "move", "settle"]

MOVED: Final = "moved"
_FIELDS: Final = frozenset({"version", "topic", "topic_id", "partition", "directory_id"})


class MoveUnfinished(Exception):
    """A disk has failed behind the mark: the next start finishes the move."""


class _Mark(NamedTuple):
    """A mark, and its path."""

    path: str
    stored: StoredPartition
    directory_id: str


class Settled(NamedTuple):
    """What `settle` has done with the folders of one partition."""

    partition: StoredPartition
    #: the path of the folder that is the log
    path: str
    #: the old folder, set aside; None if it is the log
    entry: QuarantineEntry | None
    #: the data directory of the entry
    directory: DataDirectory


def move(
    files: Files,
    stored: StoredPartition,
    source: DataDirectory,
    target: DataDirectory,
    removal: PartitionRemoval,
) -> None:
    """Have the complete copy in `target` be the log instead of the folder in `source`. Touches files only.

    CopyFailed: nothing has changed. MoveUnfinished: neither folder may be opened before a restart. The
    caller deletes the old folder with `removal`, which is that of the folder in `source`.
    """
    topic, partition, topic_id = stored
    place = target.partition_path(topic, partition)
    try:
        if files.exists(place):
            raise CopyFailed(f"{place} exists already: move it away")
        target.folders.keep_topic(topic, topic_id)
    except OSError as e:
        raise CopyFailed(f"cannot make {target.folders.topic_path(topic)}: {e}") from e
    mark = _mark_path(source.path, stored)
    try:
        files.makedirs(f"{source.path}/{MOVED}")
        files.sync_dir(source.path)
    except OSError as e:
        raise CopyFailed(f"cannot write {mark}: {e}") from e
    try:
        files.write_atomic(mark, _encoded(stored, target.directory_id))
    except OSError as e:
        _withdraw(files, mark, e)
    try:
        _put_in_place(files, stored, target)
        removal.set_aside()
        for parent in (source.folders.topic_path(topic), f"{source.path}/{DELETED}"):
            files.sync_dir(parent)
        _remove_mark(files, mark)
    except (OSError, StorageError) as e:
        raise MoveUnfinished(f"the move of {topic}-{partition} to {target.path} is not finished: {e}") from e


def _withdraw(files: Files, mark: str, error: OSError) -> None:
    """The mark could not be written, or not durably: remove it, so that the old folder stays the log."""
    try:
        if files.exists(mark):
            files.remove(mark)
            files.sync_dir(mark.rpartition("/")[0])
    except OSError as e:
        raise MoveUnfinished(f"{mark} may be on the disk or not: {e}") from e
    raise CopyFailed(f"cannot write {mark}: {error}") from error


def _remove_mark(files: Files, mark: str) -> None:
    files.remove(mark)
    files.sync_dir(mark.rpartition("/")[0])


def settle(files: Files, directories: Sequence[DataDirectory]) -> list[Settled]:
    """At start: finish the moves that a crash has interrupted behind their marks. Touches files only.

    DirectoryRefused if it is not known which folder is the log.
    """
    by_id = {directory.directory_id: directory for directory in directories}
    return [
        done
        for source in directories
        for mark in _marks(files, source)
        if (done := _settle(files, mark, source, by_id.get(mark.directory_id), directories)) is not None
    ]


def _settle(
    files: Files,
    mark: _Mark,
    source: DataDirectory,
    target: DataDirectory | None,
    directories: Sequence[DataDirectory],
) -> Settled | None:
    stored = mark.stored
    old, key = source.partition_path(*stored[:2]), TopicPartition(*stored[:2])
    try:
        if not _is_of(source, stored):
            _remove_mark(files, mark.path)
            return None
        # While the old directory was away, another move may have gone on from the new one.
        others = [target] if target is not None and _is_of(target, stored) else []
        own = Identity(stored.topic_id, stored.partition)
        others += [
            each for each in directories if each is not source and each.folders.identity(stored) == own
        ]
        holder = others[0] if others else None
        if holder is None and target is None:
            raise DirectoryRefused(
                f"{old} was moved to the data directory with id {mark.directory_id}, which is missing: mount "
                f"it, or remove {mark.path} to go on with the older copy"
            )
        if holder is None and target is not None and files.is_dir(future := future_path(target.path, stored)):
            found, copied = _last_segment(files, old), _last_segment(files, future)
            if found > copied:
                # A release that knows no marks has gone on with the old folder. The copy is made again.
                _remove_mark(files, mark.path)
                return Settled(stored, old, None, source)
            target.folders.keep_topic(stored.topic, stored.topic_id)
            _put_in_place(files, stored, target)
            holder = target
            if found < copied:
                holder.shutdown.distrust(key, f"{old} was cut behind the move to {target.path}")
        if holder is not None:
            place = holder.partition_path(*key)
            reason = f"it was moved to {place}"
            entry = source.quarantine_partitions(stored.topic, [stored.partition], reason, forget=False)
            _remove_mark(files, mark.path)
            holder.shutdown.arrived.add(key)
            return Settled(stored, place, entry, source)
        assert target is not None, "without it the start is refused"
        # The new directory has lost it. What is left may lack records that were written there.
        source.shutdown.distrust(key, f"it was moved to {target.path}, which has lost it")
        _remove_mark(files, mark.path)
        return Settled(stored, old, None, source)
    except (OSError, StorageError) as e:
        raise DirectoryRefused(f"cannot finish the move of {old}: {e}") from e


def _last_segment(files: Files, folder: str) -> tuple[int, int]:
    """Base offset and size of the last segment in a folder, which are the same in a complete copy."""
    names = [name for name in files.listdir(folder) if name[:20].isdigit() and name[20:] == LOG]
    return max(((base_offset_of(name), files.size(f"{folder}/{name}")) for name in names), default=(-1, 0))


def _put_in_place(files: Files, stored: StoredPartition, target: DataDirectory) -> None:
    """Rename a complete future replica to its place, durably; the topic's folder is there."""
    future = future_path(target.path, stored)
    files.rename(future, target.partition_path(stored.topic, stored.partition))
    files.sync_dir(target.folders.topic_path(stored.topic))
    files.sync_dir(future.rpartition("/")[0])


def _is_of(directory: DataDirectory, stored: StoredPartition) -> bool:
    """Returns true if the partition's folder is in its place."""
    if not directory.holds(stored.topic, stored.partition):
        return False
    identity = directory.folders.identity(stored)
    return identity is None or identity == Identity(stored.topic_id, stored.partition)


def _marks(files: Files, source: DataDirectory) -> Iterator[_Mark]:
    folder = f"{source.path}/{MOVED}"
    for name in files.listdir(folder) if files.is_dir(folder) else ():
        path = f"{folder}/{name}"
        if name.endswith(".tmp"):
            with suppress(OSError):
                files.remove(path)
            continue
        try:
            fields = parse_fields(files.read(path), _FIELDS)
            stored = StoredPartition(
                fields["topic"], int(fields["partition"]), parse_topic_id(fields["topic_id"])
            )
            yield _Mark(path, stored, fields["directory_id"])
        except (OSError, ValueError, KeyError) as e:
            raise DirectoryRefused(
                f"{path} cannot be read: {e}. It says that a partition was moved to another data directory: "
                f"remove it if only one of them has the partition"
            ) from e


def future_folders(files: Files, directory: DataDirectory) -> list[tuple[str, Identity | None]]:
    """The path of each future replica in a directory, and the partition that it is of. Touches files only."""
    root = f"{directory.path}/{FUTURE}"
    topics = [f"{root}/{topic}" for topic in (files.listdir(root) if files.is_dir(root) else ())]
    paths = [f"{topic}/{name}" for topic in topics if files.is_dir(topic) for name in files.listdir(topic)]
    return [(path, directory.folders.identity_at(path)) for path in paths]


def _mark_path(directory: str, stored: StoredPartition) -> str:
    return f"{directory}/{MOVED}/{format_topic_id(stored.topic_id)}-{stored.partition}"


def _encoded(stored: StoredPartition, directory_id: str) -> bytes:
    topic, partition, topic_id = stored
    return format_fields(
        f"version: 0\ntopic: {topic}\ntopic_id: {format_topic_id(topic_id)}\npartition: {partition}\n"
        f"directory_id: {directory_id}\n".encode()
    )
