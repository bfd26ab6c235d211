"""Writes the segments and manifests of one partition from raw batches.

Order of durability: segments are put, and read back, before the manifest that names them. What a crash leaves
behind without a manifest is found by the collector. Small segments at the end are merged, so that a backup
every minute does not leave thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from penstock.archive import segment_object
from penstock.archive.age import NAMED_WITHIN_S, Age
from penstock.archive.batches import split_batches
from penstock.archive.building import LogState, Sealed, SegmentBuilder, checked_header, owner_of
from penstock.archive.chain import ManifestChain
from penstock.archive.checking import check_segment, check_table, sections_of
from penstock.archive.documents import Manifest, SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.manifests import appended, replaced_tail, trailing_run, trimmed
from penstock.archive.names import ArchivedPartition
from penstock.archive.objects import get_named, put_verified
from penstock.archive.segment_object import parse_table
from penstock.ports import Buffer, ObjectStore, Rng
from penstock.storage.index import RELATIVE_MAX

__all__ = ["SEGMENT_BYTES", "PartitionWriter", "merge"]

#: bytes of batches in a segment
SEGMENT_BYTES: Final = 64 << 20
#: Producers that were silent for this long are left out of snapshots, as brokers do.
_PRODUCERS_EXPIRE_MS: Final = 7 * 24 * 3600 * 1000


class PartitionWriter:
    """Continues the archive of one partition."""

    def __init__(
        self,
        store: ObjectStore,
        chain: ManifestChain,
        rng: Rng,
        *,
        leader_epoch: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._store = store
        self._chain = chain
        self._rng = rng
        self._leader_epoch = leader_epoch
        self._segment_bytes = segment_bytes
        self._owner = chain.owner
        self._state = LogState(0)
        self._builder: SegmentBuilder | None = None
        self._sealed: list[SegmentEntry] = []
        self._edited: Manifest | None = None
        self._is_fresh = True
        #: names of segments that tiered storage has put: a merge would copy them
        self.adopted: set[str] = set()
        #: since the newest manifest was read or written: what it names, and what was put, may be collected
        self._age = Age(chain.clock)

    @property
    def next_offset(self) -> int:
        """The offset of the batch to append next."""
        return self._state.next_offset

    @property
    def digest(self) -> str:
        """The SHA-256 of the newest manifest."""
        return self._chain.digest

    @property
    def is_old(self) -> bool:
        """Whether the newest manifest was read so long ago that it may be lost, and its objects collected."""
        return self._age.elapsed_s() > NAMED_WITHIN_S / 2

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> producer epoch, of the transactions that are open at `next_offset`."""
        states = self._state.producers.states
        return {each: states[each].epoch for each in self._state.producers.ongoing.values()}

    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if there is none."""
        return next(iter(self._state.producers.ongoing), None)

    async def open(self, log_start_offset: int, *, compacted: bool, tiered: bool = False) -> int:
        """Read the chain; returns the next offset. Segments below the log start are left out from now on.

        If the log now starts behind the end of the archive, the archive starts again there: the source has
        deleted what lies between, and its readers do not find it either.
        """
        self._age = Age(self._chain.clock)
        newest = await self._chain.load()
        if newest is None:
            newest = self._chain.first(log_start_offset, self._leader_epoch, compacted)
        newest = msgspec.structs.replace(newest, tiered=newest.tiered or tiered)
        self._edited, self._sealed = trimmed(newest, log_start_offset), []
        last = await self._last_segment(self._edited)
        if last is None:
            self._state = LogState(self._edited.log_start_offset)
        else:
            self._state = await self._state_behind(last)
        self._is_fresh = last is None
        self._builder = SegmentBuilder(self._owner, self._state)
        return self.next_offset

    async def append(self, batches: Iterable[Buffer]) -> None:
        """Append batches from `next_offset` on; full segments are put."""
        assert self._builder is not None
        name = str(self._owner)
        for batch in batches:
            header = checked_header(batch, name)
            if self._is_fresh and header.base_offset < self.next_offset <= header.last_offset:
                # DeleteRecords has moved the log start into the middle of a batch.
                self._state = LogState(header.base_offset)
                self._builder = SegmentBuilder(self._owner, self._state)
            self._is_fresh = False
            if not self._builder.takes(len(batch), header.next_offset, self._segment_bytes):
                await self._seal()
            self._builder.append(batch, name)

    async def adopt(self, entry: SegmentEntry) -> memoryview | None:
        """Name a segment that tiered storage has put, instead of copying its batches.

        Returns its batches, of which every byte was verified. None if it does not continue this archive
        exactly, or is damaged: then they have to be copied.
        """
        assert self._builder is not None
        owner = owner_of(self._owner)
        is_first = self._is_fresh and entry.base_offset <= self.next_offset < entry.next_offset
        if entry.missing or not (is_first or entry.base_offset == self.next_offset):
            return None
        state = LogState(entry.base_offset) if is_first else self._state.copied(owner)
        try:
            data = await self._object(entry)
            log = check_segment(data, entry, self._owner, state).log
        except ArchiveDamaged:
            return None
        if self.next_offset > self._builder.base_offset:
            await self._seal()
        self._is_fresh = False
        self._state, self._builder = state, SegmentBuilder(self._owner, state)
        self._sealed.append(entry)
        return log

    def cover(self, next_offset: int) -> None:
        """Note that there is no batch between the last one and `next_offset`: compaction has removed them."""
        assert self._builder is not None
        if next_offset > self.next_offset:
            self._builder.cover(next_offset)

    async def commit(self, log_start_offset: int, now_ms: int) -> Manifest:
        """Put the rest, and write a manifest if anything has changed; returns the newest one."""
        assert self._builder is not None and self._edited is not None
        self._state.producers.expire(now_ms, _PRODUCERS_EXPIRE_MS)
        if self.next_offset > self._builder.base_offset:
            await self._seal()
        edited = trimmed(appended(self._edited, self._sealed), log_start_offset)
        is_new = self._chain.newest is None or edited != self._chain.newest
        if is_new:
            edited = await self._merged(edited)
        self._age.check(self._owner)
        if not is_new:
            assert self._chain.newest is not None
            return self._chain.newest
        manifest = await self._chain.advance(edited, self._leader_epoch)
        self._edited, self._sealed, self._age = manifest, [], Age(self._chain.clock)
        return manifest

    async def _seal(self) -> None:
        assert self._builder is not None
        sealed = self._builder.seal(self._leader_epoch, self._rng.token(8))
        await self._put(sealed)
        self._sealed.append(sealed.entry)
        self._builder = SegmentBuilder(self._owner, self._state)

    async def _put(self, sealed: Sealed) -> None:
        await put_verified(self._store, self._owner.object(sealed.entry.name), sealed.data)

    async def _merged(self, manifest: Manifest) -> Manifest:
        """Merge small segments at the end of the manifest, if there are any."""
        near = [each for each in manifest.segments if self.next_offset - each.base_offset <= RELATIVE_MAX]
        adopted = [n for n, each in enumerate(near) if each.name in self.adopted]
        near = near[adopted[-1] + 1 :] if adopted else near
        count = trailing_run([each.log_size for each in near], self._segment_bytes)
        if not count:
            return manifest
        parts = [(entry, await self._object(entry)) for entry in manifest.segments[-count:]]
        sealed = merge(parts, self._owner, self._leader_epoch, self._rng.token(8))
        await self._put(sealed)
        return replaced_tail(manifest, count, sealed.entry)

    async def _last_segment(self, manifest: Manifest) -> SegmentEntry | None:
        # The last segments are never in a page: `spill` moves the oldest, and leaves some.
        if manifest.segments:
            return manifest.segments[-1]
        assert not manifest.pages
        return None

    async def _object(self, entry: SegmentEntry) -> bytes:
        return await get_named(self._store, self._owner.object(entry.name), entry.size, entry.sha256)

    async def _state_behind(self, entry: SegmentEntry) -> LogState:
        data = await self._object(entry)
        view = memoryview(data)
        table = parse_table(view, len(data), entry.name)
        check_table(table, entry, self._owner)
        sections = sections_of(view, table, entry.name)
        try:
            return LogState.decode(
                entry.next_offset,
                sections[segment_object.EPOCHS],
                sections[segment_object.PRODUCERS],
                owner_of(self._owner),
            )
        except ArchiveDamaged as e:
            raise ArchiveDamaged(f"{entry.name}: {e}") from e


def merge(
    parts: Sequence[tuple[SegmentEntry, bytes]], owner: ArchivedPartition, writer_epoch: int, random: bytes
) -> Sealed:
    """One segment with the batches of `parts`, which are verified.

    The state of producers and the leader epochs are those of the last part: they describe the same offset.
    """
    first, (last, last_data) = parts[0][0], parts[-1]
    builder = SegmentBuilder(owner, LogState(first.base_offset))
    aborted = b""
    for entry, data in parts:
        log = check_segment(data, entry, owner, None).log
        for batch in split_batches(log, entry.name):
            builder.append(batch, entry.name)
        builder.cover(entry.next_offset)
        aborted += _sections(entry, data)[segment_object.TRANSACTION_INDEX]
    kept = _sections(last, last_data)
    sections = builder.sections()
    sections[segment_object.TRANSACTION_INDEX] = aborted
    sections[segment_object.PRODUCERS] = kept[segment_object.PRODUCERS]
    sections[segment_object.EPOCHS] = kept[segment_object.EPOCHS]
    return builder.seal_with(sections, last.leader_epoch, writer_epoch, random)


def _sections(entry: SegmentEntry, data: bytes) -> dict[str, bytes]:
    view = memoryview(data)
    return sections_of(view, parse_table(view, len(data), entry.name), entry.name)
