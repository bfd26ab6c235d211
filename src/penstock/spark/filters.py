"""What the filters of a query leave of a topic: partitions, offsets, and a time. Pure.

Spark evaluates all filters again, so a filter that is not understood here, or only in part, costs nothing but
the rows that are read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.model.ids import TopicPartition
from penstock.reading.planning import OffsetRange
from penstock.records.columnar import ALL_TIMES

__all__ = ["EVERYTHING", "Pushed", "from_first", "pushed"]

_ENDLESS: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Pushed:
    """All of these at once; None is any."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    #: exclusive
    stop: int = _ENDLESS
    #: Records before the first one of this time or later are not wanted. There is no such limit of offsets
    #: for an end: a record with an earlier time may follow a later one.
    since_ms: int | None = None
    #: exclusive
    until_ms: int = _ENDLESS

    @property
    def times(self) -> range:
        """The timestamps that are wanted, in milliseconds."""
        start = ALL_TIMES.start if self.since_ms is None else self.since_ms
        return range(start, self.until_ms)

    def ranges(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of these ranges that partitions and offsets leave."""
        found = (
            replace(each, start=max(each.start, self.first), stop=min(each.stop, self.stop))
            for each in ranges
            if (self.topics is None or each.topic in self.topics)
            and (self.partitions is None or each.partition in self.partitions)
        )
        return [each for each in found if each.size > 0]


EVERYTHING: Final = Pushed()


def pushed(filters: Iterable[Filter]) -> Pushed:
    """What these filters leave, all of which must hold."""
    found = EVERYTHING
    for each in filters:
        if isinstance(each, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            found = _with(found, each)
    return found


def _with(found: Pushed, wanted: Any) -> Pushed:
    column, value = wanted.attribute, wanted.value
    if isinstance(wanted, EqualTo | In):
        values = frozenset(value if isinstance(wanted, In) else [value])
        if column == ("topic",):
            return replace(found, topics=values if found.topics is None else found.topics & values)
        if column == ("partition",):
            return replace(
                found, partitions=values if found.partitions is None else found.partitions & values
            )
    if column == ("offset",) and isinstance(value, int):
        return _with_offset(found, wanted, value)
    if column == ("timestamp",) and isinstance(value, datetime) and value.tzinfo is not None:
        return _with_time(found, wanted, (value - _EPOCH) // _MILLISECOND)
    return found


def _with_time(found: Pushed, wanted: Any, value_ms: int) -> Pushed:
    """`value_ms` is rounded down, and timestamps of records are whole milliseconds."""
    since_ms, until_ms = found.since_ms, found.until_ms
    if isinstance(wanted, EqualTo | GreaterThan | GreaterThanOrEqual):
        since_ms = max(value_ms, since_ms or 0)
    if isinstance(wanted, EqualTo | LessThan | LessThanOrEqual):
        until_ms = min(until_ms, value_ms + 1)
    return replace(found, since_ms=since_ms, until_ms=until_ms)


def _with_offset(found: Pushed, wanted: Any, value: int) -> Pushed:
    first, stop = found.first, found.stop
    if isinstance(wanted, EqualTo | GreaterThan | GreaterThanOrEqual):
        first = max(first, value + isinstance(wanted, GreaterThan))
    if isinstance(wanted, EqualTo | LessThan | LessThanOrEqual):
        stop = min(stop, value + (not isinstance(wanted, LessThan)))
    return replace(found, first=first, stop=stop)


def from_first(ranges: Iterable[OffsetRange], first: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The parts of ranges from the first wanted offset of each partition on; -1 if there is none."""
    found = (
        replace(each, start=max(each.start, first[each.whose])) for each in ranges if first[each.whose] >= 0
    )
    return [each for each in found if each.size > 0]
