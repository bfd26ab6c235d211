"""Mounts a backup: a broker in memory whose topics are those of a cut, read from the archive on demand.

The broker is as one that was restored (`restoring`), but no batch is copied: each partition is an empty log
that ends where the cut ends, and a `RemotePartition` has everything below. Only the markers of transactions
that were open at the cut are in the log. Nothing is written to the archive. Offsets that groups commit are in
memory. A manifest is read when a client first reads its partition, so the start does not depend on the size
of the backup.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from penstock.archive.building import LogState
from penstock.archive.cuts import Cut, CutPartition, CutTopic
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveRefused
from penstock.archive.objects import read_root
from penstock.archive.restored_batches import end_markers
from penstock.archive.sweeping import cut_manifest, find_cut
from penstock.backup.mounted_groups import commit_groups
from penstock.broker.app.stages import Stages
from penstock.broker.base.encrypted_disks import archive_keys
from penstock.broker.base.logs import get_logger
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.replica.partition import Partition
from penstock.metadata.topics import NewTopic
from penstock.model.config import BrokerConfig
from penstock.model.config.keys import Copies
from penstock.model.config.topics import copied_configs
from penstock.model.errors import ApiError
from penstock.objectstore.address import parse_address, parse_options
from penstock.objectstore.encrypted_store import with_keys
from penstock.objectstore.object_store import open_store
from penstock.ports import ObjectStore
from penstock.remote.cache import ChunkFiles
from penstock.remote.loading import Loader
from penstock.remote.mounted_source import MountedSource, state_behind
from penstock.remote.partition import RemoteCache, RemotePartition
from penstock.remote.stats import RemoteStats

__all__ = ["Mount", "mount_settings", "open_mount"]

log = get_logger("mount")
#: topics that are created by one change of the metadata
_TOPICS_AT_ONCE: Final = 100
#: no background job of a mount may change its data
_SETTINGS: Final = {
    "penstock.memory": "true",
    "log.retention.check.interval.ms": str(2**62),
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
}


def mount_settings(backup: str) -> dict[str, str]:
    """The configs of a broker that serves `backup`, as ARCHIVE or ARCHIVE@TIME."""
    return {**_SETTINGS, "penstock.mount": backup}


async def open_mount(config: BrokerConfig, address: str, moment_ms: int | None) -> Mount:
    """Find the cut; ArchiveError or OSError if there is none, or the archive cannot be read."""
    store = _store_of(config, address)
    await read_root(store)
    name, cut = await find_cut(store, moment_ms)
    log.info("cut_found", cut=name, topics=len(cut.topics), groups=len(cut.groups))
    return Mount(store, cut, config.penstock_mount_cache_bytes)


def _store_of(config: BrokerConfig, address: str) -> ObjectStore:
    options = None
    if config.penstock_mount_store_config is not None:
        path = Path(config.penstock_mount_store_config)
        options = parse_options(path.read_text(encoding="utf-8"), str(path))
    return with_keys(open_store(parse_address(address), options), archive_keys(config))


class Mount:
    """A cut that a broker serves (`penstock.broker.app.mounting.Mounting`)."""

    def __init__(self, store: ObjectStore, cut: Cut, cache_bytes: int) -> None:
        self._store = store
        self.cut = cut
        self._cache_bytes = cache_bytes
        self._cache: RemoteCache | None = None

    async def attach(self, stages: Stages) -> None:
        world, config, metrics = stages.world, stages.config, stages.storage.metrics
        files = ChunkFiles(OsFiles(), tempfile.gettempdir(), f"penstock-mount-{world.rng.token(8).hex()}")
        loader = Loader(
            config.remote_log_reader_threads,
            config.remote_log_reader_max_pending_tasks,
            config.remote_fetch_max_wait_ms / 1000,
            partial(_failed, metrics.remote),
        )
        self._cache = RemoteCache(
            files, loader, world.workers, world.clock, self._cache_bytes, stats=metrics.remote
        )
        await self._create(stages)
        for topic in self.cut.topics:
            for partition in topic.partitions:
                slot = stages.storage.partitions.find(topic.topic, partition.partition)
                if not isinstance(slot, Partition):
                    raise ArchiveRefused(f"{topic.topic}-{partition.partition} has not been created")
                await self._attach(topic, partition, slot, self._cache)
        await commit_groups(stages.coordinators.groups.runtime, self.cut, stages.cluster.image.topics)

    async def close(self) -> None:
        if self._cache is not None:
            await self._cache.close()

    async def _create(self, stages: Stages) -> None:
        """Create all topics, a hundred with each change of the metadata."""
        wanted = [_new_topic(topic) for topic in self.cut.topics]
        for start in range(0, len(wanted), _TOPICS_AT_ONCE):
            some = wanted[start : start + _TOPICS_AT_ONCE]
            made = await stages.cluster.topic_creation.decide_all(some)
            for topic, result in zip(some, made, strict=True):
                if isinstance(result, ApiError):
                    raise ArchiveRefused(f"topic {topic.name} cannot be mounted: {result}")
        if self.cut.groups:
            await stages.coordinators.groups.runtime.topic.ensure()
        await stages.cluster.node.loader.wait_for(stages.storage.metadata_log.end_offset)

    async def _attach(
        self, topic: CutTopic, partition: CutPartition, slot: Partition, cache: RemoteCache
    ) -> None:
        store = self._store

        async def read_manifest() -> Manifest:
            return await cut_manifest(store, topic, partition)

        source = MountedSource(store, read_manifest, cache.workers, partition, slot.leader_epoch)
        slot.log.reset_to(partition.end_offset)
        if partition.open:
            # Their markers give the log the entries of aborted transactions.
            state = await _state_at_end(store, await read_manifest())
            slot.log.producers.load(list(state.producers.states.values()), partition.end_offset)
        slot.log.attach_remote(RemotePartition(slot.name, source, cache), partition.log_start_offset)
        for marker in end_markers(partition, slot.leader_epoch, self.cut.time_ms):
            slot.append_replicated(memoryview(bytearray(marker)), slot.leader_epoch)
        slot.follow_watermarks(slot.log.end_offset, 0, 0)


async def _state_at_end(store: ObjectStore, manifest: Manifest) -> LogState:
    """Producers and open transactions at the end of a manifest."""
    if not manifest.segments:
        return LogState(manifest.next_offset)
    return await state_behind(store, manifest, manifest.segments[-1])


def _new_topic(topic: CutTopic) -> NewTopic:
    configs = copied_configs(topic.configs, Copies.MOUNT)
    return NewTopic(topic.topic, len(topic.partitions), 1, {}, configs)


def _failed(stats: RemoteStats, error: Exception) -> None:
    stats.errors += 1
    log.warning("archive_read_failed", error=str(error))
