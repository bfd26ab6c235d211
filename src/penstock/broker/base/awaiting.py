"""Waits in a coroutine for a response that comes later."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from penstock.net.deferred import Deferred

__all__ = ["awaited"]

T = TypeVar("T")


async def awaited(response: Deferred[T]) -> T:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    response.then(lambda value: None if future.done() else future.set_result(value))
    return await future
