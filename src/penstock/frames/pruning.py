"""What the filter of a query leaves of ranges: partitions, offsets, and a time. Pure.

Arrow cannot show the parts of an expression, but it can tell that no row with a given property passes a
filter. So the filter is asked: can a row of partition 3 pass, one with an offset below 500, one before noon?
Bounds of offsets and times are found by bisection. A property that Arrow cannot rule out costs reading those
rows; the filter is applied to all rows that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from penstock.reading.planning import OffsetRange

__all__ = ["Pruned", "prune"]

#: the last millisecond of the year 9999
_TIME_MAX_MS: Final = 253_402_300_799_999
_FORMAT: Final = ds.IpcFileFormat()
_FILES: Final = pa.fs.LocalFileSystem()


@dataclass(frozen=True, slots=True)
class Pruned:
    """The ranges that a filter leaves, and the time before which it leaves nothing; None for any time.

    There is no such limit for an end: a record with an earlier time may follow a later one.
    """

    ranges: list[OffsetRange]
    since_ms: int | None = None


def prune(ranges: Iterable[OffsetRange], wanted: Any, schema: Any) -> Pruned:
    """The parts of `ranges` in which rows may pass the filter `wanted`, an expression over `schema`."""

    def passes(property_: Any) -> bool:
        return _may_pass(wanted, property_, schema)

    left = [each for each in ranges if passes(_place(each, schema))]
    if not left:
        return Pruned([])
    first = _bound(
        min(each.start for each in left),
        max(each.stop for each in left),
        lambda at: not passes(pc.field("offset") <= _scalar("offset", at - 1, schema)),
    )
    # The offsets from `stop` on are those that cannot pass.
    stop = -_bound(
        -max(each.stop for each in left),
        -min(each.start for each in left),
        lambda at: not passes(pc.field("offset") >= _scalar("offset", -at, schema)),
    )
    parts = [replace(each, start=max(each.start, first), stop=min(each.stop, stop)) for each in left]
    since_ms = _bound(0, _TIME_MAX_MS, lambda at: not passes(_before(at, schema)))
    return Pruned([each for each in parts if each.size > 0], since_ms or None)


def _bound(low: int, high: int, is_ruled_out: Callable[[int], bool]) -> int:
    """The largest number up to which rows are ruled out; `low` if none are."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_ruled_out(middle) else (low, middle - 1)
    return low


def _place(each: OffsetRange, schema: Any) -> Any:
    topic = pc.field("topic") == _scalar("topic", each.topic, schema)
    return topic & (pc.field("partition") == _scalar("partition", each.partition, schema))


def _before(time_ms: int, schema: Any) -> Any:
    time = pa.scalar(time_ms, pa.timestamp("ms", "UTC"))
    return pc.field("timestamp") < time.cast(schema.field("timestamp").type)


def _scalar(name: str, value: object, schema: Any) -> Any:
    return pa.scalar(value, schema.field(name).type)


def _may_pass(wanted: Any, guarantee: Any, schema: Any) -> bool:
    """Whether Arrow holds it possible that a row of which `guarantee` is true passes the filter.

    A dataset leaves out the files whose guarantee contradicts a filter; the file here is never opened.
    """
    files = ds.FileSystemDataset.from_paths(
        ["rows"], schema=schema, format=_FORMAT, filesystem=_FILES, partitions=[guarantee]
    )
    return next(iter(files.get_fragments(filter=wanted)), None) is not None
