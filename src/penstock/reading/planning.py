"""Plans the ranges and tasks of a batch: pure functions of offsets and options.

They follow Spark's Kafka connector, so that a query that moves over reads the same: a limit is shared out by
how much each partition has, and ranges are cut into parts of equal size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from penstock.model.ids import TopicPartition
from penstock.reading.errors import WrongOption
from penstock.reading.offsets import Offsets

__all__ = ["OffsetRange", "check_order", "limited", "plan", "ranges_between", "within_log"]


@dataclass(frozen=True)
class OffsetRange:
    """The range of one task: offsets `start` to `stop`, exclusive, of one partition of a topic."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def whose(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges between two offsets. A partition that is missing in `start` is new: it is read from 0."""
    ranges = [OffsetRange(*partition, start.get(partition, 0), stop) for partition, stop in end.items()]
    return sorted((each for each in ranges if each.size > 0), key=lambda each: (each.topic, each.partition))


def check_order(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    """Refuse a batch that would start after its end, as Spark's connector does.

    Both are resolved: "earliest", "latest" and times are offsets here.
    """
    for partition, at in sorted(start.items()):
        stop = end.get(partition, at)
        if at > stop:
            raise WrongOption(
                f"the start offset {at} of {partition} is greater than its end offset {stop}: the query "
                "starts beyond its end, or beyond the end of the topic"
            )


def within_log(
    named: Mapping[TopicPartition, int], log_ends: Mapping[TopicPartition, int], *, is_refused: bool
) -> Offsets:
    """The named end offsets. One beyond the end of its log is refused, or is the end of the log instead.

    Nobody may ever write so far: a task would wait for that until it times out.
    """
    for partition, at in sorted(named.items()):
        if is_refused and at > log_ends[partition]:
            raise WrongOption(
                f"the end offset {at} of {partition} is beyond its end, {log_ends[partition]}: "
                "set failOnDataLoss=false to read up to there"
            )
    return {partition: min(at, log_ends[partition]) for partition, at in named.items()}


def plan(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """`ranges` in parts of at most `max_records` offsets, and in about `min_partitions` parts at least.

    The largest range comes first: tasks start in this order, and the last to end should be small.
    """
    parts = sorted(ranges, key=lambda each: each.size, reverse=True)
    if max_records is not None:
        parts = [part for each in parts for part in _cut(each, math.ceil(each.size / max_records))]
    if min_partitions is not None and len(parts) < min_partitions:
        total = sum(each.size for each in parts)
        parts = [
            part for each in parts for part in _cut(each, max(1, round(each.size / total * min_partitions)))
        ]
    return parts


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    cut = (OffsetRange(whole.topic, whole.partition, *edge) for edge in pairwise(edges))
    return [part for part in cut if part.size > 0]


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """`end`, or less, so that about `most` offsets lie before it, in proportion to each partition's rest."""
    available = {partition: stop - start.get(partition, 0) for partition, stop in end.items()}
    total = sum(size for size in available.values() if size > 0)
    if total <= most:
        return dict(end)
    nearer: Offsets = {}
    for partition, stop in end.items():
        share = max(0, available[partition]) * most / total
        # every partition with records advances, however small its share is
        taken = math.ceil(share) if share < 1 else math.floor(share)
        nearer[partition] = min(stop, start.get(partition, 0) + taken)
    return nearer
