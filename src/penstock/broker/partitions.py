"""The partitions that this broker hosts, and the data directories they live in.

`find` is on the path of every request: two dictionary look-ups. A partition that should be here but cannot be
opened keeps its place as the error code that its clients get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, cast

from penstock.broker.flusher import Flusher, FlushPolicy
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.config import BrokerConfig, topic_values
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicId, TopicPartition
from penstock.ports import Clock, Files, Rng, Workers
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.log import Log
from penstock.storage.segments import SegmentCache

__all__ = ["Partitions"]

Slot: TypeAlias = Partition | ErrorCode
log = get_logger("partitions")


class Partitions:
    """Everything that is stored here except the metadata log, which `open` hands to its owner."""

    def __init__(self, config: BrokerConfig, files: Files, clock: Clock, workers: Workers) -> None:
        self._config = config
        self._clock = clock
        self._workers = workers
        self._cache = SegmentCache()
        self._by_name: dict[str, dict[int, Slot]] = {}
        self._by_id: dict[TopicId, dict[int, Slot]] = {}
        self._names: dict[TopicId, str] = {}
        self._directories: dict[DataDirectory, Flusher] = {}
        for path in config.data_dirs:
            directory = DataDirectory(files, path)
            self._directories[directory] = Flusher(
                path,
                directory.health,
                cast(FlushPolicy, config.penstock_flush),
                config.penstock_flush_interval_ms / 1000,
                workers,
            )

    # -- requests -------------------------------------------------------------------------------------

    def find(self, topic: str | TopicId, index: int) -> Slot:
        """The partition, or why there is none."""
        if isinstance(topic, str):
            slots = self._by_name.get(topic)
        else:
            slots = self._by_id.get(topic)
            if slots is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        if slots is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return slots.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def __iter__(self) -> Iterator[Partition]:
        for slots in self._by_name.values():
            for slot in slots.values():
                if isinstance(slot, Partition):
                    yield slot

    def directories(self) -> Iterator[tuple[DataDirectory, Flusher]]:
        yield from self._directories.items()

    def in_directory(self, flusher: Flusher) -> Iterator[Partition]:
        return (partition for partition in self if partition.flusher is flusher)
