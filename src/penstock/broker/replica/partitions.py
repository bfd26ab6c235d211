"""The partitions that this broker hosts, and the data directories they live in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.checkpoints import Checkpoints
from penstock.broker.replica.cordoned_directories import places
from penstock.broker.replica.data_directories import (
    DataDirectories,
    check_metadata_folder,
    close_cleanly,
    open_directories,
)
from penstock.broker.replica.flusher import Flusher, FlushPolicy
from penstock.broker.replica.links import PartitionUsers
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import PartitionTable, Slot
from penstock.broker.replica.refused_partitions import RefusedPartition, RefusedPartitions
from penstock.broker.replica.stored_partitions import (
    StoredPartitions,
    WantedLog,
    create_partitions,
    load_logs,
    log_damaged,
    log_findings,
    log_quarantined,
    log_settled,
    place_logs,
    set_aside,
)
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.config import BrokerConfig, topic_values
from penstock.model.config.settings import read
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import METADATA_TOPIC, TopicId, TopicPartition
from penstock.model.steps import slices
from penstock.ports import World
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, PartitionRemoval, StoredPartition
from penstock.storage.holes import describe_holes, holes
from penstock.storage.log import Log
from penstock.storage.manifest import NO_REGISTRATION, Registration
from penstock.storage.moved_folders import settle
from penstock.storage.removal import Removal, Removals

__all__ = ["CheckMetadata", "Partitions"]

log = get_logger("partitions")
#: partitions to host, or to remove, before other tasks get a turn
_SLICE: Final = 64
#: partitions whose folders are created together; each time waits for the disk, once for each topic
_CREATED: Final = 1000
#: checks the metadata without changing a file; returns the function that opens its log in a data directory
CheckMetadata: TypeAlias = Callable[[], Callable[[DataDirectory], Log]]


class Partitions(PartitionTable):
    """All hosted partitions. `open` returns the metadata log, which its caller owns.

    Why it has more than 25 methods: it is the life cycle of a partition, from `add` or `load` to `remove` or
    `close`, and each step moves the partition between the table, its flusher and its directory.
    """

    def __init__(
        self, config: BrokerConfig, world: World, check_metadata: CheckMetadata, users: PartitionUsers
    ) -> None:
        """`users` are the parts of the broker that are built on its partitions."""
        super().__init__(users.heartbeat_due)
        self._users = users
        self._config = config
        self._files = world.files
        self._clock = world.clock
        self._workers = world.workers
        self._rng = world.rng
        self._check_metadata = check_metadata
        self._flushers: dict[DataDirectory, Flusher] = {}
        self._counts: dict[DataDirectory, int] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        self._refused = RefusedPartitions()
        self.data = DataDirectories()
        self.checkpoints = Checkpoints(world.workers)
        #: the registration that ended with the last clean shutdown
        self.previous_registration = NO_REGISTRATION
        self._image = ClusterImage()

    @property
    def directories(self) -> Sequence[DataDirectory]:
        return self.data.opened

    def flushers(self) -> Iterator[Flusher]:
        """The flusher of each data directory."""
        return iter(self._flushers.values())

    def close_files(self) -> None:
        """Close the segment files that can be opened again: the process is short of descriptors."""
        for directory in self._flushers:
            directory.cache.close_files()
        for partition in self:
            partition.log.close_file()

    def in_directory(self, directory: DataDirectory) -> Iterator[Partition]:
        return (partition for partition in self if partition.directory is directory)

    def open(self, cluster_id: str | None = None) -> Log:
        """Open the data directories; returns the metadata log, which lives in one of them.

        New ones become the cluster's with `cluster_id`, or that of a new cluster.
        """
        # Before any manifest is consumed: a broker that refuses to start leaves everything as it was.
        check_metadata_folder(self._files, self._config.data_dirs)
        open_metadata_log = self._check_metadata()
        open_directories(self._config, self._files, self._clock, self._rng, cluster_id, into=self.data)
        for directory in self.data.opened:
            self._counts[directory] = 0
            self.checkpoints.add(directory)
            self._flushers[directory] = Flusher(
                directory,
                cast(FlushPolicy, self._config.penstock_flush),
                self._config.penstock_flush_interval_ms / 1000,
                self._workers,
            )
        self.previous_registration = self.data.previous_registration
        home = self.data.metadata_home()
        opened = open_metadata_log(home)
        log_damaged(opened.recovery.damaged_files)
        unclean = home.shutdown.unclean.pop(TopicPartition(METADATA_TOPIC, 0), None)
        if unclean is not None:
            log.error("metadata_log_unclean", path=opened.path, reason=unclean)
        return opened

    async def load(self, image: ClusterImage) -> None:
        """Open every partition that the image has here, and set aside what it does not have."""
        self._image = image
        assigned = {topic.name: self._assigned(topic) for topic in image.topics.values()}
        stored = StoredPartitions(self.directories, image, assigned)
        log_settled(await self._workers.in_thread(settle, self._files, self.directories))
        await self._workers.in_thread(stored.sort)
        configs = {name: self._log_config(image.topic_configs(name)) for name in image.topics}
        found = {
            directory: [WantedLog(image.topics[name], index, configs[name]) for name, index in partitions]
            for directory, partitions in stored.found.items()
        }
        threads = self._config.num_recovery_threads_per_data_dir
        await asyncio.gather(
            *(
                self._host(directory, wanted[nth::threads])
                for directory, wanted in found.items()
                for nth in range(threads)
            )
        )
        for name, indexes in stored.missing.items():
            if indexes:
                await self._load_missing(image.topics[name], list(indexes))

    def _assigned(self, topic: TopicImage) -> dict[int, None]:
        """The indexes of the topic's replicas on this broker; all others are known to be elsewhere."""
        node = self._config.node_id
        here: dict[int, None] = {}
        for index, partition in topic.partitions.items():
            if node in partition.replicas:
                here[index] = None
            else:
                self.slots(topic)[index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return here

    async def _load_missing(self, topic: TopicImage, indexes: Sequence[int]) -> None:
        """Create assigned partitions that no data directory has, unless a data directory is missing.

        A replica in the ISR or ELR is reported to the controller, so that its empty log never leads. The
        others are new.
        """
        log.warning("partitions_missing", topic=topic.name, partitions=indexes)
        slots = self.slots(topic)
        for index in indexes:
            if self._config.node_id in topic.partitions[index].counted_on:
                self.mark_unclean(topic.id, index, "the data directories have no log of this replica")
        if self.data.lost:
            slots.update(dict.fromkeys(indexes, ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            await self.add({topic.id: indexes})

    async def add(self, added: Mapping[TopicId, Sequence[int]]) -> None:
        """Host new partitions, each in the directory with the fewest that is not cordoned."""
        for wanted in slices(self._wanted(added), _CREATED):
            for directory, placed in place_logs(
                places(self._config, self._counts), wanted, self.preferred
            ).items():
                await self._make(directory, placed)

    def _wanted(self, added: Mapping[TopicId, Sequence[int]]) -> Iterator[WantedLog]:
        for topic_id, indexes in added.items():
            topic = self._image.topics_by_id[topic_id]
            config = self._log_config(self._image.topic_configs(topic.name))
            for index in indexes:
                yield WantedLog(topic, index, config)

    async def release(self, topic: TopicImage, index: int) -> None:
        """Stop hosting a partition, if it was hosted: its replicas are on other brokers."""
        slot = self.slots(topic).get(index)
        self.slots(topic)[index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        directory = self._let_go(topic.name, index, slot)
        if directory is not None:
            removal = directory.remove_partition(topic.name, index)
            await self._set_aside(directory, [(topic.name, [index], removal)])

    async def quarantine(self, topic: TopicImage, index: int, reason: str) -> None:
        """Set the log of a hosted partition aside and host an empty one in its place.

        Runs between changes of the metadata, as `add` and `release` do. The new partition is handed to
        its users, as every other is.
        """
        directory = self.take_out(topic, index)
        if directory is None:
            return
        self.slots(topic)[index] = ErrorCode.KAFKA_STORAGE_ERROR
        directory.let_go(topic.name, index)
        try:
            entry = await self._workers.in_thread(directory.quarantine_partition, topic.name, index, reason)
        except StorageError as e:
            self._refuse(topic, index, directory, e, made=True)
            return
        log_quarantined(directory, entry)
        config = self._log_config(self._image.topic_configs(topic.name))
        await self._make(directory, [WantedLog(topic, index, config)])

    def take_out(self, topic: TopicImage, index: int) -> DataDirectory | None:
        """Stop serving a partition; returns its directory, if it has one. `put_in` serves it again."""
        slots = self.slots(topic)
        directory = self._let_go(topic.name, index, slots.get(index))
        slots[index] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return directory

    async def put_in(self, topic: TopicImage, index: int, directory: DataDirectory) -> None:
        """Serve a partition whose folder is in `directory`."""
        config = self._log_config(self._image.topic_configs(topic.name))
        await self._host(directory, [WantedLog(topic, index, config)])

    @property
    def any_refused(self) -> bool:
        return bool(self._refused)

    async def reopen(self) -> None:
        """Try again with partitions that their directories had no room for, or could not open."""
        for topic, index, directory, made in self._refused.take():
            if self.knows(topic.id):
                config = self._log_config(self._image.topic_configs(topic.name))
                host = self._host if made else self._make
                await host(directory, [WantedLog(topic, index, config)])

    async def _make(self, directory: DataDirectory, wanted: Sequence[WantedLog]) -> None:
        """Create the folders of new partitions, and host them."""
        stored = [StoredPartition(topic.name, index, topic.id) for topic, index, _ in wanted]
        try:
            if directory.forget(stored):
                await self.checkpoints.write(directory)
            await create_partitions(self._workers, directory, stored)
        except StorageError as e:
            for topic, index, _ in wanted:
                self._refuse(topic, index, directory, e, made=False)
        else:
            await self._host(directory, wanted)

    async def remove(self, topic_ids: Iterable[TopicId]) -> list[str]:
        """Stop hosting topics; returns their names. Their files are deleted in the background."""
        names = []
        removals: dict[DataDirectory, list[tuple[str, list[int], PartitionRemoval]]] = {}
        let_go = 0
        for topic_id in topic_ids:
            name, slots = self.drop(topic_id)
            names.append(name)
            held: dict[DataDirectory, list[int]] = {}
            for index, slot in slots.items():
                let_go += 1
                if let_go % _SLICE == 0:
                    await asyncio.sleep(0)
                directory = self._let_go(name, index, slot)
                if directory is not None:
                    directory.let_go(name, index)
                    held.setdefault(directory, []).append(index)
            for directory, indexes in held.items():
                removals.setdefault(directory, []).append((name, indexes, directory.topic_removal(name)))
        for directory, removed in removals.items():
            await self._set_aside(directory, removed)
        return names

    def _let_go(self, name: str, index: int, slot: Slot | None) -> DataDirectory | None:
        """Stop serving a partition; returns its directory, if it has one."""
        if isinstance(slot, Partition):
            slot.retire()
            self._counts[slot.directory] -= 1
            return slot.directory
        return self._refused.discard(name, index)

    async def _set_aside(
        self, directory: DataDirectory, removed: Sequence[tuple[str, list[int], PartitionRemoval]]
    ) -> None:
        """Move the folders of partitions away. Their logs are deleted later, or quarantined if in doubt."""
        removal = await set_aside(self._workers, directory, removed, self._users.metadata_doubt())
        if removal is not None:
            self.delete_later(removal, self._flushers[directory])

    async def reconfigure(self, names: Iterable[str]) -> None:
        """Apply the changed configs of topics."""
        nth = 0
        for name in names:
            config = self._log_config(self._image.topic_configs(name))
            # At least one step for each topic: to read its configs takes as long as some partitions.
            for slot in [*self.of_topic(name).values(), None]:
                if isinstance(slot, Partition):
                    slot.reconfigure(config)
                nth += 1
                if nth % _SLICE == 0:
                    await asyncio.sleep(0)

    async def close(self, registration: Registration) -> None:
        """Sync all logs and write manifests with the `registration` that ends, as far as the disks allow."""
        for partition in self:
            if partition.pending is not None:
                await asyncio.gather(*partition.pending.tasks, return_exceptions=True)
        await asyncio.gather(*self._deletions, return_exceptions=True)
        await asyncio.gather(*(self._close(directory, registration) for directory in self._flushers))

    async def _close(self, directory: DataDirectory, registration: Registration) -> None:
        await self._flushers[directory].stop()
        await close_cleanly(self._workers, directory, registration, self._config.background_threads)

    def abandon(self) -> None:
        """Close the directories without a manifest: the next start recovers every log that was open."""
        for flusher in self._flushers.values():
            flusher.abandon()
        for directory in self.data.opened:
            directory.close(clean=False)

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        return read(LogConfig, topic_values(overrides, self._config))

    def _refuse(
        self, topic: TopicImage, index: int, directory: DataDirectory, error: StorageError, *, made: bool
    ) -> None:
        """Mark a partition as offline and retry later; it must not be created empty in another directory."""
        self.slots(topic)[index] = ErrorCode.KAFKA_STORAGE_ERROR
        new = self._refused.add(RefusedPartition(topic, index, directory, made), error)
        if new and directory.health.is_well:  # the reason is the partition's own: others have to lead
            self.mark_unclean(topic.id, index, str(error))

    async def _host(self, directory: DataDirectory, wanted: Sequence[WantedLog]) -> None:
        """Open the logs of partitions whose folders exist, and serve them."""
        if not wanted:
            return
        loaded = await self._workers.in_thread(load_logs, directory, wanted, self._clock, self._rng)
        for nth, ((topic, index, _), opened) in enumerate(zip(wanted, loaded, strict=True), 1):
            if nth % _SLICE == 0:
                await asyncio.sleep(0)
            if isinstance(opened, StorageError):
                self._refuse(topic, index, directory, opened, made=True)
                continue
            directory.adopt(topic.name, index, opened)
            self._refused.discard(topic.name, index)
            log_findings(topic.name, index, opened)
            opened.trust_clock(self.clock_trusted)
            opened.defer_snapshots(self._flushers[directory].snapshots.add)
            self._counts[directory] += 1
            partition = Partition(
                topic.name,
                topic.id,
                index,
                opened,
                directory,
                self._flushers[directory],
                self.acknowledgements(topic),
                self.traffic.of_topic(topic.id, topic.name),
            )
            self.slots(topic)[index] = partition
            reason = directory.shutdown.unclean.pop(TopicPartition(topic.name, index), None)
            if opened.recovery.corruption and holes(opened):
                reason = describe_holes(opened)
            if reason is not None:
                self.mark_unclean(topic.id, index, reason)
            self._users.hosted(partition)

    def delete_later(self, removal: Removals | Removal, flusher: Flusher | None = None) -> None:
        """Delete removed files in a worker thread, once `flusher` does not have them open any more."""

        async def delete() -> None:
            if flusher is not None:
                # The last close of a removed file frees its memory: that must not block the event loop.
                await flusher.let_go()
            try:
                await self._workers.in_thread(removal.delete)
            except OSError as e:
                log.error("partition_files_left", error=str(e))

        task = asyncio.get_running_loop().create_task(delete())
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)
