"""Builds segment objects from raw batches, in the order of their offsets.

`LogState` goes along with the log: leader epochs, producers and open transactions up to `next_offset`. A
`SegmentBuilder` takes batches until its owner seals it. Batches are copied unchanged. Cost is per batch.
"""

from __future__ import annotations

from struct import error
from typing import Final, NamedTuple

from penstock.archive import segment_object
from penstock.archive.documents import SegmentEntry, digest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.names import SEGMENT, ArchivedPartition, object_name
from penstock.archive.segment_object import SegmentTable, assemble
from penstock.model.errors import PenstockError
from penstock.model.ids import format_topic_id
from penstock.ports import Buffer
from penstock.records.batch import (
    HEADER,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    crc_matches,
)
from penstock.records.control import parse_end_transaction
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.index import RELATIVE_MAX, OffsetIndex, TimeIndex
from penstock.storage.producers import ProducerStates
from penstock.storage.seals import LogOwner
from penstock.storage.snapshot import decode_snapshot, encode_snapshot
from penstock.storage.transactions import AbortedTransaction, encode_entries

__all__ = ["LogState", "Sealed", "SegmentBuilder", "owner_of"]

_INDEX_INTERVAL_BYTES: Final = 4096
#: positions in an offset index have 32 bits
_LOG_BYTES_MAX: Final = 2**32 - 1


def owner_of(partition: ArchivedPartition) -> LogOwner:
    """The owner that producer snapshots and leader epochs name."""
    return LogOwner.of(format_topic_id(partition.topic_id), partition.partition)


class LogState:
    """Leader epochs and producers of a log up to `next_offset`."""

    __slots__ = ("epochs", "next_offset", "producers")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.epochs = LeaderEpochs()
        self.producers = ProducerStates()
        self.producers.end_offset = next_offset

    @classmethod
    def decode(cls, next_offset: int, epochs: bytes, snapshot: bytes, owner: LogOwner) -> LogState:
        """The state at the end of a segment, from its sections."""
        state = cls(next_offset)
        try:
            state.epochs = LeaderEpochs.decode(epochs, owner)
            state.producers.load(decode_snapshot(snapshot, owner, next_offset), next_offset)
        except ValueError as e:
            raise ArchiveDamaged(f"the state at offset {next_offset} is damaged: {e}") from e
        return state

    def copied(self, owner: LogOwner) -> LogState:
        """A state of its own, as another process would read it."""
        snapshot = encode_snapshot(self.producers.states, owner, self.next_offset)
        return LogState.decode(self.next_offset, self.epochs.encode(owner), snapshot, owner)

    def apply(self, batch: Buffer, header: BatchHeader) -> AbortedTransaction | None:
        """Take in the next batch; returns the transaction that it aborts."""
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self.next_offset = self.producers.end_offset = header.next_offset
        if header.producer_id < 0:
            return None
        marker = parse_end_transaction(batch) if header.is_control else None
        if header.is_control and marker is None:
            return None
        completed = self.producers.apply(header, header.base_offset, marker)
        if completed is None or not completed.aborted:
            return None
        stable = self.producers.last_stable_after(completed)
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )


class Sealed(NamedTuple):
    """A segment that is ready to be put: its entry in a manifest, and the bytes of the object."""

    entry: SegmentEntry
    data: bytearray


class SegmentBuilder:
    """One segment from `state.next_offset` on."""

    def __init__(self, owner: ArchivedPartition, state: LogState) -> None:
        self._owner = owner
        self._state = state
        self.base_offset = state.next_offset
        self.log = bytearray()
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self._aborted: list[AbortedTransaction] = []
        self._since_index = 0
        self._min_timestamp = -1
        self.missing = 0

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    @property
    def min_timestamp(self) -> int:
        return self._min_timestamp

    @property
    def max_timestamp(self) -> int:
        return self._times.last()[0]

    def takes(self, size: int, next_offset: int, size_max: int) -> bool:
        """Returns true if a batch may be appended to this segment, rather than to the next one."""
        if not self.log:
            return True
        return len(self.log) + size <= size_max and next_offset - self.base_offset <= RELATIVE_MAX

    def append(self, batch: Buffer, name: str) -> BatchHeader:
        """Append exactly one batch; ArchiveDamaged if it is not the next one, or not what was written."""
        header = checked_header(batch, name)
        if header.base_offset < self._state.next_offset or header.last_offset_delta < 0:
            raise ArchiveDamaged(
                f"{name} has the offsets {header.base_offset} to {header.last_offset} where "
                f"{self._state.next_offset} is the next one"
            )
        assert len(self.log) + len(batch) <= _LOG_BYTES_MAX
        self.missing += header.base_offset - self._state.next_offset
        relative = header.last_offset - self.base_offset
        if self._since_index >= _INDEX_INTERVAL_BYTES or not self.log:
            self._offsets.add(relative, len(self.log))
            self._since_index = 0
        self._times.add(header.max_timestamp, relative)
        if header.base_timestamp >= 0:
            known = self._min_timestamp
            self._min_timestamp = header.base_timestamp if known < 0 else min(known, header.base_timestamp)
        try:
            aborted = self._state.apply(batch, header)
        except PenstockError as e:
            raise ArchiveDamaged(f"{name} has a damaged marker at offset {header.base_offset}: {e}") from e
        if aborted is not None:
            self._aborted.append(aborted)
        self.log += batch
        self._since_index += len(batch)
        return header

    def cover(self, next_offset: int) -> None:
        """Note that the log has no batch before `next_offset` behind the last one: compaction took them."""
        assert next_offset >= self._state.next_offset
        self.missing += next_offset - self._state.next_offset
        self._state.next_offset = self._state.producers.end_offset = next_offset

    def sections(self) -> dict[str, bytes]:
        """The contents of the sections, but for the checksums of blocks."""
        owner = owner_of(self._owner)
        return {
            segment_object.INDEX: self._offsets.encode(),
            segment_object.TIME_INDEX: self._times.encode(),
            segment_object.TRANSACTION_INDEX: encode_entries(self._aborted),
            segment_object.PRODUCERS: encode_snapshot(self._state.producers.states, owner, self.next_offset),
            segment_object.EPOCHS: self._state.epochs.encode(owner),
        }

    def seal(self, writer_epoch: int, random: bytes) -> Sealed:
        """The object and its entry; the name has the writer's leader epoch and 8 random bytes.

        The object takes the memory of the batches: nothing is appended afterwards.
        """
        return self.seal_with(self.sections(), self._state.epochs.latest, writer_epoch, random)

    def seal_with(
        self, sections: dict[str, bytes], leader_epoch: int, writer_epoch: int, random: bytes
    ) -> Sealed:
        """As `seal`, with sections whose state is known from elsewhere."""
        assert self.next_offset > self.base_offset
        table = SegmentTable(
            topic=self._owner.topic,
            topic_id=format_topic_id(self._owner.topic_id),
            partition=self._owner.partition,
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            leader_epoch=leader_epoch,
            missing=self.missing,
            log_size=len(self.log),
        )
        data = assemble(self.log, sections, table)
        entry = SegmentEntry(
            name=object_name(self.base_offset, writer_epoch, random, SEGMENT),
            size=len(data),
            sha256=digest(data),
            log_size=table.log_size,
            base_offset=table.base_offset,
            next_offset=table.next_offset,
            min_timestamp=table.min_timestamp,
            max_timestamp=table.max_timestamp,
            leader_epoch=leader_epoch,
            missing=table.missing,
        )
        return Sealed(entry, data)


def checked_header(batch: Buffer, name: str) -> BatchHeader:
    """The header of exactly one batch; ArchiveDamaged if it fails its checksum."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(batch))
    except error as e:
        raise ArchiveDamaged(f"{name} has {len(batch)} bytes where a batch starts") from e
    if header.magic != MAGIC:
        raise ArchiveDamaged(f"{name} has a batch of magic {header.magic} at offset {header.base_offset}")
    if header.size != len(batch) or header.size < HEADER_SIZE or not crc_matches(batch, header):
        raise ArchiveDamaged(f"{name} has a damaged batch at offset {header.base_offset}")
    return header
