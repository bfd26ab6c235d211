"""Waits in a coroutine for a response that comes later, or for a step that must not be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from penstock.net.deferred import Deferred

__all__ = ["awaited", "uninterrupted"]

T = TypeVar("T")


async def awaited(response: Deferred[T]) -> T:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    response.then(lambda value: None if future.done() else future.set_result(value))
    return await future


async def uninterrupted(step: Coroutine[Any, Any, T]) -> T:
    """Run `step` to its end. If the caller is cancelled meanwhile, CancelledError is raised after that.

    Why: a worker thread goes on when the task that waits for it is cancelled. A shutdown that cancels the
    task and waits for it must find the files in a known state.
    """
    task = asyncio.get_running_loop().create_task(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # the caller is cancelled, whatever the outcome
        raise
