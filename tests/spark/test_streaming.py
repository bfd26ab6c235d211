"""Starts that are tried again, and lags, without Spark around them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.model.ids import TopicPartition
from penstock.spark.streaming import behind_latest, start_query


def source(end: Any, latest: Any) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def test_the_lag_of_each_partition() -> None:
    ours = source('{"a":{"0":5,"1":7}}', '{"a":{"0":5,"1":9},"b":{"0":4}}')
    others = [source('{"a":{"0":5}}', "null"), source(None, None), source("17", "18")]
    (found,) = behind_latest(SimpleNamespace(sources=[*others, ours]))
    assert found.by_partition == {
        TopicPartition("a", 0): 0,
        TopicPartition("a", 1): 2,
        TopicPartition("b", 0): 4,
    }
    assert (found.minOffsetsBehindLatest, found.maxOffsetsBehindLatest) == (0, 4)
    assert found.avgOffsetsBehindLatest == 2.0


class Query:
    """A query that ends with an error, or runs."""

    def __init__(self, error: str | None) -> None:
        self._error = error
        self.isActive = error is None
        self.lastProgress: object = None
        self.polls = 0

    def exception(self) -> Exception | None:
        return None if self._error is None else RuntimeError(self._error)


class Writer:
    def __init__(self, *errors: str | None) -> None:
        self.queries = [Query(error) for error in errors]
        self.started: list[Query] = []

    def start(self) -> Query:
        self.started.append(self.queries[len(self.started)])
        return self.started[-1]

    def first_batch(self, _: float) -> None:
        self.started[-1].lastProgress = "a batch"


LATE = "[STREAM_FAILED] … Python worker failed to connect back."


def test_a_planner_that_came_late_is_started_again() -> None:
    writer: Any = Writer(LATE, LATE, None)
    query: Any = start_query(writer, pause=writer.first_batch)
    assert query is writer.queries[2]
    assert query.lastProgress == "a batch"


def test_other_errors_and_the_last_try_are_returned() -> None:
    writer: Any = Writer("the cluster has no topic", None)
    assert start_query(writer) is writer.queries[0]
    writer = Writer(LATE, LATE, None)
    assert start_query(writer, tries=2) is writer.queries[1]
