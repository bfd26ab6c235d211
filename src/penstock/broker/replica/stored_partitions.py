"""Partition folders on the disks: sorted at start, created, opened and set aside later, in worker threads.

A folder belongs to the partition that its `partition.metadata` names, whatever its path says. It is opened if
the metadata assigns that partition to this broker and the folder is in its own place. A folder in another's
place, as after two were swapped by hand, is put back first. Any other is a stray and goes to the quarantine.
A folder without an identity belongs to the partition that its path names, with two exceptions, in which it
goes to the quarantine, too: another folder of the same data directory has the identity of that partition, or
the manifest of the last clean shutdown lists other segments for that partition. Two folders of one partition
in two data directories are not judged: the broker does not start.

Invariant: no folder is served under another partition's name, and nothing is deleted at start. Why: the
metadata may be older than a folder, or damaged, and the folder may be the last copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.errors import StorageError
from penstock.model.ids import METADATA_TOPIC, NO_TOPIC_ID, TopicId, TopicPartition
from penstock.ports import Clock, Rng, Workers
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, PartitionRemoval
from penstock.storage.folders import Identity, PartitionFolder, StoredPartition
from penstock.storage.log import Log
from penstock.storage.moved_folders import Settled
from penstock.storage.ownership import DirectoryRefused
from penstock.storage.quarantine import QuarantineEntry
from penstock.storage.removal import Removals

__all__ = [
    "StoredPartitions",
    "WantedLog",
    "create_partitions",
    "load_logs",
    "log_damaged",
    "log_findings",
    "log_quarantined",
    "log_settled",
    "place_logs",
    "set_aside",
]

log = get_logger("partitions")
#: a folder, and its own place
_Misplaced: TypeAlias = tuple[PartitionFolder, StoredPartition]
#: how many paths one log line names
_NAMED_MAX: Final = 10
#: worker threads that create partition folders at the same time
_THREADS: Final = 4
_NAMELESS: Final = "it has no identity, and another folder has the identity of this partition"
_OTHER_SEGMENTS: Final = "it has no identity, and not the segments of its partition at the last shutdown"
_STRAY: Final = "the metadata does not assign it to this broker"


class StoredPartitions:
    """The folders of all data directories, compared with what the image assigns to this broker."""

    def __init__(
        self,
        directories: Sequence[DataDirectory],
        image: ClusterImage,
        assigned: Mapping[str, Iterable[int]],
    ) -> None:
        """`assigned` has the indexes, by topic, of the partitions with a replica on this broker."""
        self._directories = directories
        self._image = image
        #: (topic, index) of the partitions to open, by data directory
        self.found: dict[DataDirectory, list[tuple[str, int]]] = {}
        #: assigned to this broker, and in none of its data directories
        self.missing = {name: dict.fromkeys(indexes) for name, indexes in assigned.items()}
        self._taken: set[tuple[str, int]] = set()

    def sort(self) -> None:
        """Fill `found` and `missing`, put misplaced folders back, and quarantine the rest. Touches files."""
        misplaced = {directory: self._sort(directory) for directory in self._directories}
        for directory, folders in misplaced.items():
            self.found[directory] += self._put_back(directory, folders)

    def _sort(self, directory: DataDirectory) -> list[_Misplaced]:
        """As `sort`, for one directory; returns the folders to put back."""
        found = self.found[directory] = []
        strays: dict[tuple[str, TopicId], list[int]] = {}
        misplaced: list[_Misplaced] = []
        folders = list(directory.folders.identified())
        identities: set[Identity] = {folder.identity for folder in folders if folder.identity}
        for folder in folders:
            if self._is_in_place(folder):
                self._take(folder.topic, folder.partition)
                found.append((folder.topic, folder.partition))
                continue
            if folder.topic == METADATA_TOPIC:
                continue
            own = self._own_place(folder)
            if own is None:
                topic_id = folder.topic_id if folder.identity is None else folder.identity.topic_id
                strays.setdefault((folder.topic, topic_id), []).append(folder.partition)
            elif own[:2] != folder[:2]:
                misplaced.append((folder, own))
            elif folder.identity is None and (doubt := _doubt(directory, folder, own, identities)):
                _quarantine(directory, own.topic, [own.partition], doubt)
            else:
                self._take(own.topic, own.partition)
                found.append((own.topic, own.partition))
                _identify(directory, folder, own)
        for (name, _), indexes in strays.items():
            _quarantine(directory, name, indexes, _STRAY)
        directory.quarantine.entries()
        foreign = directory.folders.foreign
        if foreign:
            log.warning("foreign_files_ignored", count=len(foreign), paths=foreign[:_NAMED_MAX])
        log_damaged(directory.folders.damaged)
        return misplaced

    def _is_in_place(self, folder: PartitionFolder) -> bool:
        """Returns true if path, topic id and identity of a folder agree with the image, as almost always."""
        name, index, topic_id, identity = folder
        topic = self._image.topics_by_id.get(topic_id)
        return (
            topic is not None
            and topic.name == name
            and identity == (topic_id, index)
            and index in self.missing[name]
        )

    def _own_place(self, folder: PartitionFolder) -> StoredPartition | None:
        """The place of a folder; None if the image does not assign its partition to this broker."""
        topic_id, index = folder.identity or (folder.topic_id, folder.partition)
        # If both ids were lost, only the name of the topic's folder is left.
        lost = topic_id == NO_TOPIC_ID
        topic = self._image.topics.get(folder.topic) if lost else self._image.topics_by_id.get(topic_id)
        if topic is None or not self._is_assigned(topic.name, index):
            return None
        return StoredPartition(topic.name, index, topic.id)

    def _is_assigned(self, name: str, index: int) -> bool:
        return index in self.missing[name] or (name, index) in self._taken

    def _take(self, name: str, index: int) -> None:
        """Mark a partition as found."""
        if (name, index) in self._taken:
            raise DirectoryRefused(self._found_twice(name, index))
        del self.missing[name][index]
        self._taken.add((name, index))

    def _put_back(self, directory: DataDirectory, misplaced: list[_Misplaced]) -> list[tuple[str, int]]:
        """Move folders to their own places; returns the partitions that are in their places then.

        A folder whose partition has been found elsewhere stays in the quarantine.
        """
        moves = []
        for folder, own in misplaced:
            if (own.topic, own.partition) in self._taken:
                reason = f"{directory.partition_path(own.topic, own.partition)} has the same identity"
                _quarantine(directory, folder.topic, [folder.partition], reason)
            else:
                self._take(own.topic, own.partition)
                moves.append((folder, own))
        try:
            left = directory.put_back(moves)
        except StorageError as e:
            log.error("misplaced_partitions_ignored", directory=directory.path, error=str(e))
            left = []
        for entry in left:
            log_quarantined(directory, entry)
        back = []
        for folder, own in moves:
            if directory.holds(own.topic, own.partition):
                back.append((own.topic, own.partition))
                log.error(
                    "partition_misplaced",
                    topic=own.topic,
                    partition=own.partition,
                    found=directory.partition_path(folder.topic, folder.partition),
                    moved_to=directory.partition_path(own.topic, own.partition),
                )
            else:
                self._taken.discard((own.topic, own.partition))
                self.missing[own.topic][own.partition] = None
        return back

    def _found_twice(self, name: str, index: int) -> str:
        """The reason not to start: one of two copies is older, and nothing says which."""
        places = [d.partition_path(name, index) for d in self._directories if d.holds(name, index)]
        return f"{' and '.join(places)} are the same replica: move the older one away"


def _doubt(
    directory: DataDirectory, folder: PartitionFolder, own: StoredPartition, identities: Set[Identity]
) -> str | None:
    """Why a folder without an identity may be the log of another partition; None if nothing speaks for that.

    Epochs and offsets of another partition's log may be the same, so that its records would go unnoticed.
    """
    if (own.topic_id, own.partition) in identities:
        return _NAMELESS
    key = TopicPartition(own.topic, own.partition)
    try:
        if folder.topic_id == NO_TOPIC_ID:
            # Segments of an encrypted folder can be read only with the topic id that they are bound to. If
            # it is not this one, they are empty, and differ.
            directory.folders.keep_topic(own.topic, own.topic_id)
        segments = directory.folders.segments(*key)
    except OSError:
        # The folder is a dangling link, for example. Opening the log takes this partition alone offline.
        return None
    if directory.shutdown.has_other_segments(key, segments):
        return _OTHER_SEGMENTS
    return None


def _identify(directory: DataDirectory, folder: PartitionFolder, own: StoredPartition) -> None:
    """Give a folder in its own place the identity, or its topic's folder the id, that was lost."""
    try:
        if folder.topic_id != own.topic_id:
            directory.folders.keep_topic(own.topic, own.topic_id)
        if folder.identity is None:
            directory.folders.identify(own.topic, own.partition, own.topic_id)
    except OSError as e:
        # The next start tries again.
        log.warning("partition_not_identified", topic=own.topic, partition=own.partition, error=str(e))


def _quarantine(directory: DataDirectory, name: str, indexes: Sequence[int], reason: str) -> None:
    try:
        entry = directory.quarantine_partitions(name, indexes, reason, forget=False)
    except StorageError as e:
        log.error("stray_partitions_ignored", topic=name, partitions=indexes, error=str(e))
    else:
        log_quarantined(directory, entry)


def log_quarantined(directory: DataDirectory, entry: QuarantineEntry) -> None:
    """Log what was set aside, where it is, and how to bring it back."""
    log.warning(
        "partitions_quarantined",
        topic=entry.topic,
        partitions=entry.partitions,
        bytes=entry.size,
        reason=entry.reason,
        path=directory.quarantine.entry_path(entry.name),
        restore=f"penstock log quarantine restore {entry.name} --data {directory.path}",
    )


def log_settled(moves: Iterable[Settled]) -> None:
    """Log the moves between data directories that were finished at start."""
    for stored, path, entry, directory in moves:
        if entry is None:
            log.error("replica_move_lost", topic=stored.topic, partition=stored.partition, path=path)
        else:
            log.warning("replica_move_finished", topic=stored.topic, partition=stored.partition, path=path)
            log_quarantined(directory, entry)


class WantedLog(NamedTuple):
    """A partition to host."""

    topic: TopicImage
    partition: int
    config: LogConfig


def place_logs(
    counts: dict[DataDirectory, int],
    wanted: Iterable[WantedLog],
    preferred: dict[tuple[str, int], DataDirectory] | None = None,
) -> dict[DataDirectory, list[WantedLog]]:
    """Assign each log to the directory with the fewest logs; `counts` is updated.

    A log in `preferred`, from which it is removed, gets that directory if it is well and in `counts`.
    """
    placed: dict[DataDirectory, list[WantedLog]] = {}
    for wanted_log in wanted:
        chosen = preferred.pop((wanted_log.topic.name, wanted_log.partition), None) if preferred else None
        is_place = chosen is not None and chosen in counts and chosen.health.is_well
        directory = chosen if chosen and is_place else min(counts, key=lambda d: counts[d])
        counts[directory] += 1
        placed.setdefault(directory, []).append(wanted_log)
    return placed


async def create_partitions(
    workers: Workers, directory: DataDirectory, partitions: Iterable[StoredPartition]
) -> None:
    """Create partition folders durably; StorageError if one of them cannot be created.

    Each topic waits for the disk. Several threads wait at the same time: a disk takes hardly longer for it.
    """
    topics: dict[str, list[StoredPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    shares = list(topics.values())
    made = await asyncio.gather(
        *(
            workers.in_thread(directory.create_partitions, list(chain(*shares[thread::_THREADS])))
            for thread in range(min(_THREADS, len(shares)))
        ),
        return_exceptions=True,
    )
    for error in made:
        if error is not None:
            raise error


def load_logs(
    directory: DataDirectory, wanted: Sequence[WantedLog], clock: Clock, rng: Rng
) -> list[Log | StorageError]:
    """Open logs; a log that cannot be opened is replaced by the error."""
    loaded: list[Log | StorageError] = []
    for topic, index, config in wanted:
        try:
            opened = directory.load_log(topic.name, index, config, clock, rng)
            if opened.end_offset > opened.recovery_point:
                # Recovered records must be on the disk before they are read; later appends are flushed.
                plan = opened.flush_plan()
                plan.sync()
                opened.flushed(plan)
        except StorageError as e:
            loaded.append(e)
        else:
            loaded.append(opened)
    return loaded


def log_damaged(checkpoints: Mapping[str, str]) -> None:
    """Log files beside the segments that were not used: paths, and the errors."""
    for path, error in checkpoints.items():
        log.warning("checkpoint_damaged", path=path, error=error)


def log_findings(topic: str, partition: int, opened: Log) -> None:
    """Log what opening a log has found: damage, and files that are not the log's."""
    recovery = opened.recovery
    log_damaged(recovery.damaged_files)
    if recovery.foreign:
        log.warning("foreign_files_ignored", directory=opened.path, names=recovery.foreign)
    if recovery.transactions_rebuilt_from >= 0:
        log.warning(
            "transaction_index_rebuilt",
            topic=topic,
            partition=partition,
            first_offset=recovery.transactions_rebuilt_from,
        )
    if opened.explained_start < opened.log_start_offset:
        start = opened.log_start_offset
        log.warning("log_start_unexplained", topic=topic, partition=partition, log_start_offset=start)
    if recovery.kept:
        log.error(
            "committed_records_cut",
            topic=topic,
            partition=partition,
            end_offset=opened.end_offset,
            paths=recovery.kept,
        )
    if recovery.corruption:
        ranges = [str(damage) for damage in recovery.corruption]
        log.error("corruption_found", topic=topic, partition=partition, ranges=ranges)


async def set_aside(
    workers: Workers,
    directory: DataDirectory,
    removed: Sequence[tuple[str, list[int], PartitionRemoval]],
    doubt: str | None,
) -> Removals | None:
    """Move the folders of removed partitions away.

    Returns the removal to complete later. If there is a `doubt`, the logs are quarantined instead.
    """
    if doubt is None:
        removal = Removals(removal for *_, removal in removed)
        for error in await workers.in_thread(removal.set_aside):
            log.error("topic_not_removed", directory=directory.path, error=str(error))
        return removal
    for name, indexes, _ in removed:
        try:
            entry = await workers.in_thread(directory.quarantine_partitions, name, indexes, doubt)
            log_quarantined(directory, entry)
        except StorageError as e:
            log.error("topic_not_removed", topic=name, directory=directory.path, error=str(e))
    return None
