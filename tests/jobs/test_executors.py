"""A cluster without executors is reported, once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.jobs.executors import ExecutorWatch, executors_of


def test_missing_executors_are_reported_once_each_time() -> None:
    now_s, there, said = 0.0, 0, list[str]()
    watch = ExecutorWatch(lambda: there, said.append, lambda: now_s)

    def look(at_s: float, executors: int) -> int:
        nonlocal now_s, there
        now_s, there = at_s, executors
        watch()
        return len(said)

    assert look(29, 0) == 0
    assert look(30, 0) == look(300, 0) == 1
    assert said[0].startswith("Spark has no executor: batches wait until a worker")
    assert look(301, 2) == look(330, 0) == 1
    assert look(331, 0) == 2


def test_a_session_in_one_process_has_no_executors(spark: SparkSession) -> None:
    assert executors_of(spark) is None
    said = list[str]()
    times = iter((0.0, 100.0))
    ExecutorWatch(lambda: executors_of(spark), said.append, lambda: next(times))()
    assert said == []
