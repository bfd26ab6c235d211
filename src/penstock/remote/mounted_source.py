"""What a mounted partition reads of its archive: batches as a restore would write them.

Leader epochs start again, and commit markers of transactions that are not whole in the cut are abort markers
(`restored_batches`). The transactions of the latter are aborted wherever they have records, so the segment
with such a marker is read whole, once, to find where each of them began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.archive.batches import split_batches
from penstock.archive.building import LogState
from penstock.archive.checking import check_segment
from penstock.archive.cuts import CutPartition
from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.lookup import entry_at, place_of
from penstock.archive.restored_batches import restored
from penstock.ports import Buffer, ObjectStore, Workers
from penstock.records.batch import read_header
from penstock.remote.source import ArchiveSource, Tail, Transactions, log_state, read_range, read_tail
from penstock.storage.transactions import AbortedTransaction

__all__ = ["MountedSource", "state_behind"]


class MountedSource(ArchiveSource):
    """A partition of a cut."""

    def __init__(
        self,
        store: ObjectStore,
        read_manifest: Callable[[], Awaitable[Manifest]],
        workers: Workers,
        partition: CutPartition,
        leader_epoch: int,
    ) -> None:
        super().__init__(store, read_manifest, workers)
        self._partition = partition
        self._leader_epoch = leader_epoch

    def rewritten(self, batches: Buffer, name: str) -> Buffer:
        return restored(memoryview(batches), self._partition, self._leader_epoch, name)

    async def transactions(self, manifest: Manifest, entry: SegmentEntry, tail: Tail) -> Transactions:
        found = await super().transactions(manifest, entry, tail)
        markers = self._partition.aborted_markers
        if any(entry.base_offset <= offset < entry.next_offset for offset in markers):
            found = found._replace(aborted=await self._aborted_with_markers(manifest, entry))
        return found

    async def _aborted_with_markers(
        self, manifest: Manifest, entry: SegmentEntry
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions of a segment, of batches with the markers that the cut turns."""
        before = LogState(entry.base_offset)
        if entry.base_offset > manifest.base_offset:
            previous = await self._entry(manifest, entry.base_offset - 1)
            before = await state_behind(self.store, manifest, previous)
        data = await read_range(self.store, manifest.owner.object(entry.name), 0, entry.size)
        return await self.workers.in_thread(self._replayed, manifest, entry, data, before)

    def _replayed(
        self, manifest: Manifest, entry: SegmentEntry, data: bytes, state: LogState
    ) -> tuple[AbortedTransaction, ...]:
        """Verify a whole segment, and go through its batches from the `state` before it."""
        log = check_segment(data, entry, manifest.owner, None).log
        found = []
        for batch in split_batches(self.rewritten(log, entry.name), entry.name):
            aborted = state.apply(batch, read_header(batch))
            if aborted is not None:
                found.append(aborted)
        return tuple(found)

    async def _entry(self, manifest: Manifest, offset: int) -> SegmentEntry:
        place = place_of(manifest, offset)
        assert place is not None, "segments follow each other"
        return (
            entry_at((await self.page(manifest, place)).segments, offset)
            if isinstance(place, PageEntry)
            else place
        )


async def state_behind(store: ObjectStore, manifest: Manifest, entry: SegmentEntry) -> LogState:
    """Producers and open transactions at the end of a segment."""
    return log_state(await read_tail(store, entry, manifest.owner), entry, manifest.owner)
