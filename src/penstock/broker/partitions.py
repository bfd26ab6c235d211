"""The partitions that this broker hosts, and the data directories they live in.

`find` is on the path of every request: two dictionary look-ups. A partition that should be here but cannot be
opened keeps its place as the error code that its clients get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from penstock.broker.flusher import Flusher, FlushPolicy
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.config import BrokerConfig, topic_values
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_TOPIC_ID, TopicId, TopicPartition
from penstock.ports import Clock, Files, Rng, Workers
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, PartitionRemoval, StoredPartition
from penstock.storage.log import Log
from penstock.storage.removal import Removal

__all__ = ["Partitions"]

Slot: TypeAlias = Partition | ErrorCode
log = get_logger("partitions")


class Partitions:
    """Everything that is stored here except the metadata log, which `open` hands to its owner."""

    def __init__(self, config: BrokerConfig, files: Files, clock: Clock, workers: Workers, rng: Rng) -> None:
        self._config = config
        self._files = files
        self._clock = clock
        self._workers = workers
        self._rng = rng
        self._by_name: dict[str, dict[int, Slot]] = {}
        self._by_id: dict[TopicId, dict[int, Slot]] = {}
        self._names: dict[TopicId, str] = {}
        self._flushers: dict[DataDirectory, Flusher] = {}
        self._counts: dict[DataDirectory, int] = {}
        self._checkpointing: dict[DataDirectory, asyncio.Lock] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        #: partitions that are not here only because of their directories, and those
        self._refused: dict[TopicPartition, tuple[TopicImage, DataDirectory]] = {}
        self._image = ClusterImage()

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

    @property
    def directories(self) -> Sequence[DataDirectory]:
        return tuple(self._flushers)

    def in_directory(self, directory: DataDirectory) -> Iterator[Partition]:
        return (partition for partition in self if partition.directory is directory)

    # -- coming and going -----------------------------------------------------------------------------

    def open(self, node_id: int) -> Log:
        """Open the data directories; returns the metadata log, which lives in the first of them."""
        cluster_id: str | None = None
        for path in self._config.data_dirs:
            directory = DataDirectory.open(
                self._files, path, cluster_id=cluster_id, node_id=node_id, rng=self._rng
            )
            cluster_id = directory.cluster_id
            self._counts[directory] = 0
            self._checkpointing[directory] = asyncio.Lock()
            self._flushers[directory] = Flusher(
                path,
                directory.health,
                cast(FlushPolicy, self._config.penstock_flush),
                self._config.penstock_flush_interval_ms / 1000,
                self._workers,
            )
        first = self.directories[0]
        first.create_partitions([StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)])
        return first.open_log(METADATA_TOPIC, 0, LogConfig(retention_ms=-1), self._clock, self._rng)

    def load(self, image: ClusterImage) -> None:
        """Open every partition that the image has, and remove what it no longer has."""
        self._image = image
        found: dict[TopicPartition, DataDirectory] = {}
        for directory in self._flushers:
            for name, index, topic_id in directory.partitions():
                topic = image.topics.get(name)
                # One that has lost its topic's id is taken for the topic's: what was deleted has been moved.
                if topic is not None and topic_id in (topic.id, NO_TOPIC_ID) and index in topic.partitions:
                    found[TopicPartition(name, index)] = directory
                elif name != METADATA_TOPIC:
                    log.info("stray_partition_removed", topic=name, partition=index, directory=directory.path)
                    directory.remove_partition(name, index).delete()
        for topic in image.topics.values():
            config = self._log_config(image.topic_configs(topic.name))
            missing = [i for i in topic.partitions if TopicPartition(topic.name, i) not in found]
            if missing:
                # A crash just after the topic was made, or a disk that is not mounted: say it.
                log.warning("partitions_missing", topic=topic.name, partitions=missing)
            found |= self._place(topic, missing)
            for index in topic.partitions:
                directory = found[TopicPartition(topic.name, index)]
                if index in missing:
                    stored = [StoredPartition(topic.name, index, topic.id)]
                    try:
                        if directory.forget(stored):
                            directory.checkpoint().write()
                        directory.create_partitions(stored)
                    except StorageError as e:
                        self._refuse(topic, index, directory, e)
                        continue
                self._host(topic, index, config, directory)

    async def add(self, topic: TopicImage, indexes: Sequence[int], overrides: Mapping[str, str]) -> None:
        """Start hosting new partitions, each in the directory that holds the fewest."""
        await self._make(topic, self._place(topic, indexes), overrides)

    @property
    def any_refused(self) -> bool:
        return bool(self._refused)

    async def reopen(self) -> None:
        """Try again with partitions that their directories had no room for, or could not open."""
        refused, self._refused = self._refused, {}
        for key, (topic, directory) in refused.items():
            if directory.health.offline is not None:
                self._refused[key] = (topic, directory)
            elif topic.id in self._by_id:
                await self._make(topic, {key: directory}, self._image.topic_configs(topic.name))

    async def _make(
        self,
        topic: TopicImage,
        placed: Mapping[TopicPartition, DataDirectory],
        overrides: Mapping[str, str],
    ) -> None:
        config = self._log_config(overrides)
        for directory in set(placed.values()):
            stored = [
                StoredPartition(topic.name, key.partition, topic.id)
                for key, where in placed.items()
                if where is directory
            ]
            try:
                if directory.forget(stored):
                    await self.checkpoint_directory(directory)
                await self._workers.in_thread(directory.create_partitions, stored)
            except StorageError as e:
                for _, index, _ in stored:
                    self._refuse(topic, index, directory, e)
                continue
            for _, index, _ in stored:
                self._host(topic, index, config, directory)

    def remove(self, topic_id: TopicId) -> str:
        """Stop hosting a topic, whose name was the one returned; its files go in the background."""
        slots = self._by_id.pop(topic_id, {})
        name = self._names.pop(topic_id, "")
        if self._by_name.get(name) is slots:
            del self._by_name[name]
        for slot in slots.values():
            if isinstance(slot, Partition):
                slot.retire()
                slot.flusher.forget(slot)
                self._counts[slot.directory] -= 1
                try:
                    self.delete_later(slot.directory.remove_partition(name, slot.index))
                except StorageError as e:
                    log.error("partition_not_removed", partition=slot.name, error=str(e))
        return name

    def reconfigure(self, name: str, overrides: Mapping[str, str]) -> None:
        """Take over a topic's changed configs."""
        config = self._log_config(overrides)
        for slot in self._by_name.get(name, {}).values():
            if isinstance(slot, Partition):
                slot.reconfigure(config)

    async def checkpoint(self) -> None:
        """Write down how far the logs are safe, so that recovery need not look below."""
        for directory in self._flushers:
            if directory.health.offline is None:
                try:
                    await self.checkpoint_directory(directory)
                except StorageError as e:
                    log.error("checkpoint_failed", directory=directory.path, error=str(e))

    async def checkpoint_directory(self, directory: DataDirectory) -> None:
        """As `checkpoint`, for one directory; one at a time, so that an older one never comes last."""
        async with self._checkpointing[directory]:
            checkpoint = directory.checkpoint()
            await self._workers.in_thread(checkpoint.write)
            directory.checkpointed(checkpoint)

    async def close(self) -> None:
        """Bring everything to the disk and leave the mark of a clean shutdown, where the disk allows it."""
        for partition in self:
            await asyncio.gather(*partition.pending, return_exceptions=True)
        await asyncio.gather(*self._deletions, return_exceptions=True)
        for directory, flusher in self._flushers.items():
            flusher.stop()
            try:
                await flusher.flush()
                await self._workers.in_thread(directory.close)
            except StorageError as e:
                log.error("unclean_shutdown", directory=directory.path, error=str(e))
                directory.close(clean=False)

    def abandon(self) -> None:
        """Let go of the directories; the next start has to look at everything that was opened."""
        for directory in self._flushers:
            directory.close(clean=False)

    # -- details --------------------------------------------------------------------------------------

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        values: dict[str, Any] = topic_values(overrides, self._config)
        return LogConfig(**values)

    def _place(self, topic: TopicImage, indexes: Sequence[int]) -> dict[TopicPartition, DataDirectory]:
        placed: dict[TopicPartition, DataDirectory] = {}
        counts = {d: n for d, n in self._counts.items() if d.health.offline is None} or dict(self._counts)
        for index in indexes:
            directory = min(counts, key=lambda d: counts[d])
            counts[directory] += 1
            placed[TopicPartition(topic.name, index)] = directory
        return placed

    def _slots(self, topic: TopicImage) -> dict[int, Slot]:
        slots = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = slots
        self._names[topic.id] = topic.name
        return slots

    def _refuse(self, topic: TopicImage, index: int, directory: DataDirectory, error: StorageError) -> None:
        """Keep a partition's place until its directory can hold it; it must not come up empty elsewhere."""
        log.error("partition_offline", topic=topic.name, partition=index, error=str(error))
        self._slots(topic)[index] = ErrorCode.KAFKA_STORAGE_ERROR
        self._refused[TopicPartition(topic.name, index)] = (topic, directory)

    def _host(self, topic: TopicImage, index: int, config: LogConfig, directory: DataDirectory) -> None:
        try:
            opened = directory.open_log(topic.name, index, config, self._clock, self._rng)
            if opened.end_offset > opened.recovery_point:
                # What readers may see must be on the disk before they do; later appends see to themselves.
                plan = opened.flush_plan()
                plan.sync()
                opened.flushed(plan)
        except StorageError as e:
            self._refuse(topic, index, directory, e)
            return
        if opened.recovery.corruption:
            log.error(
                "corruption_found",
                topic=topic.name,
                partition=index,
                ranges=[str(c) for c in opened.recovery.corruption],
            )
        opened.advance_high_watermark(opened.end_offset)
        epoch = topic.partitions[index].leader_epoch
        self._counts[directory] += 1
        self._slots(topic)[index] = Partition(
            topic.name, topic.id, index, opened, directory, self._flushers[directory], epoch
        )

    def delete_later(self, removal: PartitionRemoval | Removal) -> None:
        async def delete() -> None:
            try:
                await self._workers.in_thread(removal.delete)
            except OSError as e:
                log.error("partition_files_left", error=str(e))

        task = asyncio.get_running_loop().create_task(delete())
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)
