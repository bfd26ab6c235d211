"""Long computations as generators, for `Context.in_turns` and for the event loop's own work."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from heapq import merge
from typing import Final, TypeVar

__all__ = ["in_slices", "sorted_in_steps"]

T = TypeVar("T")

#: strings that are sorted at once, and that are merged between two yields
_AT_ONCE: Final = 1000


async def in_slices(steps: Generator[object, None, T]) -> T:
    """The result of a computation; the sockets are polled after each of its slices.

    For work that no connection waits for, or that all of them share: the change of the metadata, for example.
    """
    while True:
        try:
            next(steps)
        except StopIteration as e:
            result: T = e.value
            return result
        await asyncio.sleep(0)


def sorted_in_steps(values: Iterable[str]) -> Generator[None, None, list[str]]:
    """The different values, sorted."""
    runs: list[list[str]] = []
    some: set[str] = set()
    for value in values:
        some.add(value)
        if len(some) == _AT_ONCE:
            runs.append(sorted(some))
            some = set()
            yield
    runs.append(sorted(some))
    if len(runs) == 1:
        return runs[0]
    found: list[str] = []
    last: str | None = None
    for number, value in enumerate(merge(*runs)):
        if value != last:
            found.append(value)
            last = value
        if not number % _AT_ONCE:
            yield
    return found
