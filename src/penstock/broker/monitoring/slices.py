"""Runs long computations on the event loop in slices, so that requests never wait long for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter, thread_time
from typing import Final

__all__ = ["SLICE_S", "in_slices"]

#: how long a computation may hold the event loop at a time
SLICE_S: Final = 0.001


async def in_slices(steps: Iterable[object], slice_s: float = SLICE_S) -> float:
    """Run all `steps`, each of which has to be short, and let the event loop go on after each slice.

    Returns the CPU seconds of the longest slice: time in which the process had no core does not count.
    """
    longest, until, began = 0.0, perf_counter() + slice_s, thread_time()
    for _ in steps:
        if perf_counter() >= until:
            longest = max(longest, thread_time() - began)
            await asyncio.sleep(0)
            until, began = perf_counter() + slice_s, thread_time()
    return max(longest, thread_time() - began)
