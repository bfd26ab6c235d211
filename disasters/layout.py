"""Where each kind of broker keeps its files, and one broker's data directories (`Disk`)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

__all__ = ["KAFKA", "METADATA", "OFFSETS", "PENSTOCK", "Disk", "Layout"]

METADATA: Final = "__cluster_metadata"
OFFSETS: Final = "__consumer_offsets"


class Layout(Protocol):
    """File names of one kind of broker, relative to a data directory."""

    #: marks a directory that was closed cleanly
    clean_shutdown: str
    #: names the owner of a directory
    identity: str

    def topic_root(self, data: Path) -> Path:
        """Returns the folder whose entries are topics, or partitions of topics."""

    def partition(self, data: Path, topic: str, number: int) -> Path:
        """Returns the folder of a partition, which may not exist."""

    def partitions(self, data: Path, topic: str) -> list[Path]:
        """Returns the existing folders of a topic's partitions, by number."""


class _PenstockLayout:
    clean_shutdown = "clean-shutdown"
    identity = "meta.json"

    def topic_root(self, data: Path) -> Path:
        return data / "topics"

    def partition(self, data: Path, topic: str, number: int) -> Path:
        return data / "topics" / topic / f"partition-{number}"

    def partitions(self, data: Path, topic: str) -> list[Path]:
        folders = (data / "topics" / topic).glob("partition-*")
        return sorted(folders, key=_number)


class _KafkaLayout:
    clean_shutdown = ".kafka_cleanshutdown"
    identity = "meta.properties"

    def topic_root(self, data: Path) -> Path:
        return data

    def partition(self, data: Path, topic: str, number: int) -> Path:
        return data / f"{topic}-{number}"

    def partitions(self, data: Path, topic: str) -> list[Path]:
        folders = [f for f in data.glob(f"{topic}-*") if f.name.rpartition("-")[2].isdigit()]
        return sorted((f for f in folders if f.name.rpartition("-")[0] == topic), key=_number)


PENSTOCK: Final[Layout] = _PenstockLayout()
KAFKA: Final[Layout] = _KafkaLayout()


def _number(partition: Path) -> int:
    return int(partition.name.rpartition("-")[2])


@dataclass(frozen=True, slots=True)
class Disk:
    """The data directories of one broker; to be changed only while the broker is stopped."""

    layout: Layout
    directories: tuple[Path, ...]

    def partition(self, topic: str, number: int) -> Path:
        """Returns the partition's folder in the directory that has it, else where the first would have it."""
        places = [self.layout.partition(data, topic, number) for data in self.directories]
        return next((place for place in places if place.is_dir()), places[0])

    def partitions(self, topic: str) -> list[Path]:
        return [p for data in self.directories for p in self.layout.partitions(data, topic)]

    def metadata_log(self) -> Path:
        return self.partition(METADATA, 0)

    def files(self, name: str) -> list[Path]:
        """Returns the file of that name in each directory, where it exists."""
        return [data / name for data in self.directories if (data / name).exists()]

    def remove_topic(self, topic: str) -> None:
        """Removes a topic's folders, as `rm -r` of the topic would."""
        folders = self.partitions(topic)
        assert folders, f"no replica of {topic} in {self.directories}"
        for folder in folders:
            shutil.rmtree(folder)
            parent = folder.parent
            if parent not in self.directories and not list(parent.glob("partition-*")):
                shutil.rmtree(parent)

    def copy_to(self, target: Path) -> None:
        """Copies every directory, as a backup or a disk snapshot would."""
        for number, data in enumerate(self.directories):
            shutil.copytree(data, target / str(number), symlinks=True)

    def restore(self, source: Path, number: int | None = None) -> None:
        """Puts a copy back in place of every directory, or of one of them."""
        for index, data in enumerate(self.directories):
            if number is None or index == number:
                shutil.rmtree(data, ignore_errors=True)
                shutil.copytree(source / str(index), data, symlinks=True)

    def restore_topic(self, source: Path, topic: str) -> None:
        """Replaces a topic's partitions by their copies; everything else stays."""
        for number, data in enumerate(self.directories):
            for copy in self.layout.partitions(source / str(number), topic):
                place = data / copy.relative_to(source / str(number))
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(copy, place, symlinks=True)
