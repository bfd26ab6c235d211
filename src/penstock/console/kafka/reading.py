"""Reads messages without a group: no commit, no membership, no topic that is created by reading.

Invariant: one request reads at most `BYTES_MAX` uncompressed bytes and `RECORDS_MAX` records, and one batch
more, and takes at most `SECONDS_MAX`. A search that ends at a limit returns its position, so that the next
request goes on there. Records are unpacked and filtered in worker threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.kafka.workers import in_worker
from penstock.console.views.filters import Predicate
from penstock.console.views.samples import Key
from penstock.console.views.unpacking import Budget, Exhausted, Found, Oversized, unpack
from penstock.model.errors import ErrorCode
from penstock.ports import Buffer
from penstock.records.committed import Aborted
from penstock.records.record import Record, iter_batches
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from penstock.wire.apis.metadata import MetadataResponseTopic
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["Browse", "Layout", "Page", "aborted_of", "browse", "buffer_of", "fetch", "layout_of", "read_one"]

BYTES_MAX: Final = 32 << 20
RECORDS_MAX: Final = 200_000
SECONDS_MAX: Final = 8.0
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 8 << 20
#: the first window of a search backwards; later ones are larger
_WINDOW: Final = 100
_WINDOW_MAX: Final = 20_000
#: a window whose records exceed the limits is read again with fewer offsets
_WINDOW_DIVISOR: Final = 8
#: the limit of the batch of one message, which a user has asked for
_ONE_BYTES_MAX: Final = 64 << 20
_ONE_RECORDS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """A topic as its metadata describes it: id, and leaders by partition."""

    topic: str
    topic_id: bytes
    leaders: Mapping[int, int]
    partitions: int


@dataclass(slots=True)
class Browse:
    """The range. `positions` are offsets by partition: the first to read, or the first not to read."""

    positions: dict[int, int]
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    limit: int
    backwards: bool
    committed: bool = True
    predicate: Predicate | None = None


@dataclass(slots=True)
class Page:
    """Messages, and the positions to go on from."""

    found: list[Found] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    scanned: int = 0
    scanned_bytes: int = 0
    #: whether a limit of bytes, records or time has ended the search
    limited: bool = False
    #: (partition, base offset) of batches that are too large to be searched; some are read more than once
    oversized: set[tuple[int, int]] = field(default_factory=set)
    #: partitions whose leader has not responded, with the reason
    missing: dict[int, str] = field(default_factory=dict)


async def layout_of(cluster: Cluster, topic: str) -> Layout:
    """The leaders of a topic; Refused if there is none or it may not be described."""
    metadata = await cluster.metadata([topic])
    found: MetadataResponseTopic = metadata.topics[0]
    check(found.error_code, None, f"topic {topic}")
    leaders = {p.partition_index: p.leader_id for p in found.partitions if p.leader_id >= 0}
    return Layout(topic, found.topic_id, leaders, len(found.partitions))


async def bounds(
    cluster: Cluster, layout: Layout, partitions: list[int], *, stable: bool
) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the next offset of partitions; those without a leader are left out."""
    keys: dict[Key, int] = {(layout.topic, p): layout.leaders[p] for p in partitions if p in layout.leaders}
    starts, ends = await asyncio.gather(
        list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST, committed=stable)
    )
    return {p: offset for (_, p), offset in starts.items()}, {p: offset for (_, p), offset in ends.items()}


async def browse(cluster: Cluster, layout: Layout, wanted: Browse) -> Page:
    """The messages that match, in the order of their time, the oldest first."""
    page = Page(positions=dict(wanted.positions))
    deadline = time.monotonic() + SECONDS_MAX
    budget = Budget(BYTES_MAX, RECORDS_MAX, lambda: time.monotonic() > deadline)
    reading = _Reading(cluster, layout, wanted, page, budget)
    window = max(_WINDOW, wanted.limit) if wanted.predicate is not None else wanted.limit
    while len(page.found) < wanted.limit and not page.limited:
        ranges = _backward(page, wanted, window) if wanted.backwards else _forward(page, wanted)
        if not ranges:
            break
        if not wanted.backwards:
            await reading.forwards(ranges)
        elif await reading.backwards(ranges) or page.positions != wanted.positions or window == 1:
            window = min(_WINDOW_MAX, window * 4)
        elif not budget.is_late():
            # Not even one partition fits: the newest part of its window has to.
            window = max(1, window // _WINDOW_DIVISOR)
            budget.bytes_left, budget.records_left, page.limited = BYTES_MAX, RECORDS_MAX, False
    page.found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset))
    _cut(page, wanted)
    return page


def _backward(page: Page, wanted: Browse, window: int) -> dict[int, range]:
    ranges = {}
    for partition, upper in page.positions.items():
        start = wanted.starts.get(partition, 0)
        if upper > start and partition not in page.missing:
            ranges[partition] = range(max(start, upper - window), upper)
    return ranges


def _forward(page: Page, wanted: Browse) -> dict[int, range]:
    return {
        partition: range(max(position, wanted.starts.get(partition, 0)), wanted.ends[partition])
        for partition, position in page.positions.items()
        if position < wanted.ends.get(partition, 0) and partition not in page.missing
    }


@dataclass(slots=True)
class _Reading:
    """One search: fetches, and takes the matching records into the page."""

    cluster: Cluster
    layout: Layout
    wanted: Browse
    page: Page
    budget: Budget

    async def forwards(self, ranges: dict[int, range]) -> None:
        """Read one response of each leader."""
        page = self.page
        fetched = await self._fetch({partition: span.start for partition, span in ranges.items()})
        for partition, data in fetched.items():
            if self.budget.is_spent():
                break
            span = ranges[partition]
            page.positions[partition] = await self._take(partition, span.start, span, data, page.found)
        page.limited = self.budget.is_spent()

    async def backwards(self, ranges: dict[int, range]) -> bool:
        """Read the ranges; returns whether any was read to its end. Only these move their positions."""
        # A range that was read in part must be complete before an older one is read.
        rest = {partition: span.start for partition, span in ranges.items()}
        found: list[Found] = []
        while rest and not self.budget.is_spent():
            for partition, data in (await self._fetch(rest)).items():
                before, span = rest[partition], ranges[partition]
                after = await self._take(partition, before, span, data, found)
                if after >= span.stop or (after <= before and not self.budget.is_spent()):
                    del rest[partition]
                else:
                    rest[partition] = after
                if self.budget.is_spent():
                    break
            for partition in [p for p in rest if p in self.page.missing]:
                del rest[partition]
        done = {p for p in ranges if p not in rest and p not in self.page.missing}
        self.page.found += [each for each in found if each.partition in done]
        self.page.positions |= {p: ranges[p].start for p in done}
        self.page.limited = self.budget.is_spent()
        return bool(done)

    async def _fetch(self, positions: Mapping[int, int]) -> dict[int, PartitionData]:
        return await _fetch_each(self.cluster, self.layout, positions, self.wanted.committed, self.page)

    async def _take(
        self, partition: int, position: int, span: range, data: PartitionData, found: list[Found]
    ) -> int:
        """Keep the matching records of a response; returns the next position."""
        return await in_worker(lambda: self._taken(partition, position, span, data, found))

    def _taken(
        self, partition: int, position: int, span: range, data: PartitionData, found: list[Found]
    ) -> int:
        wanted, page, budget = self.wanted, self.page, self.budget
        before, after = budget.bytes_left, position
        try:
            for each in unpack(buffer_of(data), aborted_of(data) if wanted.committed else None, budget):
                if isinstance(each, int):
                    after = max(after, each)
                elif isinstance(each, Oversized):
                    self._take_oversized(partition, position, span, each, found)
                else:
                    after = max(after, each.offset + 1)
                    if each.offset in span and each.offset >= position:
                        page.scanned += 1
                        if wanted.predicate is None or wanted.predicate(partition, each):
                            found.append(Found(partition, each))
        except Exhausted:
            return after
        finally:
            page.scanned_bytes += before - budget.bytes_left
        return span.stop if after == position and not _has_batches(data) else after

    def _take_oversized(
        self, partition: int, position: int, span: range, batch: Oversized, found: list[Found]
    ) -> None:
        """A page shows a row for the batch at its first offset; a search counts it."""
        first = max(batch.base_offset, self.wanted.starts.get(partition, 0))
        if not self.wanted.backwards:
            first = max(first, position)
        if first not in span or first > batch.last_offset:
            return
        if self.wanted.predicate is not None:
            self.page.oversized.add((partition, batch.base_offset))
        else:
            found.append(Found(partition, Record(first, batch.timestamp, None, None), batch))


def buffer_of(data: PartitionData) -> Buffer:
    assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
    return data.records or b""


def aborted_of(data: PartitionData) -> list[Aborted]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]


def _has_batches(data: PartitionData) -> bool:
    return any(True for _ in iter_batches(buffer_of(data)))


async def _fetch_each(
    cluster: Cluster, layout: Layout, positions: Mapping[int, int], stable: bool, page: Page
) -> dict[int, PartitionData]:
    """One fetch of every leader; a partition that fails is noted in `page.missing`."""
    by_leader: dict[int, dict[int, int]] = {}
    for partition, offset in positions.items():
        leader = layout.leaders.get(partition)
        if leader is None:
            page.missing[partition] = "the partition has no leader"
        else:
            by_leader.setdefault(leader, {})[partition] = offset
    found: dict[int, PartitionData] = {}
    requests = [fetch(cluster, layout, node, offsets, stable=stable) for node, offsets in by_leader.items()]
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for offsets, answer in zip(by_leader.values(), answers, strict=True):
        if isinstance(answer, NotReachable | Refused):
            page.missing |= dict.fromkeys(offsets, str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for data in answer:
                _sort_out(data, found, page)
    return found


def _sort_out(data: PartitionData, found: dict[int, PartitionData], page: Page) -> None:
    if not data.error_code:
        found[data.partition_index] = data
    elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        page.missing[data.partition_index] = "the messages were deleted meanwhile: read again"
    elif reaction_to(data.error_code) is Reaction.FAIL:
        check(data.error_code, None, f"partition {data.partition_index}")
    else:
        page.missing[data.partition_index] = f"{ErrorCode(data.error_code).name}: read again"


async def fetch(
    cluster: Cluster,
    layout: Layout,
    node: int,
    offsets: Mapping[int, int],
    *,
    stable: bool,
    wait_ms: int = 0,
    partition_bytes: int = _PARTITION_BYTES,
) -> list[PartitionData]:
    """One Fetch request without a session, as consumers send it."""
    partitions = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for partition, offset in offsets.items()
    ]
    topic = FetchTopic(topic=layout.topic, topic_id=layout.topic_id, partitions=partitions)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=_RESPONSE_BYTES,
        isolation_level=int(stable),
        topics=[topic],
    )
    response = await cluster.send_to(node, FETCH, request, cluster.timeout_s + wait_ms / 1000)
    check(response.error_code, None, f"topic {layout.topic}")
    return [data for topic in response.responses for data in topic.partitions]


def _cut(page: Page, wanted: Browse) -> None:
    """Keep `limit` messages, and move the positions back to those that were not kept."""
    extra = len(page.found) - wanted.limit
    if extra <= 0:
        return
    if wanted.backwards:
        dropped, page.found = page.found[:extra], page.found[extra:]
        for partition, record, _ in dropped:
            page.positions[partition] = max(page.positions[partition], record.offset + 1)
    else:
        dropped, page.found = page.found[-extra:], page.found[:-extra]
        for partition, record, _ in dropped:
            page.positions[partition] = min(page.positions[partition], record.offset)


async def read_one(cluster: Cluster, layout: Layout, partition: int, offset: int) -> Record:
    """The message at an offset; Refused if there is none, as after compaction."""
    if partition not in layout.leaders:
        raise Refused("LEADER_NOT_AVAILABLE", f"{layout.topic}-{partition} has no leader")
    answers = await fetch(
        cluster, layout, layout.leaders[partition], {partition: offset}, stable=False, partition_bytes=1
    )
    for data in answers:
        check(data.error_code, None, f"{layout.topic}-{partition} offset {offset}")
        found = await in_worker(partial(_at, data, offset))
        if isinstance(found, Oversized):
            size = f"{'' if found.is_exact else 'more than '}{found.size:,} bytes"
            raise Refused(
                "RECORD_LIST_TOO_LARGE",
                f"offset {offset} is in a batch of {found.records:,} record(s), {found.stored:,} bytes, "
                f"{size} uncompressed, which is too large to show: read it with penstock consume",
            )
        if found is not None:
            return found
    raise Refused("OFFSET_OUT_OF_RANGE", f"{layout.topic}-{partition} has no message at offset {offset}")


def _at(data: PartitionData, offset: int) -> Record | Oversized | None:
    """The record at an offset, or the batch of it if that is too large."""
    budget = Budget(
        _ONE_BYTES_MAX, _ONE_RECORDS_MAX, batch_bytes=_ONE_BYTES_MAX, batch_records=_ONE_RECORDS_MAX
    )
    try:
        for each in unpack(buffer_of(data), None, budget):
            if isinstance(each, Oversized):
                if each.base_offset <= offset <= each.last_offset:
                    return each
            elif isinstance(each, Record) and each.offset == offset:
                return each
    except Exhausted:
        return None
    return None
