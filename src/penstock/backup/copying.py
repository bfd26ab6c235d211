"""Copies one partition into the archive up to an offset, and looks at the transactions around it."""

from __future__ import annotations

from collections import deque

from penstock.archive.batches import split_batches
from penstock.archive.building import checked_header
from penstock.archive.chain import ManifestChain, newest_manifest
from penstock.archive.cuts import Marker, PartitionTransactions
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.names import BACKUP, TIER, ArchivedPartition
from penstock.archive.reading import PartitionReader
from penstock.archive.writing import SEGMENT_BYTES, PartitionWriter
from penstock.backup.source import Cluster, SourceFailed
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.ports import Clock, ObjectStore, Rng
from penstock.records.batch import BatchHeader
from penstock.records.control import parse_end_transaction

__all__ = ["PartitionCopy"]

#: markers of each partition that are remembered: transactions around a cut are among the last ones
_MARKERS_KEPT = 10_000
#: responses without a batch that are accepted one after the other
_FRUITLESS_MAX = 60
#: bytes behind the end that are searched for markers
_PEEK_BYTES = 16 << 20


class PartitionCopy:
    """The copy of one partition, kept over many cuts."""

    def __init__(
        self,
        cluster: Cluster,
        store: ObjectStore,
        archive: str,
        owner: ArchivedPartition,
        rng: Rng,
        clock: Clock,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._store = store
        self.owner = owner
        self.key = TopicPartition(owner.topic, owner.partition)
        self._chain = ManifestChain(store, archive, owner, BACKUP, rng, clock)
        self._writer = PartitionWriter(store, self._chain, rng, leader_epoch=0, segment_bytes=segment_bytes)
        self._is_open = False
        self._markers: deque[Marker] = deque(maxlen=_MARKERS_KEPT)
        self.log_start_offset = 0
        self.producer_id_max = -1

    @property
    def digest(self) -> str:
        """The SHA-256 of the newest manifest."""
        return self._chain.digest

    async def copy_to(
        self, end_offset: int, log_start_offset: int, *, compacted: bool, tiered: bool = False
    ) -> Manifest:
        """Copy everything below `end_offset`, and write a manifest that names it.

        Of `tiered` topics, segments that leaders have put into this archive are named, and not copied.
        """
        self.log_start_offset = log_start_offset
        writer = self._writer
        if not self._is_open or writer.is_old or log_start_offset > writer.next_offset:
            await self._writer.open(log_start_offset, compacted=compacted, tiered=tiered)
            self._is_open = True
        if self._writer.next_offset > end_offset:
            raise ArchiveRefused(
                f"{self.key} ends at offset {end_offset} in the cluster, and at {self._writer.next_offset} "
                f"in the archive: the cluster has lost records; back it up to another address"
            )
        try:
            if tiered and not compacted:
                await self._copy_and_adopt(end_offset)
            else:
                await self._copy(end_offset)
            return await self._writer.commit(self.log_start_offset, self._clock.now_ms())
        except BaseException:
            # The writer may have batches that no manifest names: the next attempt starts from the chain.
            self._is_open = False
            raise

    async def _copy_and_adopt(self, end_offset: int) -> None:
        """Name the segments of tiered storage, and copy what lies between and behind them."""
        tier = await self._tier()
        while tier is not None:
            try:
                entry = await tier.segment_at(self._writer.next_offset)
            except ArchiveDamaged:
                break  # a page: as in `_tier`
            if entry is None or entry.next_offset > end_offset:
                break
            self._writer.adopted.add(entry.name)
            log = await self._writer.adopt(entry)
            if log is None:
                await self._copy(entry.next_offset)
                continue
            for batch in split_batches(log, str(self.key)):
                self._note(batch, checked_header(batch, str(self.key)))
        await self._copy(end_offset)

    async def _tier(self) -> PartitionReader | None:
        """What tiered storage has put of the partition; None if there is nothing that can be read.

        The leader of the partition reports damage to its manifests. A cut does without them.
        """
        try:
            found = await newest_manifest(self._store, self.owner, TIER)
        except ArchiveDamaged:
            return None
        if found is None:
            return None
        self._writer.adopted.update(each.name for each in found[0].segments)
        return PartitionReader(self._store, found[0])

    async def _copy(self, end_offset: int) -> None:
        name, fruitless = str(self.key), 0
        while self._writer.next_offset < end_offset:
            offset = self._writer.next_offset
            fetched = await self._cluster.fetch(self.key, offset)
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise SourceFailed(f"{name} has no offset {offset} any more: retention was faster")
            batches: list[memoryview] = []
            is_behind = False
            for batch in split_batches(fetched.data, name, whole=False):
                header = checked_header(batch, name)
                is_behind = header.base_offset >= end_offset
                if is_behind:
                    break
                if header.last_offset >= offset:
                    batches.append(batch)
                    self._note(batch, header)
            await self._writer.append(batches)
            if is_behind:
                # Only a batch behind the end proves that there is none before it: a throttled or new leader
                # may answer without batches.
                self._writer.cover(end_offset)
            fruitless = 0 if self._writer.next_offset > offset else fruitless + 1
            if fruitless > _FRUITLESS_MAX:
                raise SourceFailed(f"{name} has the high watermark {end_offset}, and no batch at {offset}")

    def _note(self, batch: memoryview, header: BatchHeader) -> None:
        self.producer_id_max = max(self.producer_id_max, header.producer_id)
        if header.is_control and header.producer_id >= 0:
            found = parse_end_transaction(batch)
            if found is not None:
                self._markers.append(
                    Marker(
                        header.base_offset,
                        header.producer_id,
                        header.producer_epoch,
                        found.committed,
                        header.max_timestamp,
                    )
                )

    def transactions(self) -> PartitionTransactions:
        """The transactions around the end of what was copied."""
        states = self._writer.open_transactions()
        return PartitionTransactions(self._writer.next_offset, states, list(self._markers))

    def first_open(self, end_offset: int) -> int:
        """The last stable offset at the end of what was copied."""
        first = self._writer.first_open_offset()
        return end_offset if first is None else first

    def has_transactions(self) -> bool:
        return bool(self._markers or self._writer.open_transactions())

    async def peek(self, found: PartitionTransactions, target: int) -> set[int]:
        """Add what lies between the end and `target`, and beyond it until open transactions are decided.

        Returns the producers of those that are not. What is read is not archived: the next cut copies it.
        """
        offset, budget = found.end_offset, _PEEK_BYTES
        undecided = set(found.open)
        while (offset < target or undecided) and budget > 0:
            fetched = await self._cluster.fetch(self.key, offset, 1 << 20)
            before = offset
            for batch in split_batches(fetched.data, str(self.key), whole=False):
                header = checked_header(batch, str(self.key))
                offset = max(offset, header.next_offset)
                if header.base_offset < found.end_offset or not header.is_transactional:
                    continue
                marker = parse_end_transaction(batch) if header.is_control else None
                if marker is not None:
                    undecided.discard(header.producer_id)
                    found.markers.append(
                        Marker(
                            header.base_offset,
                            header.producer_id,
                            header.producer_epoch,
                            marker.committed,
                            header.max_timestamp,
                        )
                    )
                elif not header.is_control:
                    found.later.setdefault(header.producer_id, header.base_offset)
            budget -= len(fetched.data)
            if offset == before:
                break
        return undecided
