"""Handling messages side by side, in order where order matters.

A lane is a key of a partition, or all of a partition's messages without a key: its messages are handled one
after the other. Lanes run at the same time, `concurrency` handlers at once. A partition's position is its
lowest unfinished offset: nothing is committed over the head of a message that is still being handled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from penstock.client.message import Message
from penstock.model.ids import TopicPartition

__all__ = ["Lanes", "Progress"]

_Lane: TypeAlias = tuple[TopicPartition, bytes | None]
#: Messages that are taken on per handler that may run: enough to keep all busy while some keys are slow.
_AHEAD = 16


class Progress:
    """The offsets of one partition that have been begun, in order, and which of them are finished."""

    __slots__ = ("_begun", "_finished", "position")

    def __init__(self) -> None:
        self._begun: deque[int] = deque()
        self._finished: set[int] = set()
        #: everything below is finished; None before the first is
        self.position: int | None = None

    @property
    def unfinished(self) -> bool:
        return bool(self._begun)

    def begin(self, offset: int) -> None:
        self._begun.append(offset)

    def finish(self, offset: int) -> None:
        self._finished.add(offset)
        while self._begun and self._begun[0] in self._finished:
            lowest = self._begun.popleft()
            self._finished.remove(lowest)
            self.position = lowest + 1


class Lanes:
    """Takes messages in the order of their offsets and handles them in tasks of `group`."""

    def __init__(
        self, handle: Callable[[Message], Awaitable[None]], concurrency: int, group: asyncio.TaskGroup
    ) -> None:
        self._handle = handle
        self._group = group
        self._slots = asyncio.Semaphore(concurrency)
        self._limit = concurrency * _AHEAD
        #: with each message the progress that it counts for, which is not the partition's after `forget`
        self._lanes: dict[_Lane, deque[tuple[Message, Progress]]] = {}
        self._progress: dict[TopicPartition, Progress] = {}
        self._unfinished = 0
        self._changed = asyncio.Event()
        self._abandoned = False

    async def room(self) -> None:
        """Wait until fewer messages are unfinished than the limit allows."""
        while self._unfinished >= self._limit:
            await self._change()

    def add(self, message: Message) -> None:
        """Queue a message. The caller has awaited `room` first."""
        assert self._unfinished < self._limit
        partition = message.topic_partition
        progress = self._progress.setdefault(partition, Progress())
        progress.begin(message.offset)
        self._unfinished += 1
        lane = partition, message.raw_key
        queue = self._lanes.get(lane)
        if queue is not None:
            queue.append((message, progress))
        else:
            self._lanes[lane] = deque([(message, progress)])
            self._group.create_task(self._work(lane))

    def positions(self) -> dict[TopicPartition, int]:
        """Up to where each partition is finished, of those that are."""
        return {tp: p.position for tp, p in self._progress.items() if p.position is not None}

    def unfinished(self) -> list[Message]:
        """Unfinished messages of partitions that are still assigned, in the order of the offsets."""
        messages = [
            message
            for queue in self._lanes.values()
            for message, progress in queue
            if self._progress.get(message.topic_partition) is progress
        ]
        return sorted(messages, key=lambda message: message.offset)

    async def drain(self, partitions: set[TopicPartition]) -> None:
        """Wait until no message of these partitions is being handled, or no handler runs any more."""
        while not self._abandoned and any(
            p.unfinished for tp, p in self._progress.items() if tp in partitions
        ):
            await self._change()

    def forget(self, partitions: set[TopicPartition]) -> None:
        """Forget partitions that were revoked or reset: the end of their handlers has no effect."""
        for partition in partitions:
            self._progress.pop(partition, None)

    def abandon(self) -> None:
        """No handler runs any more: wake up all waiting tasks."""
        self._abandoned = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _work(self, lane: _Lane) -> None:
        queue = self._lanes[lane]
        while queue:
            message, progress = queue[0]
            async with self._slots:
                await self._handle(message)
            queue.popleft()
            progress.finish(message.offset)
            self._unfinished -= 1
            self._changed.set()
        del self._lanes[lane]
