"""Compares replicas by digests of their batches, and decides which replica is right if they differ.

A follower stores the leader's batches byte for byte, so a batch has one digest wherever it lies, however logs
are cut into segments. Compaction rewrites batches on each replica by itself: what it has touched is not
comparable (`is_untouched`).

A verdict needs a majority of all replicas, not of those that responded: otherwise one corrupt copy could
outvote the rest while they are down. Of two replicas the leader is right: consumers have read its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.records.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    read_header,
    read_offset_and_length,
)

__all__ = [
    "Mismatch",
    "batch_digests",
    "is_as_produced",
    "is_untouched",
    "judge",
    "leading_batches",
    "mismatches",
]

_DIGEST_SIZE: Final = 16
_NOTHING: Final = b""
_PAIR: Final = 2


class Mismatch(NamedTuple):
    """Replicas differ from offset `start` to before `end`; without a verdict no replica is named."""

    start: int
    end: int
    healthy: frozenset[int]
    corrupt: frozenset[int]


def leading_batches(data: memoryview, before: int) -> tuple[int, int]:
    """(bytes, next offset) of the whole batches at the start of `data` that begin before an offset.

    (0, -1) if there are none.
    """
    position, next_offset = 0, -1
    while position + HEADER_SIZE <= len(data):
        base, size = read_offset_and_length(data, position)
        if size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {size} bytes at offset {base}")
        if base >= before or position + size > len(data):
            break
        next_offset = read_header(data, position).next_offset
        position += size
    return position, next_offset


def batch_digests(batches: memoryview) -> dict[int, bytes]:
    """The digest of each batch, by its base offset."""
    digests: dict[int, bytes] = {}
    position = 0
    while position + LOG_OVERHEAD <= len(batches):
        base, size = read_offset_and_length(batches, position)
        if size < HEADER_SIZE:
            raise CorruptMessage(f"a batch of {size} bytes at offset {base}")
        digests[base] = blake2b(batches[position : position + size], digest_size=_DIGEST_SIZE).digest()
        position += size
    return digests


def is_as_produced(header: BatchHeader) -> bool:
    """Whether a batch has all its records: compaction leaves fewer than there are offsets, or marks."""
    return header.record_count == header.last_offset_delta + 1 and not header.attributes & DELETE_HORIZON_BIT


def is_untouched(batches: memoryview, start: int, end: int) -> bool:
    """Whether batches fill [start, end) as they were produced: compaction leaves gaps between them, too."""
    position, next_offset = 0, start
    while position < len(batches):
        header = read_header(batches, position)
        if header.base_offset != next_offset or not is_as_produced(header):
            return False
        next_offset = header.next_offset
        position += header.size
    return next_offset == end


def judge(
    replicas: Collection[int], leader: int, digests: Mapping[int, bytes]
) -> tuple[frozenset[int], frozenset[int]] | None:
    """(healthy, corrupt) of `replicas`, by what those that answered hold; None where all of these agree."""
    holders: dict[bytes, set[int]] = {}
    for replica, digest in digests.items():
        holders.setdefault(digest, set()).add(replica)
    if len(holders) <= 1:
        return None
    healthy = max(holders.values(), key=len)
    if len(replicas) == _PAIR and leader in digests:
        healthy = {leader}
    elif 2 * len(healthy) <= len(replicas):
        return frozenset(), frozenset()
    return frozenset(healthy), frozenset(digests.keys() - healthy)


def mismatches(
    replicas: Collection[int], leader: int, held: Mapping[int, Mapping[int, bytes]], end: int
) -> list[Mismatch]:
    """Where replicas differ in a range that ends at `end`, by the digests of their batches.

    Batches side by side about which the verdict is the same are one mismatch.
    """
    bases = sorted({base for digests in held.values() for base in digests})
    found: list[Mismatch] = []
    for base, next_base in zip(bases, [*bases[1:], end], strict=True):
        verdict = judge(
            replicas, leader, {replica: digests.get(base, _NOTHING) for replica, digests in held.items()}
        )
        if verdict is None:
            continue
        if found and found[-1].end == base and found[-1][2:] == verdict:
            found[-1] = found[-1]._replace(end=next_base)
        else:
            found.append(Mismatch(base, next_base, *verdict))
    return found
