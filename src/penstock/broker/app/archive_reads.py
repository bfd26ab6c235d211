"""Reads of records that only the archive of tiered storage has, for every log of a broker.

A log asks its `RemotePartition` for what lies below its local log start. Nothing is read before. The bytes
that were read are kept in files without a name, or in memory where the broker encrypts its files: what a data
directory has in cipher text must not be in another folder in plain text.
"""

from __future__ import annotations

import tempfile
from typing import Final

from penstock.archive.chain import newest_manifest
from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.lookup import entry_at, place_of
from penstock.archive.names import TIER
from penstock.broker.app.archive_access import ArchiveAccess, owner_of
from penstock.broker.base.logs import get_logger
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.replica.links import ArchivedState
from penstock.broker.replica.partition import Partition
from penstock.model.config import BrokerConfig
from penstock.model.ids import format_topic_id
from penstock.ports import Files, Workers, World
from penstock.remote.cache import ChunkFiles
from penstock.remote.loading import Loader
from penstock.remote.partition import RemoteCache, RemotePartition
from penstock.remote.source import ArchiveSource, log_state, read_tail
from penstock.remote.stats import RemoteStats
from penstock.storage.memory import MemoryFiles
from penstock.tiering.errors import ArchiveFallsShort

__all__ = ["ArchiveReads", "ArchivedStates"]

log = get_logger("tiering")
_MEMORY_FOLDER: Final = "/cache"
#: the limit of a cache in memory
_MEMORY_BYTES: Final = 256 << 20


class ArchiveReads:
    """The archived parts of all logs of a broker, with one cache."""

    def __init__(self, config: BrokerConfig, access: ArchiveAccess, world: World, stats: RemoteStats) -> None:
        self._access = access
        self._world = world
        self._stats = stats
        self._config = config
        self._cache: RemoteCache | None = None

    def attach(self, partition: Partition) -> None:
        """Have the log of a partition that was opened just now read the archive."""
        owner, opened, access = owner_of(partition), partition.log, self._access

        async def read_manifest() -> Manifest:
            found = await newest_manifest(access.store, owner, TIER)
            if found is None:
                raise ArchiveDamaged(f"the archive has no manifest of {owner}")
            return found[0]

        source = ArchiveSource(access.store, read_manifest, self._world.workers)
        name = f"{partition.name} {format_topic_id(partition.topic_id)}"
        opened.remote = RemotePartition(name, source, self.cache, lambda: opened.local_log_start_offset)

    @property
    def cache(self) -> RemoteCache:
        """The cache, which is made for the first partition."""
        if self._cache is None:
            self._cache = self._new_cache()
        return self._cache

    def _new_cache(self) -> RemoteCache:
        world, config = self._world, self._config
        files, limit = (
            ChunkFiles(*_place(world, world.rng.token(8).hex())),
            config.penstock_remote_log_cache_bytes,
        )
        if not isinstance(world.files, OsFiles):
            limit = min(limit, _MEMORY_BYTES)
        loader = Loader(
            config.remote_log_reader_threads,
            config.remote_log_reader_max_pending_tasks,
            config.remote_fetch_max_wait_ms / 1000,
            self._failed,
        )
        return RemoteCache(files, loader, world.workers, world.clock, limit, stats=self._stats)

    def _failed(self, error: Exception) -> None:
        self._stats.errors += 1
        log.warning("archive_read_failed", error=str(error))

    async def close(self) -> None:
        if self._cache is not None:
            await self._cache.close()


def _place(world: World, random: str) -> tuple[Files, str, str]:
    """The files of the cache, its folder, and how its names begin."""
    if isinstance(world.files, OsFiles):
        return world.files, tempfile.gettempdir(), f"penstock-archive-{random}"
    files = MemoryFiles(world.clock)
    files.makedirs(_MEMORY_FOLDER)
    return files, _MEMORY_FOLDER, random


class ArchivedStates:
    """Reads what a follower needs that starts over behind the archive.

    Implements `broker.replica.links.ReadArchivedState`.
    """

    def __init__(self, access: ArchiveAccess, workers: Workers) -> None:
        self._access = access
        self._workers = workers

    async def __call__(self, partition: Partition, log_start: int, local_start: int) -> ArchivedState:
        access, owner = self._access, owner_of(partition)
        chain = access.chain((await access.root()).id, owner)
        manifest = await chain.load()
        if manifest is None or not manifest.base_offset <= log_start or manifest.next_offset < local_start:
            has = "nothing" if manifest is None else f"{manifest.base_offset} to {manifest.next_offset}"
            raise ArchiveFallsShort(f"the archive of {owner} has {has}, not {log_start} to {local_start}")
        entry = await self._entry(manifest, local_start - 1)
        tail = await read_tail(access.store, entry, owner)
        state = await self._workers.in_thread(log_state, tail, entry, owner)
        return ArchivedState(entry.next_offset, state.epochs, list(state.producers.states.values()))

    async def _entry(self, manifest: Manifest, offset: int) -> SegmentEntry:
        place = place_of(manifest, offset)
        assert place is not None, "the manifest reaches to the offset"
        if not isinstance(place, PageEntry):
            return place
        source = ArchiveSource(self._access.store, _not_read, self._workers)
        return entry_at((await source.page(manifest, place)).segments, offset)


async def _not_read() -> Manifest:
    raise AssertionError("the manifest is known")
