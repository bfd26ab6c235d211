"""The cost of a Produce and a Fetch, which must not grow with the number of partitions, topics or offsets.

Requests of a fixed size on a raw socket go round over everything that there is: all partitions of a topic,
all topics, all offsets of a log. The broker's processor time per request is taken at a few sizes; the
target is on the last against the first.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice, repeat

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from bench.lifecycle import allow_open_files
from bench.process import thread_seconds
from bench.requests import PRODUCE_V7_ERROR_AT, RECORD, fetch_frame, produce_frame, record_batch
from bench.table import Contender, Metric, Row, Values, fresh
from lab.server import HOST, Server

DEPTH = 50
REQUESTS = 20_000
PARTS = 4
BATCH_BYTES = 16_000
PER_CALL = 500
"""Topics or partitions that one admin request creates."""
ADMIN_TIMEOUT_S = 120
LOG_BYTES = 1000 << 20
GROWTH_LIMIT = 1.25
SETTLE_S = 0.5
IDLE_CORES = 0.04
PARTITION_COUNTS = (1, 100, 5000)
TOPIC_COUNTS = (1, 100, 10_000)
SEGMENT_COUNTS = (1, 30, 1000)
FETCH_V4_ERROR_AT = 4 + 4 + 4 + 2 + 4 + 4


class Refused(RuntimeError):
    """A request was answered with an error code."""


def cost(server: Server, frames: Iterable[bytes], count: int, error_at: int) -> float:
    """The broker's processor time per request, in microseconds: the best part of `count` requests."""
    rest = iter(frames)
    spent = []
    for _ in range(PARTS):
        before = thread_seconds(server.pid)
        done = send(server, islice(rest, count // PARTS), error_at)
        spent.append((thread_seconds(server.pid) - before) / done * 1e6)
    return min(spent)


def send(server: Server, frames: Iterable[bytes], error_at: int) -> int:
    """Send all frames, `DEPTH` at a time; how many there were."""
    done = 0
    rest = iter(frames)
    with socket.create_connection((HOST, server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb", 1 << 20)
        while burst := list(islice(rest, DEPTH)):
            connection.sendall(b"".join(burst))
            for _ in burst:
                answer = answers.read(int.from_bytes(answers.read(4), "big"))
                (error,) = struct.unpack_from(">h", answer, error_at)
                if error:
                    raise Refused(f"{server.name} answered error {error}")
            done += len(burst)
    return done


def _both(server: Server, names: Sequence[tuple[str, int]], scale: float) -> tuple[float, float]:
    """(Produce, Fetch) in microseconds, going round over partitions that have a batch each already.

    Fetches read all that was produced, so that data is equally cold however many partitions it lies in.
    """
    batch = record_batch(b"x" * BATCH_BYTES)
    width = len(names[0][0].encode())
    count = int(REQUESTS * scale)
    produces = (produce_frame(name, partition, batch) for name, partition in cycle(names))
    fetches = (
        fetch_frame(name, partition, offset, BATCH_BYTES)
        for offset in cycle(range(max(1, count // len(names))))
        for name, partition in names
    )
    _first_batches(server, [produce_frame(name, partition, batch) for name, partition in names], width)
    produced = cost(server, produces, count, PRODUCE_V7_ERROR_AT + width)
    # Produced records are still being synced, which must not count as cost of a Fetch.
    _settle(server, time.monotonic() + ADMIN_TIMEOUT_S)
    return produced, cost(server, fetches, count, FETCH_V4_ERROR_AT + width)


def _first_batches(server: Server, frames: Sequence[bytes], width: int) -> None:
    """One batch for each partition. Retries errors of partitions that were just created."""
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while True:
        try:
            send(server, frames, PRODUCE_V7_ERROR_AT + width)
            break
        except Refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(SETTLE_S)
    _settle(server, deadline)


def _settle(server: Server, deadline: float) -> None:
    """Return when the broker has finished the syncs and checkpoints of its new files."""
    while time.monotonic() < deadline:
        before = thread_seconds(server.pid)
        time.sleep(SETTLE_S)
        if thread_seconds(server.pid) - before < IDLE_CORES * SETTLE_S:
            break


def _values(counts: Sequence[int], costs: Sequence[tuple[float, float]]) -> Values:
    values = {}
    for index, kind in enumerate(("Produce", "Fetch")):
        for count, measured in zip(counts, costs, strict=True):
            values[_name(kind, count)] = measured[index]
        values[f"{kind}, growth"] = costs[-1][index] / costs[0][index]
    return values


def _name(kind: str, count: int) -> str:
    return f"{kind} at {count:,}"


def _by_partitions(contender: Contender, scale: float) -> Values:
    allow_open_files(100_000)
    with fresh(contender, {}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic("spread", 1, 1)])["spread"].result(ADMIN_TIMEOUT_S)
        costs, have = [], 1
        for count in PARTITION_COUNTS:
            while have < count:
                have = min(have + PER_CALL, count)
                grown = admin.create_partitions([NewPartitions("spread", have)])
                grown["spread"].result(ADMIN_TIMEOUT_S)
            costs.append(_both(server, [("spread", partition) for partition in range(count)], scale))
    return _values(PARTITION_COUNTS, costs)


def _by_topics(contender: Contender, scale: float) -> Values:
    allow_open_files(100_000)
    with fresh(contender, {}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        costs = []
        names: list[str] = []
        for count in TOPIC_COUNTS:
            while len(names) < count:
                more = [f"topic-{number:05}" for number in range(len(names), count)[:PER_CALL]]
                for made in admin.create_topics([NewTopic(name, 1, 1) for name in more]).values():
                    made.result(ADMIN_TIMEOUT_S)
                names += more
            costs.append(_both(server, [(name, 0) for name in names], scale))
    return _values(TOPIC_COUNTS, costs)


def _by_segments(contender: Contender, scale: float) -> Values:
    """The same bytes in few and in many segments; Fetch goes to offsets all over them, Produce to the end."""
    costs = []
    with fresh(contender, {}) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
        for count in SEGMENT_COUNTS:
            name = f"segments-{count:04}"
            wanted = NewTopic(name, 1, 1, config={"segment.bytes": str(LOG_BYTES // count)})
            admin.create_topics([wanted])[name].result(ADMIN_TIMEOUT_S)
            costs.append(_on_long_log(server, name, int(REQUESTS * scale)))
    return _values(SEGMENT_COUNTS, costs)


def _on_long_log(server: Server, name: str, requests: int) -> tuple[float, float]:
    batch = record_batch(b"x" * BATCH_BYTES)
    produced_at, fetched_at = PRODUCE_V7_ERROR_AT + len(name), FETCH_V4_ERROR_AT + len(name)
    _first_batches(server, [produce_frame(name, 0, batch)], len(name))
    end = 1 + send(server, repeat(produce_frame(name, 0, batch), LOG_BYTES // len(batch)), produced_at)
    time.sleep(SETTLE_S)
    fetched = cost(server, _all_over(name, end), requests, fetched_at)
    # One record each, so that the log stays about as long as it is.
    produced = cost(server, repeat(produce_frame(name, 0, record_batch(RECORD))), requests, produced_at)
    return produced, fetched


def _all_over(name: str, end: int) -> Iterator[bytes]:
    """Fetches whose offsets jump about: consecutive ones are in different segments."""
    stride = int(end * 0.618) | 1
    offset = 0
    while True:
        yield fetch_frame(name, 0, offset, BATCH_BYTES)
        offset = (offset + stride) % end


def _row(
    name: str, what: str, counts: Sequence[int], measure: Callable[[Contender, float], Values], where: str
) -> Row:
    metrics = []
    for kind in ("Produce", "Fetch"):
        metrics += [Metric(_name(kind, count), "µs", False) for count in counts]
        metrics.append(Metric(f"{kind}, growth", "×", False, limit=GROWTH_LIMIT))
    return Row(name, what, tuple(metrics), measure, heavy=True, where=where, alone=OUR_GROWTH)


OUR_GROWTH = "the target is on the growth of Penstock; the cost of a request is in `requests`"
COLD_CACHES = (
    "neither steps nor system calls of a request depend on the count, and no garbage is collected; what is "
    "added, in the kernel as well, is most likely waiting for memory that the processor's caches have "
    "forgotten by a partition's next turn: `pwrite` alone takes longer on 5,000 files in turn than on one."
)
REOPENED = (
    "the files of sealed segments beyond the latest used 256 (`SegmentCache`) are closed, and reading from "
    "one of them again costs an `open`; their indexes stay. Reading in order opens each segment once."
)
ROWS = (
    _row(
        "partitions",
        "CPU per 16-KB request over all partitions of a topic",
        PARTITION_COUNTS,
        _by_partitions,
        COLD_CACHES,
    ),
    _row("topics", "CPU per 16-KB request over all topics", TOPIC_COUNTS, _by_topics, COLD_CACHES),
    _row(
        "segments",
        "CPU per request by segments of a 1-GB log: Fetch of 16 KB anywhere, one-record Produce",
        SEGMENT_COUNTS,
        _by_segments,
        REOPENED,
    ),
)
