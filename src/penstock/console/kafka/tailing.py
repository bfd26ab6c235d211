"""Messages of a topic as they are written, without a group.

A tail has connections of its own, because a fetch that waits for records holds up its connection. A slow page
slows the tail down: it reads at most four times a second, and counts what it cannot show.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.kafka.offsets import LATEST, list_offsets
from penstock.console.kafka.reading import Found, Layout, fetch, layout_of, records_of
from penstock.console.views.filters import Predicate
from penstock.wire.apis.fetch import PartitionData

__all__ = ["Caught", "tail"]

_WAIT_MS: Final = 1_000
_RETRY_S: Final = 1.0
_PAUSE_S: Final = 0.25
#: messages of one event; a page can show no more
_MESSAGES_MAX: Final = 200


@dataclass(slots=True)
class Caught:
    """New messages, the number of those that were left out, and errors."""

    found: list[Found] = field(default_factory=list)
    skipped: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, other: Caught) -> None:
        self.found += other.found
        self.skipped += other.skipped
        self.errors += other.errors


async def tail(
    cluster: Cluster, topic: str, partitions: set[int] | None, predicate: Predicate | None
) -> AsyncGenerator[Caught, None]:
    """Messages from now on, by the time of their creation. Errors are yielded, and the tail goes on.

    The first yield is empty: messages that are written after it are not missed. The tail ends when `cluster`
    is closed.
    """
    follower = _Follower(cluster.sibling(), topic, partitions, predicate)
    reader = asyncio.create_task(follower.run())
    try:
        while not reader.done():
            wait = asyncio.create_task(follower.waiting.get())
            await asyncio.wait({wait, reader}, return_when=asyncio.FIRST_COMPLETED)
            if not wait.done():
                wait.cancel()
                break
            caught = wait.result()
            while not follower.waiting.empty():
                caught.add(follower.waiting.get_nowait())
            caught.found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset))
            caught.skipped += max(0, len(caught.found) - _MESSAGES_MAX)
            del caught.found[:-_MESSAGES_MAX]
            yield caught
        if not cluster.closed:
            reader.result()
    finally:
        reader.cancel()
        follower.cluster.close()


class _Follower:
    """Reads every leader of a topic, and starts over when leaders change."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: set[int] | None, predicate: Predicate | None
    ) -> None:
        self.cluster = cluster
        self.waiting: asyncio.Queue[Caught] = asyncio.Queue(maxsize=8)
        self._topic = topic
        self._wanted = partitions
        self._predicate = predicate
        self._positions: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            try:
                layout = await layout_of(self.cluster, self._topic)
                if await self._start(layout):
                    # From here on no message is missed.
                    await self.waiting.put(Caught())
                async with asyncio.TaskGroup() as group:
                    for leader, led in self._by_leader(layout).items():
                        group.create_task(self._follow(layout, leader, led))
            except* (Refused, NotReachable) as failed:
                await self.waiting.put(Caught(errors=sorted({str(each) for each in failed.exceptions})))
            await asyncio.sleep(_RETRY_S)

    async def _start(self, layout: Layout) -> bool:
        """Begin at the end of partitions that have no position yet; returns true if there was none at all."""
        is_first = not self._positions
        new = {
            (layout.topic, p): leader
            for p, leader in layout.leaders.items()
            if p not in self._positions and (self._wanted is None or p in self._wanted)
        }
        for (_, partition), offset in (await list_offsets(self.cluster, new, LATEST)).items():
            self._positions[partition] = offset
        return is_first and bool(self._positions)

    def _by_leader(self, layout: Layout) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for partition in self._positions:
            if partition in layout.leaders:
                found.setdefault(layout.leaders[partition], []).append(partition)
        if not found:
            raise Refused("LEADER_NOT_AVAILABLE", f"no partition of {layout.topic} has a leader")
        return found

    async def _follow(self, layout: Layout, leader: int, led: list[int]) -> None:
        while True:
            began = time.monotonic()
            offsets = {partition: self._positions[partition] for partition in led}
            caught = Caught()
            for data in await fetch(self.cluster, layout, leader, offsets, stable=True, wait_ms=_WAIT_MS):
                if data.error_code:
                    raise Refused("NOT_LEADER_OR_FOLLOWER", f"partition {data.partition_index} has moved")
                caught.add(self._take(data))
            if caught.found or caught.skipped:
                await self.waiting.put(caught)
            await asyncio.sleep(max(0.0, _PAUSE_S - (time.monotonic() - began)))

    def _take(self, data: PartitionData) -> Caught:
        partition, caught = data.partition_index, Caught()
        position = self._positions[partition]
        for record in records_of(data, True):
            if isinstance(record, int):
                self._positions[partition] = max(self._positions[partition], record)
            elif record.offset >= position and (
                self._predicate is None or self._predicate(partition, record)
            ):
                caught.found.append(Found(partition, record))
        caught.skipped = max(0, len(caught.found) - _MESSAGES_MAX)
        del caught.found[:-_MESSAGES_MAX]
        return caught
