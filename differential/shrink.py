"""Reduces the operations of a disagreement to those that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shrink"]

T = TypeVar("T")


def shrink(items: Sequence[T], still_fails: Callable[[list[T]], bool], tries: int) -> list[T]:
    """Leave out ever smaller pieces while the rest still fails; the last item, which fails, stays."""
    kept = list(items)
    size = max(1, (len(kept) - 1) // 2)
    while tries > 0:
        at = len(kept) - 1 - size
        shrunk = False
        while tries > 0 and at > -size:
            start = max(0, at)
            candidate = kept[:start] + kept[at + size :]
            tries -= 1
            if len(candidate) < len(kept) and still_fails(candidate):
                kept, shrunk = candidate, True
            at -= size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2)
    return kept
