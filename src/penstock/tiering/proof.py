"""Proves, right now, that an archive has the records that a log is about to remove from its disk.

The newest manifest is read from the store, and the end of every object that has some of the records: it is
there with the size that the manifest names, it is the segment of this partition with these offsets, its
leader epochs are those of the log, and it ends with the log's own bytes. All its bytes were compared when it
was copied, before a manifest named it. What an operator or a cloud may have done meanwhile is found: an
archive that was emptied, rolled back, exchanged, or is that of another cluster; and a log that was rolled
back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.archive.chain import ManifestChain
from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.lookup import entry_at, place_of
from penstock.archive.names import ArchivedPartition
from penstock.ports import ObjectStore, Workers
from penstock.remote.source import log_state, read_tail
from penstock.storage.epochs import LeaderEpochs
from penstock.tiering.comparison import OwnBytes, same_end
from penstock.tiering.errors import ArchiveContradicts, ArchiveFallsShort

__all__ = ["KeptLog", "Proven", "Prover", "ReadPage", "same_epochs"]

#: objects that are looked at for one proof: a log with more to remove gets another one
_OBJECTS_MAX: Final = 1024


class KeptLog(NamedTuple):
    """The log of a replica, as a proof compares it."""

    log_start_offset: int
    local_log_start_offset: int
    epochs: LeaderEpochs
    #: how far the archive was when the leader has copied last; -1 if that is not known
    copied_end: int = -1


class Proven(NamedTuple):
    """The archive has all records of the log from its log start to `end_offset`."""

    manifest: Manifest
    end_offset: int


ReadPage = Callable[[Manifest, PageEntry], Awaitable[tuple[SegmentEntry, ...]]]


class Prover:
    """Proofs for the replicas of one broker. It remembers how far it has seen the archive of each."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._seen: dict[ArchivedPartition, int] = {}

    def keep(self, owners: set[ArchivedPartition]) -> None:
        """Forget all other partitions."""
        self._seen = {owner: number for owner, number in self._seen.items() if owner in owners}

    async def newest(self, chain: ManifestChain, log: KeptLog) -> Manifest | None:
        """The newest manifest; None if there is none, and the log does not need one.

        ArchiveContradicts if the archive lacks something that was there when local segments were removed.
        """
        manifest = await chain.load()
        is_needed = log.log_start_offset < log.local_log_start_offset
        # Not the number of the manifest: leaders copy again what the store has lost, with fewer manifests.
        seen = max(self._seen.get(chain.owner, -1), log.copied_end)
        end = -1 if manifest is None else manifest.next_offset
        if end < seen:
            raise ArchiveContradicts(
                f"the archive of {chain.owner} ends at offset {end}, and ended at {seen}: it was rolled back "
                "or emptied"
            )
        self._seen[chain.owner] = end
        if manifest is None:
            if is_needed:
                raise ArchiveContradicts(f"the archive has no manifest of {chain.owner}")
            return None
        if is_needed and manifest.next_offset < log.local_log_start_offset:
            raise ArchiveContradicts(
                f"the archive of {chain.owner} ends at offset {manifest.next_offset}, and this broker has "
                f"the records from {log.local_log_start_offset} on: it was rolled back"
            )
        return manifest

    async def prove(
        self,
        store: ObjectStore,
        chain: ManifestChain,
        log: KeptLog,
        end_offset: int,
        read_page: ReadPage,
        own: OwnBytes,
    ) -> Proven:
        """Prove that the archive has the log up to `end_offset`, or to an earlier offset if that is far.

        It is earlier, too, if the archive ends earlier: segments of a follower and of leaders that have
        copied need not end at the same offsets.

        ArchiveFallsShort, ArchiveContradicts, ArchiveError or OSError if nothing can be shown.
        """
        manifest, offset = await self.newest(chain, log), log.local_log_start_offset
        if manifest is None or manifest.next_offset <= offset:
            reached = None if manifest is None else manifest.next_offset
            raise ArchiveFallsShort(f"the archive of {chain.owner} ends at {reached}, not at {end_offset}")
        end_offset = min(end_offset, manifest.next_offset)
        for _ in range(_OBJECTS_MAX):
            if offset >= end_offset:
                break
            entry = await _entry(manifest, offset, read_page)
            if not await self._check(store, chain.owner, manifest, entry, log, own):
                break
            offset = entry.next_offset
        return Proven(manifest, min(offset, end_offset))

    async def _check(
        self,
        store: ObjectStore,
        owner: ArchivedPartition,
        manifest: Manifest,
        entry: SegmentEntry,
        log: KeptLog,
        own: OwnBytes,
    ) -> bool:
        """Read the end of an object, and compare leader epochs and bytes with those of the log.

        Returns false if the log has not committed as much yet.
        """
        tail = await read_tail(store, entry, owner)
        state = await self._workers.in_thread(log_state, tail, entry, owner)
        start = max(manifest.base_offset, log.log_start_offset)
        if not same_epochs(state.epochs, log.epochs, start, entry.next_offset):
            raise ArchiveContradicts(
                f"{owner.object(entry.name)} has other leader epochs than the log before offset "
                f"{entry.next_offset}"
            )
        is_same = await same_end(store, tail, entry, owner, own)
        if is_same is False:
            raise ArchiveContradicts(
                f"{owner.object(entry.name)} has other records than the log before offset "
                f"{entry.next_offset}: the log was rolled back, or another cluster writes to the archive"
            )
        return is_same is not None


def same_epochs(archived: LeaderEpochs, own: LeaderEpochs, start: int, end: int) -> bool:
    """Returns true if both histories have the same epochs from `start` to `end`, as far as `own` knows them.

    It has to know the epoch of the last offset.
    """
    if own.epoch_of(end - 1) is None:
        return False
    start = max(start, own.starts[0])
    return _clipped(archived, start, end) == _clipped(own, start, end)


def _clipped(epochs: LeaderEpochs, start: int, end: int) -> list[tuple[int, int]]:
    numbers = epochs.within(start, end)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [(epoch, max(first, start)) for epoch, first in pairs]


async def _entry(manifest: Manifest, offset: int, read_page: ReadPage) -> SegmentEntry:
    place = place_of(manifest, offset)
    if place is None:
        raise ArchiveFallsShort(f"the archive of {manifest.owner} has no segment with offset {offset}")
    return entry_at(await read_page(manifest, place), offset) if isinstance(place, PageEntry) else place
