"""The latest record of a key counts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.jobs.delta import INSTANT
from penstock.tables.upserting import bucket_of, next_rows, with_columns

SCHEMA = pa.schema(
    [("_timestamp", INSTANT), ("_partition", pa.int32()), ("_offset", pa.int64()), ("_key", pa.string())]
)


def table(*rows: tuple[str, int, int, int]) -> Any:
    """Rows of key, partition, offset and second."""
    keys, partitions, offsets, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.Table.from_arrays(
        [
            pa.array([time * 1_000_000 for time in times], pa.int64()).cast(INSTANT),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(keys, pa.string()),
        ],
        schema=SCHEMA,
    )


def kept(rows: Any) -> list[tuple[str, int, int]]:
    return [(row["_key"], row["_partition"], row["_offset"]) for row in rows.to_pylist()]


def test_the_highest_offset_of_a_partition_counts_before_its_time() -> None:
    after = next_rows(table(("a", 0, 1, 50)), table(("a", 0, 3, 10), ("a", 0, 2, 90)), [False, False])
    assert kept(after) == [("a", 0, 3)]


def test_a_tombstone_removes_its_key_and_earlier_ones_do_not() -> None:
    before = table(("a", 0, 1, 1), ("b", 0, 5, 1))
    after = next_rows(before, table(("a", 0, 2, 2), ("b", 0, 4, 2), ("c", 0, 6, 2)), [True, True, True])
    assert kept(after) == [("b", 0, 5)]


def test_of_two_partitions_the_later_time_counts() -> None:
    before = table(("a", 0, 100, 10), ("b", 0, 100, 10), ("c", 0, 100, 10))
    after = next_rows(before, table(("a", 1, 0, 11), ("b", 1, 1, 9), ("c", 1, 2, 10)), [False] * 3)
    assert kept(after) == [("a", 1, 0), ("b", 0, 100), ("c", 1, 2)]


def test_rows_are_in_the_order_of_keys() -> None:
    after = next_rows(table(("z", 0, 1, 1)), table(("b", 0, 2, 1), ("a", 0, 3, 1)), [False, False])
    assert [key for key, *_ in kept(after)] == ["a", "b", "z"]


def test_older_rows_get_the_columns_that_they_lack() -> None:
    old = pa.table({"_key": ["a"], "o": pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))})
    schema = pa.schema(
        [("_key", pa.string()), ("o", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("n", pa.int64())]
    )
    assert with_columns(old, schema).to_pylist() == [{"_key": "a", "o": {"x": 1, "y": None}, "n": None}]


def test_buckets_are_part_of_the_format() -> None:
    assert [bucket_of(key, 16) for key in (b"", b"a", b"orders-1", None)] == [0, 3, 6, 0]
