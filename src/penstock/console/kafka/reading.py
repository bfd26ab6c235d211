"""Reads messages without a group: no commit, no membership, no topic that is created by reading.

Invariant: one request reads at most `BYTES_MAX` bytes and `RECORDS_MAX` records and takes at most
`SECONDS_MAX`. A search that ends at a limit returns its position, so that the next request goes on there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, check
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.views.filters import Predicate
from penstock.console.views.samples import Key
from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.records.committed import committed
from penstock.records.record import Record, iter_batches, iter_records
from penstock.wire.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from penstock.wire.apis.metadata import MetadataResponseTopic
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["Browse", "Found", "Layout", "Page", "browse", "layout_of", "read_one"]

BYTES_MAX: Final = 32 << 20
RECORDS_MAX: Final = 200_000
SECONDS_MAX: Final = 8.0
_PARTITION_BYTES: Final = 1 << 20
_RESPONSE_BYTES: Final = 8 << 20
#: the first window of a search backwards; later ones are larger
_WINDOW: Final = 100
_WINDOW_MAX: Final = 20_000


class Found(NamedTuple):
    partition: int
    record: Record


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
    window = max(_WINDOW, wanted.limit) if wanted.predicate is not None else wanted.limit
    while len(page.found) < wanted.limit and not page.limited:
        ranges = _backward(page, wanted, window) if wanted.backwards else _forward(page, wanted)
        if not ranges:
            break
        await _read(cluster, layout, wanted, ranges, page, deadline)
        window = min(_WINDOW_MAX, window * 4)
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


async def _read(
    cluster: Cluster,
    layout: Layout,
    wanted: Browse,
    ranges: dict[int, range],
    page: Page,
    deadline: float,
) -> None:
    """Read the ranges: all of them backwards, one response of each leader forwards."""
    # A range that was read in part must be complete before an older one is read.
    rest = {partition: span.start for partition, span in ranges.items()}
    while rest and not page.limited:
        fetched = await _fetch_each(cluster, layout, rest, wanted.committed, page)
        for partition, data in fetched.items():
            before = rest[partition]
            after = _take(partition, before, ranges[partition], data, wanted, page)
            if after >= ranges[partition].stop or after <= before:
                del rest[partition]
            else:
                rest[partition] = after
            if not wanted.backwards:
                page.positions[partition] = max(after, before)
            await asyncio.sleep(0)  # other pages get their turn
        for partition in [p for p in rest if p in page.missing]:
            del rest[partition]
        page.limited = _is_over(page, deadline)
        if not wanted.backwards:
            return
    for partition, span in ranges.items():
        if partition not in rest and partition not in page.missing:
            page.positions[partition] = span.start


def _is_over(page: Page, deadline: float) -> bool:
    over = page.scanned >= RECORDS_MAX or page.scanned_bytes >= BYTES_MAX
    return over or time.monotonic() > deadline


def _take(partition: int, position: int, span: range, data: PartitionData, wanted: Browse, page: Page) -> int:
    """Keep the matching records of a response; returns the next position."""
    page.scanned_bytes += 0 if data.records is None else len(memoryview(_buffer(data)))
    after = position
    for record in records_of(data, wanted.committed):
        if record is None or isinstance(record, int):
            after = max(after, record or after)
            continue
        after = max(after, record.offset + 1)
        if record.offset not in span or record.offset < position:
            continue
        page.scanned += 1
        if wanted.predicate is None or wanted.predicate(partition, record):
            page.found.append(Found(partition, record))
    return span.stop if after == position and not _has_batches(data) else after


def _buffer(data: PartitionData) -> bytes | bytearray | memoryview:
    assert isinstance(data.records, bytes | bytearray | memoryview)
    return data.records


def _has_batches(data: PartitionData) -> bool:
    return data.records is not None and any(True for _ in iter_batches(_buffer(data)))


def records_of(data: PartitionData, stable: bool) -> Iterator[Record | int]:
    """The records of a fetch response, and after each batch its next offset.

    The next offset matters for batches without visible records: control batches, aborted transactions.
    """
    if data.records is None:
        return
    buffer = memoryview(_buffer(data))
    batches = list(iter_batches(buffer))
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    shown = {position for position, _ in (committed(buffer, batches, aborted) if stable else batches)}
    for position, header in batches:
        if position in shown and not header.is_control:
            try:
                yield from iter_records(buffer[position : position + header.size])
            except CorruptMessage:
                # One batch that cannot be decoded must not hide the others.
                yield Record(
                    header.base_offset, header.max_timestamp, None, None, (("penstock.corrupt", b"1"),)
                )
        yield header.next_offset


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
        for partition, record in dropped:
            page.positions[partition] = max(page.positions[partition], record.offset + 1)
    else:
        dropped, page.found = page.found[-extra:], page.found[:-extra]
        for partition, record in dropped:
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
        for record in records_of(data, False):
            if isinstance(record, Record) and record.offset == offset:
                return record
    raise Refused("OFFSET_OUT_OF_RANGE", f"{layout.topic}-{partition} has no message at offset {offset}")
