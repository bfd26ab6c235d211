"""Builds one segment object from pieces of a log.

Worker threads call it, one call at a time: its cost is per batch. The bytes of the object are in memory twice
at the end, so `OBJECT_BYTES` bounds the memory of a copy.
"""

from __future__ import annotations

from typing import Final

from penstock.archive.batches import split_batches
from penstock.archive.building import LogState, Sealed, SegmentBuilder
from penstock.archive.names import ArchivedPartition
from penstock.records.batch import HEADER, LOG_OVERHEAD, BatchHeader, read_offset_and_length

__all__ = ["OBJECT_BYTES", "ObjectBuilder", "batch_bytes"]

#: bytes of batches in an object; more only for a single batch that is larger
OBJECT_BYTES: Final = 16 << 20
#: Producers that were silent for this long are left out of snapshots, as brokers do.
_PRODUCERS_EXPIRE_MS: Final = 7 * 24 * 3600 * 1000


class ObjectBuilder:
    """One object, from `state.next_offset` on."""

    def __init__(self, owner: ArchivedPartition, state: LogState, bytes_max: int) -> None:
        self._state = state
        self._builder = SegmentBuilder(owner, state)
        self._bytes_max = bytes_max
        #: true if the next batch belongs into the next object
        self.is_full = False

    @property
    def next_offset(self) -> int:
        return self._builder.next_offset

    @property
    def missing(self) -> int:
        """How many offsets are in no batch."""
        return self._builder.missing

    def take(self, data: bytes, name: str) -> int:
        """Append the whole batches of `data`; returns their bytes. ArchiveDamaged if one is damaged."""
        taken = 0
        for batch in split_batches(data, name, whole=False):
            following = BatchHeader._make(HEADER.unpack_from(batch)).next_offset
            if not self._builder.takes(len(batch), following, self._bytes_max):
                self.is_full = True
                break
            self._builder.append(batch, name)
            taken += len(batch)
        return taken

    def cover(self, next_offset: int) -> None:
        """Note that a segment ends at `next_offset`, without a batch for the last offsets."""
        if next_offset > self._builder.next_offset:
            self._builder.cover(next_offset)

    def seal(self, leader_epoch: int, random: bytes, now_ms: int) -> Sealed:
        self._state.producers.expire(now_ms, _PRODUCERS_EXPIRE_MS)
        return self._builder.seal(leader_epoch, random)


def batch_bytes(data: bytes) -> int:
    """The size of the batch that `data` begins with; 0 if that cannot be seen."""
    return read_offset_and_length(data, 0)[1] if len(data) >= LOG_OVERHEAD else 0
