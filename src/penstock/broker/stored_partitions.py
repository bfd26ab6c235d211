"""Decides, when a broker starts, what becomes of each partition folder on its disks.

A folder is opened if the metadata assigns its partition to this broker. Any other is a stray and goes to the
quarantine. Why: the metadata may be older than the folder, or damaged, and the folder may be the last copy.
Nothing is deleted at start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.broker.logs import get_logger
from penstock.metadata.image import ClusterImage
from penstock.model.errors import StorageError
from penstock.model.ids import METADATA_TOPIC, NO_TOPIC_ID
from penstock.storage.directory import DataDirectory
from penstock.storage.ownership import DirectoryRefused
from penstock.storage.quarantine import QuarantineEntry

__all__ = ["StoredPartitions", "log_quarantined"]

log = get_logger("partitions")
_STRAY = "the metadata does not assign it to this broker"


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
        """Fill `found` and `missing`, and quarantine the rest. Touches files."""
        for directory in self._directories:
            found = self.found[directory] = []
            strays: dict[str, list[int]] = {}
            for name, index, topic_id in directory.partitions():
                topic = self._image.topics.get(name)
                # A topic.metadata that was lost does not make the partitions strays.
                if topic is not None and topic_id in (topic.id, NO_TOPIC_ID) and self._take(name, index):
                    found.append((name, index))
                elif name != METADATA_TOPIC:
                    strays.setdefault(name, []).append(index)
            for name, indexes in strays.items():
                _quarantine_strays(directory, name, indexes)

    def _take(self, name: str, index: int) -> bool:
        """Returns true if the partition is assigned to this broker, and marks it as found."""
        if index in self.missing.get(name, ()):
            del self.missing[name][index]
            self._taken.add((name, index))
            return True
        if (name, index) in self._taken:
            raise DirectoryRefused(self._found_twice(name, index))
        return False

    def _found_twice(self, name: str, index: int) -> str:
        """The reason not to start: one of two copies is older, and nothing says which."""
        places = [d.partition_path(name, index) for d in self._directories if d.holds(name, index)]
        return f"{' and '.join(places)} are the same replica: move the older one away"


def _quarantine_strays(directory: DataDirectory, name: str, indexes: Sequence[int]) -> None:
    try:
        entry = directory.quarantine_partitions(
            name, indexes, "the metadata does not assign it to this broker"
        )
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
