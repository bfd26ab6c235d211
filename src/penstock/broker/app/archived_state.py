"""Reads from the archive what a follower needs that starts over behind it."""

from __future__ import annotations

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.lookup import entry_at, place_of
from penstock.broker.app.archive_access import ArchiveAccess, owner_of
from penstock.broker.replica.links import ArchivedState
from penstock.broker.replica.partition import Partition
from penstock.ports import Workers
from penstock.remote.source import ArchiveSource, log_state, read_tail
from penstock.tiering.errors import ArchiveFallsShort

__all__ = ["ArchivedStates"]


class ArchivedStates:
    """Implements `broker.replica.links.ReadArchivedState`."""

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
