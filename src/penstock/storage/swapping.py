"""Puts the segments of a compaction or a repair in place of old ones, from commit to clean-up.

A caller must not be cancelled in between: the worker thread would commit the swap later, possibly when the
manifest of a clean shutdown is written already. The manifest has the old segments then, and the next start
would take the log for damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.log import Log
from penstock.storage.swap import Swap

__all__ = ["swap_in"]


async def swap_in(
    log: Log,
    swap: Swap,
    old: Sequence[int],
    new: Sequence[tuple[int, int]],
    workers: Workers,
    is_wanted: Callable[[], bool],
) -> bool:
    """Replace the segments at `old` by `new`, (base offset, size) each, which the directory of `swap` has.

    False, with the swap abandoned, if it is no longer wanted after the commit: the log may have changed.
    """
    await workers.in_thread(swap.commit)
    if not is_wanted():
        await workers.in_thread(swap.abandon)
        return False
    log.replace_segments(swap, old, new)
    try:
        await workers.in_thread(swap.finish)
    except StorageError:
        # Without a descriptor. Segment files can be closed in the thread of the event loop only.
        swap.finish_or_leave()
    return True
