"""The bounded queue of audit events on their way to the audit topic.

A full queue takes no further event and counts it. A request may reserve room before it changes anything.
Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

__all__ = ["AuditQueue"]


class AuditQueue:
    """Events in the order in which they happened."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: deque[dict[str, Any]] = deque()
        #: the room of requests whose events are to come
        self._reserved = 0
        #: events that found the queue full
        self.dropped = 0
        #: events that the topic has refused, and that no later event has reported yet
        self._lost = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: dict[str, Any]) -> bool:
        """Queue an event; False, and counted as dropped, if the queue is full."""
        if len(self._events) + self._reserved >= self._limit:
            self.dropped += 1
            return False
        self._events.append(event)
        self._filled.set()
        self._empty.clear()
        self._count_room()
        return True

    def _count_room(self) -> None:
        if len(self._events) + self._reserved < self._limit:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def filled(self) -> None:
        """Wait until there is an event."""
        await self._filled.wait()

    async def reserve(self, timeout_s: float) -> bool:
        """Wait for room and keep it until `release`; False if there is none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._has_room.is_set():
                    # Several requests wake up together: the first ones may take all the room.
                    await self._has_room.wait()
        except TimeoutError:
            return False
        self._reserved += 1
        self._count_room()
        return True

    def release(self) -> None:
        """Give reserved room back, just before its event is put, or if there is no event."""
        self._reserved -= 1
        self._count_room()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until the queue is empty; False if it is not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def first(self, count: int) -> list[dict[str, Any]]:
        """The oldest events, which stay until `remove`."""
        return [self._events[n] for n in range(min(count, len(self._events)))]

    def drop_first(self) -> None:
        """Drop the oldest event: the topic will never take it."""
        self._lost += 1
        self.remove(1)

    def take_lost(self) -> int:
        """The number of events that were dropped by `drop_first` since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def remove(self, count: int) -> None:
        """Remove the oldest events: they are in the topic."""
        for _ in range(count):
            self._events.popleft()
        if not self._events:
            self._filled.clear()
            self._empty.set()
        self._count_room()
