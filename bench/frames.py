"""Rows a second into Python without Spark: `penstock.read` beside a loop over confluent-kafka's consumer.

Telemetry messages of 282 bytes in 4 partitions; both sides get keys, values, offsets and timestamps of all of
them. Both are measured in one process, in turn; the best of several runs of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.load import topic
from bench.spark import fill
from bench.table import Contender, Metric, Row, Values

MESSAGES = 1_000_000
RUNS = 3
PARTITIONS = 4
TIMEOUT_S = 120.0


def _frames(contender: Contender, scale: float) -> Values:
    bootstrap, count = contender.server.bootstrap, int(MESSAGES * scale)
    with topic(bootstrap, PARTITIONS) as name:
        fill(bootstrap, name, count)
        runs: dict[Any, list[tuple[float, float]]] = {read: [] for read in (_frame, _loop, _query)}
        for _ in range(RUNS):
            for read, taken in runs.items():
                taken.append(_seconds(read, bootstrap, name, count))
    wall = {read: min(each for each, _ in taken) for read, taken in runs.items()}
    cpu = {read: min(each for _, each in taken) for read, taken in runs.items()}
    return {
        "rows/s": count / wall[_frame],
        "confluent-kafka in a loop, rows/s": count / wall[_loop],
        "against": wall[_loop] / wall[_frame],
        "CPU per row": cpu[_frame] / count * 1e6,
        "CPU per row, confluent-kafka in a loop": cpu[_loop] / count * 1e6,
        "SQL, rows/s": count / wall[_query],
    }


def _seconds(read: Callable[[str, str], int], bootstrap: str, name: str, count: int) -> tuple[float, float]:
    """Wall-clock time, and CPU of this process with all its threads."""
    began, used = time.perf_counter(), time.process_time()
    found = read(bootstrap, name)
    took = time.perf_counter() - began, time.process_time() - used
    if found != count:
        raise RuntimeError(f"{read.__name__} found {found} of {count} messages")
    return took


def _frame(bootstrap: str, name: str) -> int:
    from penstock.frames import read

    return sum(batch.num_rows for batch in read(name, bootstrap=bootstrap))


def _query(bootstrap: str, name: str) -> int:
    from penstock.frames.opening import endpoint_of
    from penstock.frames.sql import run_query

    counted = run_query(
        f'select key, count(*) as n from "{name}" group by 1', endpoint_of(bootstrap, None, TIMEOUT_S)
    )
    assert counted is not None
    return sum(row["n"] for row in counted)


def _loop(bootstrap: str, name: str) -> int:
    """Ends at the ends of the partitions, as the frame does."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": False, "auto.offset.reset": "earliest"})
    partitions = [TopicPartition(name, number, 0) for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(each, TIMEOUT_S)[1] for each in partitions)
    consumer.assign(partitions)
    found = 0
    deadline = time.monotonic() + TIMEOUT_S
    while found < left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                message.key(), message.value(), message.offset(), message.timestamp()
                found += 1
    consumer.close()
    return found


ROWS = (
    Row(
        "frames",
        "Telemetry messages of 282 bytes are read into Python with `penstock.read`, and in a loop",
        (
            Metric("rows/s", "", True),
            Metric("confluent-kafka in a loop, rows/s", "", True),
            Metric("against", "× the loop", True, limit=8),
            Metric("CPU per row", "µs", False),
            Metric("CPU per row, confluent-kafka in a loop", "µs", False),
            Metric("SQL, rows/s", "", True),
        ),
        _frames,
        heavy=True,
        where="in the decoder, and of SQL in DuckDB: keys and values become text for it.",
    ),
)
