"""Worker threads for messages: unpacking, filters and schemas never run on the event loop.

Why two threads: the work of one request is bounded (`views.unpacking`), and a third at once would only take
the interpreter and the memory of the others. Further requests wait for their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

__all__ = ["in_worker"]

T = TypeVar("T")
_THREADS: Final = 2
_POOL: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="console-messages")


async def in_worker(function: Callable[[], T]) -> T:
    """The result of a function that runs in a worker thread."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, function)
