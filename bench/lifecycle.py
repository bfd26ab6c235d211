"""The cost of a broker without load: its start, its memory, its connections, and its recovery."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.load import PARTITIONS, produce, topic
from bench.process import resident_bytes, thread_seconds
from bench.table import Contender, Metric, Row, Values, fresh
from lab.server import API_VERSIONS_V0, HOST, Server, call

SETTLE_S = 0.5
RECOVERY_TIMEOUT_S = 120
PARTITION_COUNTS = (1, 1000, 5000)
STARTS = 3
FIXTURES = 20
#: tests of a session: each has a broker of its own, sends a message and reads it
_FIXTURES = f"""
import json, time
began = time.perf_counter()
from confluent_kafka import Consumer, Producer, TopicPartition
from penstock.testing import broker

def test():
    began = time.perf_counter()
    with broker() as running:
        ready = time.perf_counter() - began
        producer = Producer({{"bootstrap.servers": running.bootstrap, "linger.ms": 0}})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer({{"bootstrap.servers": running.bootstrap, "group.id": "test"}})
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert consumer.poll(30).value() == b"one"
        consumer.close()
    return ready, time.perf_counter() - began

test()
first = time.perf_counter() - began
ready, whole = zip(*[test() for _ in range({FIXTURES})])
print(json.dumps([first, sorted(ready)[{FIXTURES // 2}], sorted(whole)[{FIXTURES // 2}]]))
"""


def _starting(contender: Contender, scale: float) -> Values:
    """A second broker on an empty folder: its time to start, and its memory without clients."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = contender.starter(Path(folder), {})
        seconds = server.start()
        try:
            time.sleep(SETTLE_S)
            idle = resident_bytes(server.pid)
        finally:
            server.stop()
    return {"first Metadata answer": seconds, "resident, idle": idle / 1e6}


def _fixtures(contender: Contender, scale: float) -> Values:
    """Brokers in a test's own process, one for each test."""
    command = [contender.python, "-P", "-c", _FIXTURES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=RECOVERY_TIMEOUT_S)
    first, ready, whole = json.loads(done.stdout)
    return {"first test, with imports": first, "broker ready": ready * 1e3, "whole test": whole * 1e3}


def _starting_with_partitions(contender: Contender, scale: float) -> Values:
    """A start after a clean stop, with one record in each partition, until the last partition is readable."""
    allow_open_files(100_000)
    values: Values = {}
    for count in PARTITION_COUNTS:
        with fresh(contender, {}) as server, topic(server.bootstrap, count) as name:
            _fill(server, name, count)
            starts = [_restart(server, name, count) for _ in range(STARTS)]
        values[f"start at {count:,}"] = min(seconds for seconds, _ in starts)
        values[f"CPU at {count:,}"] = min(cpu for _, cpu in starts)
    return values


def _fill(server: Server, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50, "log_level": 2})
    for partition in range(count):
        producer.produce(name, b"x" * 100, partition=partition)
    if producer.flush(RECOVERY_TIMEOUT_S):
        raise RuntimeError(f"{server.name} did not acknowledge a record of each partition")


def _restart(server: Server, name: str, count: int) -> tuple[float, float]:
    """Seconds until the last partition's end is known, and the broker's CPU seconds until then."""
    server.stop()
    began = time.perf_counter()
    server.start()
    reader = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench", "log_level": 0})
    try:
        last = TopicPartition(name, count - 1)
        if _end_offset(reader, last, time.monotonic() + RECOVERY_TIMEOUT_S) != 1:
            raise RuntimeError(f"{server.name} lost the record of partition {count - 1}")
        return time.perf_counter() - began, thread_seconds(server.pid)
    finally:
        reader.close()


def _connections(contender: Contender, scale: float) -> Values:
    """Memory per connection that has sent one request and is then idle."""
    count = int(10_000 * scale)
    allow_open_files(count + 1000)
    with fresh(contender, {}) as server, ExitStack() as stack:
        time.sleep(SETTLE_S)
        before = resident_bytes(server.pid)
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((HOST, server.port), 20))
            connection.sendall(len(API_VERSIONS_V0).to_bytes(4, "big") + API_VERSIONS_V0)
            connection.recv(65536)
        after = resident_bytes(server.pid)
        call((HOST, server.port), API_VERSIONS_V0, 20)
    return {"memory per connection": (after - before) / count / 1e3}


def allow_open_files(count: int) -> None:
    """Raise this process's limit, which the broker started from it inherits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _recovering(contender: Contender, scale: float) -> Values:
    """The time from a start after a kill until the whole log can be read again."""
    count = int(1_000_000 * scale)
    with fresh(contender, {}) as server, topic(server.bootstrap) as name:
        produce(server.bootstrap, name, count, 1000, {"linger.ms": "5", "batch.num.messages": "1000"})
        server.kill()
        began = time.perf_counter()
        server.start()
        _wait_for_messages(server, name, count)
        seconds = time.perf_counter() - began
    return {"recovery": seconds, "recovery per GB": seconds / (count * 1000 / 1e9)}


def _wait_for_messages(server: Server, name: str, count: int) -> None:
    """Return when ListOffsets has the end of every partition, and their sum is the acknowledged count."""
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    reader = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench", "log_level": 0})
    try:
        for partition in range(PARTITIONS):
            count -= _end_offset(reader, TopicPartition(name, partition), deadline)
    finally:
        reader.close()
    if count:
        raise RuntimeError(f"{server.name} lost {count} acknowledged messages")


def _end_offset(reader: Consumer, partition: TopicPartition, deadline: float) -> int:
    while True:
        try:
            return int(reader.get_watermark_offsets(partition, timeout=1.0)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


ROWS = (
    Row(
        "start",
        "start on an empty folder",
        (
            Metric("first Metadata answer", "s", False, limit=0.3),
            Metric("resident, idle", "MB", False, limit=50),
        ),
        _starting,
        where=(
            "in the import of modules (`python -X importtime -m penstock up`), most of them of the command "
            "line's parser, asyncio and uvloop; the rest creates and syncs the empty log."
        ),
    ),
    Row(
        "fixture",
        f"a broker for each of {FIXTURES} tests (`penstock.testing`), a message sent and read in each",
        (
            Metric("broker ready", "ms", False, limit=100),
            Metric("whole test", "ms", False),
            Metric("first test, with imports", "s", False),
        ),
        _fixtures,
        alone="Kafka has no broker that runs inside a test of Python",
        runs_package=True,
    ),
    Row(
        "start-partitions",
        "start after a clean stop, with 1, 1,000 and 5,000 partitions",
        (
            *(Metric(f"start at {count:,}", "s", False) for count in PARTITION_COUNTS),
            *(Metric(f"CPU at {count:,}", "s", False) for count in PARTITION_COUNTS),
        ),
        _starting_with_partitions,
        heavy=True,
    ),
    Row(
        "connections",
        "10,000 connections, each idle after one request",
        (Metric("memory per connection", "KB", False, limit=20),),
        _connections,
        where=(
            "two queues, of answers and of output, which reserve memory before anything is in them, then "
            "uvloop's transport, then the connection's own fields."
        ),
    ),
    Row(
        "recovery",
        "start again after `kill -9`, with 1 GB that was never synced",
        (Metric("recovery", "s", False), Metric("recovery per GB", "s", False)),
        _recovering,
        heavy=True,
    ),
)
