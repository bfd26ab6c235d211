"""Partitions that this broker should host and cannot: a full directory, or files that do not open.

They keep their places and are tried again. Each reason is logged once.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.metadata.image import TopicImage
from penstock.model.errors import StorageError
from penstock.model.ids import TopicPartition
from penstock.storage.directory import DataDirectory

__all__ = ["RefusedPartition", "RefusedPartitions"]

log = get_logger("partitions")


class RefusedPartition(NamedTuple):
    """A partition, where it should be, and whether its folder was made."""

    topic: TopicImage
    partition: int
    directory: DataDirectory
    made: bool


class RefusedPartitions:
    """By name and index."""

    def __init__(self) -> None:
        self._refused: dict[TopicPartition, RefusedPartition] = {}
        #: why each is refused, as it was logged
        self._reasons: dict[TopicPartition, str] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, refused: RefusedPartition, error: StorageError) -> bool:
        """Keep a partition for later; returns true if the reason is a new one."""
        key = TopicPartition(refused.topic.name, refused.partition)
        self._refused[key] = refused
        if self._reasons.get(key) == str(error):
            return False
        self._reasons[key] = str(error)
        log.error("partition_offline", topic=key.topic, partition=key.partition, error=str(error))
        return True

    def discard(self, name: str, index: int) -> DataDirectory | None:
        """Forget a partition; returns the directory that it should be in, if it was refused."""
        key = TopicPartition(name, index)
        self._reasons.pop(key, None)
        refused = self._refused.pop(key, None)
        return None if refused is None else refused.directory

    def take(self) -> list[RefusedPartition]:
        """The partitions to try again now, which are not kept any longer: their directories are well."""
        ready = {key: refused for key, refused in self._refused.items() if refused.directory.health.is_well}
        for key in ready:
            del self._refused[key]
        return list(ready.values())
