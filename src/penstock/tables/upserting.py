"""The next rows of a bucket of an upsert table, without I/O.

A key has the row of its latest record, or none if that record is a tombstone. Of records of one partition,
the one with the highest offset is the latest. A topic that has got more partitions has records of one key in
two of them: the one with the later timestamp counts, of equal timestamps the one that was read later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

import pyarrow as pa

from penstock.jobs.delta import INSTANT

__all__ = ["bucket_of", "next_rows", "with_columns"]

_KEY: Final = "_key"


def bucket_of(key: bytes | None, buckets: int) -> int:
    """The bucket of a key; part of the format of a table. Messages without a key are dead letters anyway."""
    return crc32(key or b"") % buckets


def with_columns(rows: Any, schema: Any) -> Any:
    """Rows of an older version of a table, with the columns of `schema`, and null in those that they lack."""
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def next_rows(before: Any, rows: Any, deletes: Sequence[bool]) -> Any:
    """The rows of a bucket after `rows`, of which `deletes` says which ones are tombstones.

    `rows` are in the order in which they were read. The result has the keys in an order that does not depend
    on the order of the rows before.
    """
    every = pa.concat_tables([before, rows])
    is_deleted = [False] * len(before) + list(deletes)
    latest: dict[Any, int] = {}
    times = every["_timestamp"].cast(INSTANT).cast(pa.int64()).to_pylist()
    partitions, offsets = every["_partition"].to_pylist(), every["_offset"].to_pylist()
    for number, key in enumerate(every[_KEY].to_pylist()):
        other = latest.get(key)
        if other is None or _is_later(number, other, partitions, offsets, times):
            latest[key] = number
    kept = [number for key, number in sorted(latest.items()) if not is_deleted[number]]
    return every.take(pa.array(kept, pa.int64()))


def _is_later(one: int, other: int, partitions: list[int], offsets: list[int], times: list[int]) -> bool:
    if partitions[one] == partitions[other]:
        return offsets[one] > offsets[other]
    return times[one] >= times[other]
