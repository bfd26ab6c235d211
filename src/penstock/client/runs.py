"""Runs a handler at least or at most once: one message after the other, or many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.client.handling import Handling
from penstock.client.lanes import Lanes
from penstock.client.message import Message
from penstock.client.positions import Positions

__all__ = ["Source", "run"]


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a consumer that a run uses. `next_message` raises StopAsyncIteration when it is closed."""

    next_message: Callable[[], Awaitable[Message]]
    settle: Callable[[], None]
    put_back: Callable[[list[Message]], None]
    is_closing: Callable[[], bool]
    positions: Positions


async def run(source: Source, handling: Handling, at_a_time: int | None) -> None:
    """Handle so many messages at a time; None for one after the other."""
    if at_a_time is None:
        await _run_fifo(source, handling)
    else:
        await _run_parallel(source, handling, at_a_time)


async def _run_fifo(source: Source, handling: Handling) -> None:
    while not source.is_closing():
        source.settle()
        try:
            message = await source.next_message()
        except StopAsyncIteration:
            return
        try:
            await handling.handle(message)
        except BaseException:
            source.put_back([message])
            raise
        source.positions.handed[message.topic_partition] = message.offset + 1
    source.settle()


async def _run_parallel(source: Source, handling: Handling, concurrency: int) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            lanes = source.positions.lanes = Lanes(handling.handle, concurrency, group)
            await _feed(source, lanes)
    except ExceptionGroup as failures:
        # The first is the reason: it has cancelled the others.
        raise failures.exceptions[0] from None
    finally:
        ended = source.positions.end_lanes()
        if ended is not None:
            source.put_back(ended.unfinished())


async def _feed(source: Source, lanes: Lanes) -> None:
    while not source.is_closing():
        await lanes.room()
        try:
            message = await source.next_message()
        except StopAsyncIteration:
            return
        lanes.add(message)
