"""The partitions that this broker hosts, and the data directories they live in.

`find` is on the path of every request: two dictionary look-ups. A partition that should be here but cannot be
opened keeps its place as the error code that its clients get.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias, cast

from penstock.broker.flusher import Flusher, FlushPolicy, sync_all
from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.config import BrokerConfig, topic_values
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_TOPIC_ID, TopicId, TopicPartition
from penstock.ports import Clock, Files, Rng, Workers
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, PartitionRemoval, StoredPartition
from penstock.storage.flush import FlushPlan
from penstock.storage.log import Log
from penstock.storage.ownership import DirectoryRefused, introduce, survey
from penstock.storage.removal import Removal

__all__ = ["Partitions"]

Slot: TypeAlias = Partition | ErrorCode
log = get_logger("partitions")
#: partitions to take in before others get a turn
_SLICE: Final = 64


class _Wanted(NamedTuple):
    """A partition to host."""

    topic: TopicImage
    partition: int
    config: LogConfig


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
        #: partitions that are not here only because of their directories, those, and whether they are made
        self._refused: dict[TopicPartition, tuple[TopicImage, DataDirectory, bool]] = {}
        #: paths at which a data directory should be and is not
        self.missing_directories: list[str] = []
        #: ids of data directories that are gone, with who knows what in them
        self._lost: frozenset[str] = frozenset()
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

    def open(self, node_id: int, cluster_id: str | None = None) -> Log:
        """Open the data directories; returns the metadata log, which lives in one of them.

        New ones become the cluster's with `cluster_id`, or that of a new cluster.
        """
        paths = self._config.data_dirs
        siblings = survey(self._files, paths)
        self._lost = siblings.lost
        cluster_id = siblings.cluster_id or cluster_id
        for path in paths:
            if siblings.lost and path in siblings.unowned:
                # Most likely a disk that is not mounted: nothing may be written in its place.
                log.error("data_directory_missing", directory=path, directory_ids=sorted(siblings.lost))
                self.missing_directories.append(path)
                continue
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
        introduce(self._files, [directory.path for directory in self._flushers])
        home = self._metadata_home()
        return home.open_log(METADATA_TOPIC, 0, LogConfig(retention_ms=-1), self._clock, self._rng)

    def _metadata_home(self) -> DataDirectory:
        """The directory with the metadata log, which is made if this broker is new."""
        for directory in self._flushers:
            if directory.holds(METADATA_TOPIC, 0):
                return directory
        if self._lost or any(directory.partitions() for directory in self._flushers):
            raise DirectoryRefused(
                "none of the data directories has this broker's metadata: mount the one that has, or add it "
                "to log.dirs"
            )
        first = self.directories[0]
        first.create_partitions([StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)])
        return first

    async def load(self, image: ClusterImage) -> None:
        """Open every partition that the image has, and remove what it no longer has."""
        self._image = image
        found: dict[DataDirectory, list[_Wanted]] = {}
        missing = {topic.name: dict.fromkeys(topic.partitions) for topic in image.topics.values()}
        configs = {name: self._log_config(image.topic_configs(name)) for name in image.topics}
        for directory in self._flushers:
            kept = found[directory] = []
            strays: dict[str, list[int]] = {}
            for name, index, topic_id in directory.partitions():
                topic = image.topics.get(name)
                # One that has lost its topic's id is taken for the topic's: what was deleted has been moved.
                if topic is not None and topic_id in (topic.id, NO_TOPIC_ID) and index in topic.partitions:
                    kept.append(_Wanted(topic, index, configs[name]))
                    missing[name].pop(index, None)
                elif name != METADATA_TOPIC:
                    strays.setdefault(name, []).append(index)
            self._remove_strays(directory, strays, {wanted.topic.name for wanted in kept})
        threads = self._config.num_recovery_threads_per_data_dir
        await asyncio.gather(
            *(
                self._host(directory, wanted[nth::threads])
                for directory, wanted in found.items()
                for nth in range(threads)
            )
        )
        for name, indexes in missing.items():
            if indexes:
                await self._load_missing(image.topics[name], list(indexes))

    def _remove_strays(
        self, directory: DataDirectory, strays: Mapping[str, list[int]], kept: Set[str]
    ) -> None:
        """Remove partitions, by topic, that the image does not have; of the topics `kept` it has others."""
        for name, indexes in strays.items():
            log.info("stray_partitions_removed", topic=name, partitions=indexes, directory=directory.path)
            if name in kept:
                removals = [directory.remove_partition(name, index) for index in indexes]
            else:
                removals = [directory.remove_topic(name, indexes)]
            for removal in removals:
                removal.set_aside()
                self.delete_later(removal)

    async def _load_missing(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Partitions that should be here: made anew only if they cannot be where we do not see them."""
        log.warning("partitions_missing", topic=topic.name, partitions=indexes)
        if self._lost:
            slots = self._slots(topic)
            slots.update(dict.fromkeys(indexes, ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            # A crash just after the topic was made.
            await self.add(topic, indexes, self._image.topic_configs(topic.name))

    async def add(self, topic: TopicImage, indexes: Sequence[int], overrides: Mapping[str, str]) -> None:
        """Start hosting new partitions, each in the directory that holds the fewest."""
        config = self._log_config(overrides)
        for directory, placed in self._place(indexes).items():
            await self._make(directory, [_Wanted(topic, index, config) for index in placed])

    @property
    def any_refused(self) -> bool:
        return bool(self._refused)

    async def reopen(self) -> None:
        """Try again with partitions that their directories had no room for, or could not open."""
        refused, self._refused = self._refused, {}
        for key, (topic, directory, made) in refused.items():
            if directory.health.offline is not None:
                self._refused[key] = (topic, directory, made)
            elif topic.id in self._by_id:
                config = self._log_config(self._image.topic_configs(topic.name))
                host = self._host if made else self._make
                await host(directory, [_Wanted(topic, key.partition, config)])

    async def _make(self, directory: DataDirectory, wanted: Sequence[_Wanted]) -> None:
        """Have places for new partitions, and host them."""
        stored = [StoredPartition(topic.name, index, topic.id) for topic, index, _ in wanted]
        try:
            if directory.forget(stored):
                await self.checkpoint_directory(directory)
            await self._workers.in_thread(directory.create_partitions, stored)
        except StorageError as e:
            for topic, index, _ in wanted:
                self._refuse(topic, index, directory, e, made=False)
        else:
            await self._host(directory, wanted)

    async def remove(self, topic_id: TopicId) -> str:
        """Stop hosting a topic, whose name was the one returned; its files go in the background."""
        slots = self._by_id.pop(topic_id, {})
        name = self._names.pop(topic_id, "")
        if self._by_name.get(name) is slots:
            del self._by_name[name]
        held: dict[DataDirectory, list[int]] = {}
        for index, slot in slots.items():
            if isinstance(slot, Partition):
                slot.retire()
                slot.flusher.forget(slot)
                self._counts[slot.directory] -= 1
                held.setdefault(slot.directory, []).append(index)
            elif (refused := self._refused.pop(TopicPartition(name, index), None)) is not None:
                held.setdefault(refused[1], []).append(index)
        for directory, indexes in held.items():
            removal = directory.remove_topic(name, indexes)
            try:
                await self._workers.in_thread(removal.set_aside)
            except StorageError as e:
                log.error("topic_not_removed", topic=name, directory=directory.path, error=str(e))
            else:
                self.delete_later(removal)
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
        await asyncio.gather(*map(self._close_directory, self._flushers))

    async def _close_directory(self, directory: DataDirectory) -> None:
        await self._flushers[directory].stop()
        try:
            sealed = await self._workers.in_thread(directory.seal)
            await self._sync([plan for _, plan in sealed])
            for opened, plan in sealed:
                opened.flushed(plan)
            await self._workers.in_thread(directory.close)
        except StorageError as e:
            log.error("unclean_shutdown", directory=directory.path, error=str(e))
            directory.close(clean=False)

    async def _sync(self, plans: Sequence[FlushPlan]) -> None:
        """Carry out many plans at once: a disk syncs ten files in hardly more time than one."""
        threads = self._config.background_threads
        parts = [plans[first::threads] for first in range(min(threads, len(plans)))]
        done = [self._workers.in_thread(sync_all, part) for part in parts]
        for outcome in await asyncio.gather(*done, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def abandon(self) -> None:
        """Let go of the directories; the next start has to look at everything that was opened."""
        for directory in self._flushers:
            directory.close(clean=False)

    # -- details --------------------------------------------------------------------------------------

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        values: dict[str, Any] = topic_values(overrides, self._config)
        return LogConfig(**values)

    def _place(self, indexes: Sequence[int]) -> dict[DataDirectory, list[int]]:
        placed: dict[DataDirectory, list[int]] = {}
        counts = {d: n for d, n in self._counts.items() if d.health.offline is None} or dict(self._counts)
        for index in indexes:
            directory = min(counts, key=lambda d: counts[d])
            counts[directory] += 1
            placed.setdefault(directory, []).append(index)
        return placed

    def _slots(self, topic: TopicImage) -> dict[int, Slot]:
        slots = self._by_name.setdefault(topic.name, {})
        self._by_id[topic.id] = slots
        self._names[topic.id] = topic.name
        return slots

    def _refuse(
        self, topic: TopicImage, index: int, directory: DataDirectory, error: StorageError, *, made: bool
    ) -> None:
        """Keep a partition's place until its directory can hold it; it must not come up empty elsewhere."""
        log.error("partition_offline", topic=topic.name, partition=index, error=str(error))
        self._slots(topic)[index] = ErrorCode.KAFKA_STORAGE_ERROR
        self._refused[TopicPartition(topic.name, index)] = (topic, directory, made)

    async def _host(self, directory: DataDirectory, wanted: Sequence[_Wanted]) -> None:
        """Open the logs of partitions that have their places, and serve them."""
        if not wanted:
            return
        loaded = await self._workers.in_thread(_load_logs, directory, wanted, self._clock, self._rng)
        for nth, ((topic, index, _), opened) in enumerate(zip(wanted, loaded, strict=True), 1):
            if nth % _SLICE == 0:
                await asyncio.sleep(0)
            if isinstance(opened, StorageError):
                self._refuse(topic, index, directory, opened, made=True)
                continue
            directory.adopt(topic.name, index, opened)
            if opened.recovery.corruption:
                log.error(
                    "corruption_found",
                    topic=topic.name,
                    partition=index,
                    ranges=[str(c) for c in opened.recovery.corruption],
                )
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


def _load_logs(
    directory: DataDirectory, wanted: Sequence[_Wanted], clock: Clock, rng: Rng
) -> list[Log | StorageError]:
    """Open logs, each or the reason why not; in a worker thread, because all of it is disk work."""
    loaded: list[Log | StorageError] = []
    for topic, index, config in wanted:
        try:
            opened = directory.load_log(topic.name, index, config, clock, rng)
            if opened.end_offset > opened.recovery_point:
                # What readers may see must be on the disk before they do; later appends see to themselves.
                plan = opened.flush_plan()
                plan.sync()
                opened.flushed(plan)
        except StorageError as e:
            loaded.append(e)
        else:
            opened.advance_high_watermark(opened.end_offset)
            loaded.append(opened)
    return loaded
