"""Merges persisted state batches with newer ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from penstock.shares.states import StateBatch

__all__ = ["combine", "joined"]


def combine(
    batches: Sequence[StateBatch], updates: Iterable[StateBatch], start_offset: int
) -> list[StateBatch]:
    """`batches` with `updates`, without offsets below `start_offset`.

    `batches` are sorted, disjoint, and as few as possible, and so is the result: adjacent batches with equal
    states become one. Where an update overlaps, the higher delivery count wins, then the higher state. So a
    delayed retry of an older write cannot take back an acknowledgement.
    """
    merged = list(batches)
    for update in updates:
        if not merged or merged[-1].last + 1 < update.first:
            # Most updates are behind all batches.
            if update.first <= update.last:
                merged.append(update)
            continue
        low = bisect_left(merged, update.first, key=_last)
        if low < len(merged) and _covers(merged[low], update):
            # A write that is repeated.
            continue
        high = low
        while high < len(merged) and merged[high].first <= update.last:
            high += 1
        # Only neighbours can join the pieces. A share group with many members has many batches.
        before = max(0, low - 1)
        pieces = _overlaid(merged[low:high], update)
        merged[before : high + 1] = joined([*merged[before:low], *pieces, *merged[high : high + 1]])
    del merged[: bisect_left(merged, start_offset, key=_last)]
    if merged and merged[0].first < start_offset:
        merged[0] = merged[0]._replace(first=start_offset)
    return merged


def _covers(batch: StateBatch, update: StateBatch) -> bool:
    """Returns true if an update changes nothing."""
    return (
        batch.first <= update.first <= update.last <= batch.last
        and batch.delivery_count == update.delivery_count
        and batch.state == update.state
    )


def _last(batch: StateBatch) -> int:
    return batch.last


def _overlaid(batches: Sequence[StateBatch], update: StateBatch) -> list[StateBatch]:
    """The batches that `update` overlaps, and `update`, cut into disjoint pieces."""
    pieces: list[StateBatch] = []
    rest = update.first
    for batch in batches:
        if batch.first < update.first:
            pieces.append(batch._replace(last=update.first - 1))
        if rest < batch.first:
            pieces.append(update._replace(first=rest, last=batch.first - 1))
        shared_first, shared_last = max(batch.first, update.first), min(batch.last, update.last)
        winner = update if _priority(update) >= _priority(batch) else batch
        pieces.append(winner._replace(first=shared_first, last=shared_last))
        if batch.last > update.last:
            pieces.append(batch._replace(first=update.last + 1))
        rest = shared_last + 1
    if rest <= update.last:
        pieces.append(update._replace(first=rest))
    return pieces


def _priority(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """`batches`, which are sorted and disjoint; adjacent ones with equal states become one."""
    found: list[StateBatch] = []
    for batch in batches:
        before = found[-1] if found else None
        if (
            before is not None
            and before.last + 1 == batch.first
            and before.state == batch.state
            and before.delivery_count == batch.delivery_count
        ):
            found[-1] = before._replace(last=batch.last)
        else:
            found.append(batch)
    return found
