"""Do replicas hold the same bytes? Digests of offset ranges, compared until the difference is narrowed down.

A follower stores the leader's batches byte for byte, so equal ranges have equal digests, wherever segments
begin. A batch belongs to the range of its first offset. Ranges lie on a grid of `LEAF` offsets, so that
digests made at different times compare. Compaction rewrites batches on each replica by itself: a compacted
log's cleaned part is not comparable.

A verdict needs a majority of all replicas, not of those that answered: otherwise one corrupt copy could
outvote the rest while they are away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE, read_offset_and_length

__all__ = ["LEAF", "Comparison", "LogDigest", "Mismatch", "OffsetRange", "judge"]

#: offsets per smallest range: what a repair fetches at least
LEAF: Final = 1024
_DIGEST_SIZE: Final = 16


class OffsetRange(NamedTuple):
    """From `start` on, before `end`; both on the grid."""

    start: int
    end: int


class LogDigest:
    """Digests of what one replica holds; feed it whole batches in offset order, in pieces of any size."""

    __slots__ = ("_leaf", "_leaves")

    def __init__(self, leaf: int = LEAF) -> None:
        self._leaf = leaf
        self._leaves: dict[int, blake2b] = {}

    def add(self, batches: memoryview) -> None:
        """Batches that follow those added before."""
        position = 0
        while position < len(batches):
            base_offset, size = read_offset_and_length(batches, position)
            if size < HEADER_SIZE:
                raise CorruptMessage(f"a batch of {size} bytes at offset {base_offset}")
            slot = base_offset // self._leaf
            digest = self._leaves.get(slot)
            if digest is None:
                digest = self._leaves[slot] = blake2b(digest_size=_DIGEST_SIZE)
            digest.update(batches[position : position + size])
            position += size

    def of(self, offsets: OffsetRange) -> bytes:
        """The digest of a range; of what leaves hold and of which are empty."""
        total = blake2b(digest_size=_DIGEST_SIZE)
        for slot in range(offsets.start // self._leaf, -(-offsets.end // self._leaf)):
            leaf = self._leaves.get(slot)
            if leaf is not None:
                total.update(slot.to_bytes(8, "big"))
                total.update(leaf.digest())
        return total.digest()


class Mismatch(NamedTuple):
    """Replicas differ in a smallest range. Where no majority agrees nobody is `healthy`: repair nothing."""

    offsets: OffsetRange
    healthy: frozenset[int]
    corrupt: frozenset[int]


def judge(offsets: OffsetRange, replicas: Iterable[int], digests: Mapping[int, bytes]) -> Mismatch | None:
    """Who is right about a range, None where all that answered agree."""
    holders: dict[bytes, set[int]] = {}
    for replica, digest in digests.items():
        holders.setdefault(digest, set()).add(replica)
    if len(holders) <= 1:
        return None
    healthy = max(holders.values(), key=len)
    if 2 * len(healthy) <= len(set(replicas)):
        return Mismatch(offsets, frozenset(), frozenset())
    return Mismatch(offsets, frozenset(healthy), frozenset(digests.keys() - healthy))


class Comparison:
    """Narrows differences down: ask every replica for the digest of `next_range`, tell `compared`, repeat."""

    __slots__ = ("_leaf", "_open", "_replicas", "mismatches")

    def __init__(self, offsets: OffsetRange, replicas: Iterable[int], leaf: int = LEAF) -> None:
        self._leaf = leaf
        self._replicas = frozenset(replicas)
        start, end = offsets.start // leaf, -(-offsets.end // leaf)
        self._open = [OffsetRange(start * leaf, end * leaf)] if start < end else []
        #: what was found, in offset order
        self.mismatches: list[Mismatch] = []

    @property
    def next_range(self) -> OffsetRange | None:
        """The range to compare next, None when all is told."""
        return self._open[-1] if self._open else None

    def compared(self, digests: Mapping[int, bytes]) -> None:
        """The digests of `next_range`, by replica; one that cannot answer is left out."""
        offsets = self._open.pop()
        mismatch = judge(offsets, self._replicas, digests)
        if mismatch is None:
            return
        leaves = (offsets.end - offsets.start) // self._leaf
        if leaves == 1:
            self.mismatches.append(mismatch)
            return
        middle = offsets.start + leaves // 2 * self._leaf
        self._open += [OffsetRange(middle, offsets.end), OffsetRange(offsets.start, middle)]
