"""What filters leave of a topic."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from penstock.model.ids import TopicPartition
from penstock.reading.planning import OffsetRange
from penstock.spark.filters import EVERYTHING, from_first, pushed

RANGES = [OffsetRange("a", 0, 10, 100), OffsetRange("a", 1, 0, 50), OffsetRange("b", 0, 5, 20)]


def left(*filters: Filter) -> list[tuple[str, int, int, int]]:
    return [(each.topic, each.partition, each.start, each.stop) for each in pushed(filters).ranges(RANGES)]


def test_partitions_and_topics() -> None:
    assert left() == left(StringContains(("topic",), "a")) == [tuple(vars(each).values()) for each in RANGES]
    assert left(EqualTo(("partition",), 1)) == [("a", 1, 0, 50)]
    assert left(In(("partition",), (0, 7)), EqualTo(("topic",), "b")) == [("b", 0, 5, 20)]
    assert left(EqualTo(("partition",), 0), In(("partition",), (1, 2))) == []


def test_offsets() -> None:
    assert left(GreaterThan(("offset",), 19)) == [("a", 0, 20, 100), ("a", 1, 20, 50)]
    assert left(GreaterThanOrEqual(("offset",), 19))[-1] == ("b", 0, 19, 20)
    assert left(LessThan(("offset",), 11), EqualTo(("topic",), "a")) == [("a", 0, 10, 11), ("a", 1, 0, 11)]
    assert left(LessThanOrEqual(("offset",), 10))[0] == ("a", 0, 10, 11)
    assert left(EqualTo(("offset",), 15)) == [("a", 0, 15, 16), ("a", 1, 15, 16), ("b", 0, 15, 16)]


def test_times_limit_rows_and_their_start_limits_offsets() -> None:
    at = datetime(2026, 11, 19, 3, 0, 0, 500_900, UTC)
    assert pushed([GreaterThan(("timestamp",), at)]).since_ms == int(at.timestamp() * 1000)
    before = pushed([LessThan(("timestamp",), at)])
    assert (before.since_ms, before.times.stop) == (None, int(at.timestamp() * 1000) + 1)
    assert before.ranges(RANGES) == EVERYTHING.ranges(RANGES), "an earlier record may follow a later one"
    later = datetime(2026, 11, 19, 4, tzinfo=UTC)
    both = pushed([GreaterThanOrEqual(("timestamp",), at), EqualTo(("timestamp",), later)])
    assert both.since_ms == int(later.timestamp() * 1000)
    first = {TopicPartition("a", 0): 60, TopicPartition("a", 1): -1, TopicPartition("b", 0): 20}
    assert from_first(RANGES, first) == [OffsetRange("a", 0, 60, 100)]


def test_other_filters_leave_everything() -> None:
    assert pushed([Not(EqualTo(("partition",), 1)), EqualTo(("value", "offset"), 1)]) == EVERYTHING
    assert pushed([GreaterThan(("timestamp",), datetime(2026, 11, 19))]) == EVERYTHING
    assert pushed([GreaterThan(("partition",), 1)]) == EVERYTHING
