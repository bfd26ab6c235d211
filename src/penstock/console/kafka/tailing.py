"""Messages of a topic as they are written, without a group.

A tail has connections of its own, because a fetch that waits for records holds up its connection. Messages of
all leaders are joined into frames, four a second at most, whatever the number of messages and brokers: a page
draws once for each. A slow page slows the tail down, and the tail counts what it cannot show. Responses are
unpacked in worker threads, each within a budget of uncompressed bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.kafka.offsets import LATEST, list_offsets
from penstock.console.kafka.reading import Layout, aborted_of, buffer_of, fetch, layout_of
from penstock.console.kafka.workers import in_worker
from penstock.console.views.filters import Predicate
from penstock.console.views.unpacking import Budget, Exhausted, Found, Oversized, unpack
from penstock.records.record import Record
from penstock.wire.apis.fetch import PartitionData

__all__ = ["Caught", "tail"]

_WAIT_MS: Final = 1_000
_RETRY_S: Final = 1.0
_PAUSE_S: Final = 0.25
#: the time between two frames
FRAME_S: Final = 0.25
#: messages of one event; a page can show no more
_MESSAGES_MAX: Final = 200
#: uncompressed bytes and records of one turn; the next turn goes on behind them
_BYTES_MAX: Final = 8 << 20
_RECORDS_MAX: Final = 50_000


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
    due = 0.0
    try:
        while not reader.done():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            wait = asyncio.create_task(follower.waiting.get())
            try:
                await asyncio.wait({wait, reader}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                # The page may be closed while the tail waits.
                if not wait.done():
                    wait.cancel()
            if not wait.done() or wait.cancelled():
                break
            caught = wait.result()
            while not follower.waiting.empty():
                caught.add(follower.waiting.get_nowait())
            caught.found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset))
            caught.skipped += max(0, len(caught.found) - _MESSAGES_MAX)
            del caught.found[:-_MESSAGES_MAX]
            due = time.monotonic() + FRAME_S
            yield caught
        if not cluster.closed:
            reader.result()
    finally:
        reader.cancel()
        follower.cluster.close()
        # An event loop that ends before a cancelled task has ended reports it as destroyed.
        await asyncio.wait([reader])


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
                caught.add(await in_worker(partial(self._take, data)))
            if caught.found or caught.skipped:
                await self.waiting.put(caught)
            await asyncio.sleep(max(0.0, _PAUSE_S - (time.monotonic() - began)))

    def _take(self, data: PartitionData) -> Caught:
        """The matching records of a response, in a worker thread. No other task has this partition."""
        partition, caught = data.partition_index, Caught()
        position, budget = self._positions[partition], Budget(_BYTES_MAX, _RECORDS_MAX)
        # The next fetch goes on behind the last record.
        with suppress(Exhausted):
            for each in unpack(buffer_of(data), aborted_of(data), budget):
                if isinstance(each, int):
                    position = max(position, each)
                elif isinstance(each, Oversized) and each.last_offset >= position:
                    stand_in = Record(max(each.base_offset, position), each.timestamp, None, None)
                    caught.found.append(Found(partition, stand_in, each))
                elif isinstance(each, Record) and each.offset >= position:
                    position = each.offset + 1
                    if self._predicate is None or self._predicate(partition, each):
                        caught.found.append(Found(partition, each))
        self._positions[partition] = position
        caught.skipped += max(0, len(caught.found) - _MESSAGES_MAX)
        del caught.found[:-_MESSAGES_MAX]
        return caught
