"""The latency of a producer beside other work: a consumer that reads from the disk, a compaction.

One record per request, acks=1, on its own connection, a thousand times a second; the latency of each answer.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.load import consume, produce, topic
from bench.requests import p99, waits
from bench.table import Contender, Metric, Row, Values
from lab.server import HOST, Server

SECONDS = 6.0
WARM_UP_S = 10.0
"""A just-in-time compiler needs a while, and this broker is a new one."""
KEYS = 1000
SEGMENT = {"segment.bytes": str(16 << 20), "file.delete.delay.ms": "0", "min.cleanable.dirty.ratio": "0.01"}


def _beside(contender: Contender, scale: float) -> Values:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, ExitStack() as stack:
        server = contender.starter(Path(folder), {"log.cleaner.backoff.ms": "100"})
        server.start()
        stack.callback(server.stop)
        name = stack.enter_context(topic(server.bootstrap, 1))
        seconds = SECONDS * scale
        waits((HOST, server.port), name, WARM_UP_S * scale)
        return {
            "p99 alone": p99(waits((HOST, server.port), name, seconds)),
            "p99 beside a cold reader": _beside_cold_reader(server, name, Path(folder), seconds, scale),
            "p99 beside a compaction": _beside_compaction(server, name, Path(folder), seconds, scale),
        }


def _beside_cold_reader(server: Server, name: str, folder: Path, seconds: float, scale: float) -> float:
    count = int(1_000_000 * scale)
    with topic(server.bootstrap, 1) as cold:
        produce(server.bootstrap, cold, count, 1024, {"linger.ms": "5", "batch.num.messages": "1000"})
        _drop_from_page_cache(folder)
        with _in_background(lambda: consume(server.bootstrap, cold, count, {})):
            return p99(waits((HOST, server.port), name, seconds))


def _beside_compaction(server: Server, name: str, folder: Path, seconds: float, scale: float) -> float:
    with topic(server.bootstrap, 1) as compacted:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        _set(admin, compacted, SEGMENT)
        _write_keys(server, compacted, int(400_000 * scale))
        before = _log_bytes(folder, compacted)
        _set(admin, compacted, {"cleanup.policy": "compact"})
        felt = waits((HOST, server.port), name, seconds)
        deadline = time.monotonic() + 60
        while _log_bytes(folder, compacted) > before * 0.8:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{server.name} did not compact within a minute")
            time.sleep(0.1)
    return p99(felt)


def _drop_from_page_cache(folder: Path) -> None:
    for path in folder.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@contextmanager
def _in_background(work: object) -> Iterator[None]:
    assert callable(work)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _write_keys(server: Server, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20})
    value = os.urandom(500)
    for i in range(count):
        while True:
            try:
                producer.produce(name, value, key=str(i % KEYS))
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def _set(admin: AdminClient, name: str, configs: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def _log_bytes(folder: Path, name: str) -> int:
    """Bytes of the topic's segments, as they lie on the disk."""
    total = 0
    for path in folder.rglob("*.log"):
        if name in str(path.parent):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    return total


ROWS = (
    Row(
        "beside",
        "one-record Produce, acks=1, 1,000 a second: alone, and beside the work of others",
        (
            Metric("p99 alone", "ms", False),
            Metric("p99 beside a cold reader", "ms", False),
            Metric("p99 beside a compaction", "ms", False),
        ),
        _beside,
        heavy=True,
    ),
)
