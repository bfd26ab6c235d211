"""A replica that frees its disk, over a simulated store."""

from __future__ import annotations

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.remote.source import ArchiveSource
from penstock.testing.simulation.object_store import SimulatedStore
from penstock.tiering.proof import KeptLog, Proven, Prover
from tests.archive.logs import OWNER, FixedClock, new_store
from tests.storage.compacted import InlineWorkers
from tests.tiering.leaders import Replica, archive_in, verified

__all__ = ["Kept"]


class Kept:
    """A replica that frees its disk, and the archive that its leader has filled."""

    def __init__(self, store: SimulatedStore, replica: Replica) -> None:
        self.store, self.replica = store, replica
        self.prover = Prover(InlineWorkers())
        self.archive = archive_in(store, FixedClock())

    @classmethod
    async def filled(cls) -> Kept:
        kept = cls(new_store(), Replica.new())
        kept.replica.produce(20)
        kept.replica.epoch = 3
        kept.replica.produce(20)
        await kept.copy()
        return kept

    async def copy(self) -> Manifest:
        await self.replica.turn(self.archive)
        return await verified(self.store)

    async def prove(self, end: int | None = None) -> Proven:
        log = self.replica.log
        kept = KeptLog(log.log_start_offset, log.local_log_start_offset, log.leader_epochs)
        end = self.replica.sealed_end if end is None else end
        chain, own = self.archive.chain(OWNER), self.replica.bytes_before
        return await self.prover.prove(self.store, chain, kept, end, self.page, own)

    async def page(self, manifest: Manifest, entry: PageEntry) -> tuple[SegmentEntry, ...]:
        async def unused() -> Manifest:
            return manifest

        return (await ArchiveSource(self.store, unused, InlineWorkers()).page(manifest, entry)).segments

    async def free(self) -> None:
        """Remove all segments that are copied."""
        self.replica.log.advance_local_start((await self.prove()).end_offset)
        assert self.replica.log.retention.remove_expired()
