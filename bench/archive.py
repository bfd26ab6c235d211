"""The archive on a local S3 server (versitygw): what tiered storage costs, and how fast an archive is read.

Kafka has tiered storage without a store of its own, and no backup, so these rows have no other contender.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.load import Flow, consume, produce
from bench.process import cpu_seconds, own_cpu_seconds
from bench.requests import p99, waits
from bench.table import Contender, Metric, Row, Values, fresh
from bench.throughput import CONSUMER, PRODUCER
from lab.foreign import started
from lab.server import HOST, Server, free_port
from lab.versitygw import versitygw_server

KEY, SECRET = "bench-id", "bench-secret-1d7e"
TIMEOUT_S = 300.0
MESSAGES = 1_000_000
#: so that a segment is sealed, and copied, every 64 MB of a partition
SEGMENT = {"segment.bytes": str(64 << 20), "file.delete.delay.ms": "0"}
TIERED = {**SEGMENT, "remote.storage.enable": "true"}
#: of topics that are read from the archive: smaller ones, so that little is left on the disk
FREED = {**TIERED, "segment.bytes": str(16 << 20), "local.retention.bytes": "0"}
#: brokers look often at what there is to copy and to free
OFTEN = {"remote.log.manager.task.interval.ms": "200", "log.retention.check.interval.ms": "500"}
COPY_EACH_SECOND = {
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "300000",
}
SECONDS = 6.0
#: about as long as it takes to copy what one run has produced
_SETTLING_S = 5.0
MOUNTED_SEGMENTS = 10_000
_RATE_GOAL, _SHARE_GOAL = 200.0, 0.5


@contextmanager
def local_s3(niceness: int = 0) -> Iterator[tuple[str, Mapping[str, str], Path]]:
    """A local S3 server: an address in it, the configs of brokers, and the options file of commands.

    With `niceness` it takes what the others leave: a store is on other machines.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-s3-") as folder:
        server = versitygw_server(Path(folder), KEY, SECRET, "bench", niceness=niceness)
        options = Path(folder) / "options"
        options.touch(0o600)
        options.write_text(
            f"AWS_ACCESS_KEY_ID={KEY}\nAWS_SECRET_ACCESS_KEY={SECRET}\nAWS_REGION=us-east-1\n"
            f"AWS_ENDPOINT_URL=http://{server.bootstrap}\nAWS_ALLOW_HTTP=true\nAWS_UNSIGNED_PAYLOAD=true\n"
        )
        address = "s3://bench/archive"
        settings = {
            "remote.log.storage.system.enable": "true",
            "penstock.remote.log.address": address,
            "penstock.remote.log.store.config": str(options),
            **OFTEN,
        }
        with started(server):
            yield address, settings, options


def _create(bootstrap: str, name: str, configs: Mapping[str, str], partitions: int = 4) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    wanted = NewTopic(name, partitions, 1, config=dict(configs))
    admin.create_topics([wanted])[name].result(30)


def _wait(condition: Callable[[], bool], what: str, pause_s: float = 0.1) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} took more than {TIMEOUT_S:g} s")
        time.sleep(pause_s)


def _metric(port: int, name: str) -> float:
    """The sum over all labels; 0 while there is no sample."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


# -- what tiered storage costs a producer


def _produce_tiered(contender: Contender, scale: float) -> Values:
    """In turns on two brokers, because a busy machine is busy for both.

    Each is the first one and the last one once: whoever follows another pays for the writing of its pages.
    """
    with ExitStack() as stack:
        _, settings, _ = stack.enter_context(local_s3(niceness=19))
        ports = {"plain": free_port(), "tiered": free_port()}
        listeners = {kind: {"penstock.metrics.listener": f"{HOST}:{port}"} for kind, port in ports.items()}
        brokers = {
            "plain": stack.enter_context(fresh(contender, listeners["plain"])),
            "tiered": stack.enter_context(
                fresh(contender, {**settings, **COPY_EACH_SECOND, **listeners["tiered"]})
            ),
        }
        runs: dict[str, list[_Produced]] = {kind: [] for kind in brokers}
        for kind, server in brokers.items():
            _create(server.bootstrap, kind, TIERED if kind == "tiered" else SEGMENT)
            _produced(server, kind, int(MESSAGES * scale) // 2, ports[kind])
        for kind in ("plain", "tiered", "tiered", "plain"):
            runs[kind].append(_produced(brokers[kind], kind, int(MESSAGES * scale), ports[kind]))
    plain, tiered = (_Produced(*map(sum, zip(*runs[kind], strict=True))) for kind in ("plain", "tiered"))
    return {
        "messages/s": tiered.messages / tiered.seconds,
        "of the rate without": plain.seconds / tiered.seconds,
        "of the CPU without, while producing": tiered.while_producing_s / plain.while_producing_s,
        "of the CPU without, with all copies": tiered.own_s / plain.own_s,
        "CPU of the copying process": (tiered.all_s - tiered.own_s) / tiered.bytes * 1e9,
    }


class _Produced(NamedTuple):
    """A run of a producer, and the CPU seconds of the broker until everything is copied."""

    messages: float
    bytes: float
    seconds: float
    while_producing_s: float
    own_s: float
    #: with the process that copies
    all_s: float


def _produced(server: Server, topic: str, count: int, metrics_port: int) -> _Produced:
    os.sync()
    own, all_ = own_cpu_seconds(server.pid), cpu_seconds(server.pid)
    flow = produce(server.bootstrap, topic, count, 1024, _producer())
    producing = own_cpu_seconds(server.pid) - own
    time.sleep(_SETTLING_S)
    # Mostly one look, as answers cost the broker, too: also the one that has nothing to copy.
    _wait(lambda: _metric(metrics_port, "penstock_remote_copy_lag_bytes") == 0, "copying", pause_s=1.0)
    own, all_ = own_cpu_seconds(server.pid) - own, cpu_seconds(server.pid) - all_
    return _Produced(count, flow.bytes, flow.seconds, producing, own, all_)


def _producer() -> dict[str, str]:
    return PRODUCER | {"batch.num.messages": "1000"}


# -- readers of the archive


def _filled(server: Server, name: str, configs: Mapping[str, str], count: int) -> None:
    _create(server.bootstrap, name, configs)
    produce(server.bootstrap, name, count, 1024, _producer())


def _freed(server: Server, name: str, count: int) -> None:
    """A topic of which brokers have only the active segments on the disk."""
    _filled(server, name, FREED, count)
    limit = 5 * int(FREED["segment.bytes"])
    _wait(lambda: _local_bytes(server, name) < limit, "freeing the disk")


def _local_bytes(server: Server, name: str) -> int:
    data = server.log.parent / "data"
    return sum(path.stat().st_size for path in data.rglob("*.log") if path.parent.name.startswith(name))


def _read_archived(contender: Contender, scale: float) -> Values:
    with ExitStack() as stack:
        _, settings, _ = stack.enter_context(local_s3())
        server = stack.enter_context(fresh(contender, settings))
        count = int(MESSAGES * scale)
        _filled(server, "local", SEGMENT, count)
        _freed(server, "cold", count)
        local, cold = (_rate(consume(server.bootstrap, each, count, CONSUMER)) for each in ("local", "cold"))
    return {
        "MB/s": cold,
        "of the local log": cold / local,
        "of the goal": max(cold / _RATE_GOAL, cold / local / _SHARE_GOAL),
    }


def _rate(flow: Flow) -> float:
    return flow.bytes / flow.seconds / 1e6


def _beside_reader(contender: Contender, scale: float) -> Values:
    """The reader reads all again and again; alone is before and after it, on a machine that is not quiet.

    Store and reader take what the broker leaves: both are on other machines.
    """
    with ExitStack() as stack:
        _, settings, _ = stack.enter_context(local_s3(niceness=19))
        server = stack.enter_context(fresh(contender, settings))
        count, seconds, address = int(MESSAGES * scale), SECONDS * scale, (HOST, server.port)
        _create(server.bootstrap, "hot", {}, 1)
        _freed(server, "cold", count)
        waits(address, "hot", seconds)
        alone = waits(address, "hot", seconds)
        measured = threading.Event()

        def read() -> None:
            while not measured.is_set():
                consume(server.bootstrap, "cold", count, {}, niceness=19)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            beside = p99(waits(address, "hot", seconds))
        finally:
            measured.set()
            reader.join()
        alone += waits(address, "hot", seconds)
    return {"p99 alone": p99(alone), "p99 beside": beside, "of alone": beside / p99(alone)}


# -- restores and mounts


def _run(*words: str) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"penstock {' '.join(words)}: {done.stderr.strip()[-500:]}")
    return time.perf_counter() - began


def _restore(contender: Contender, scale: float) -> Values:
    with ExitStack() as stack:
        address, _, options = stack.enter_context(local_s3())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        count, store = int(MESSAGES * scale), ("--store-config", str(options))
        with fresh(contender, {}) as server:
            _filled(server, "orders", SEGMENT, count)
            backup_s = _run("backup", "run", "--to", address, "--bootstrap", server.bootstrap, *store)
        restore_s = _run("restore", address, "--data", str(folder / "data"), *store)
        size = sum(path.stat().st_size for path in (folder / "data").rglob("*.log"))
    return {"MB/s": size / restore_s / 1e6, "backup MB/s": size / backup_s / 1e6}


def _mount(contender: Contender, scale: float) -> Values:
    """A backup of one partition with 10,000 segments, and the first record from its middle."""
    segments = int(MOUNTED_SEGMENTS * scale)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        archive = Path(folder) / "archive"
        with fresh(contender, {}) as server:
            _create(server.bootstrap, "orders", {"retention.ms": "-1"}, 1)
            _single_batches(server.bootstrap, "orders", segments)
            asyncio.run(_small_segments(server.bootstrap, archive))
        found = len(list(archive.rglob("*.segment")))
        if found < segments:
            raise RuntimeError(f"the backup has {found} segments, not {segments}")
        return {"to the first record": _first_record(archive, segments // 2, Path(folder))}


def _single_batches(bootstrap: str, name: str, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "batch.num.messages": 1, "linger.ms": 0}
    producer = Producer(settings)
    for _ in range(count):
        producer.produce(name, bytes(2000))
        if len(producer) > 5000:
            producer.flush(60)
    if producer.flush(60):
        raise RuntimeError("the broker does not take the records")


async def _small_segments(bootstrap: str, archive: Path) -> None:
    """A backup whose segments have one batch each."""
    from penstock.archive.objects import open_archive
    from penstock.backup.source import Cluster
    from penstock.backup.taking import Backup
    from penstock.broker.base.system_ports import SystemClock, SystemRng
    from penstock.objectstore.address import parse_address
    from penstock.objectstore.object_store import open_store

    store, rng, clock = open_store(parse_address(str(archive)), create=True), SystemRng(), SystemClock()
    root = await open_archive(store, rng, clock.now_ms())
    cluster = Cluster(bootstrap, rng)
    try:
        await Backup(cluster, store, root.id, rng, clock, (), 2100).take()
    finally:
        cluster.close()


def _first_record(archive: Path, offset: int, folder: Path) -> float:
    """Seconds from the start of the process to a record in the client's hands."""
    port = free_port()
    words = [sys.executable, "-m", "penstock", "up", "--mount", str(archive), "--port", str(port)]
    server = Server("penstock", port, words, folder / "mounted.log")
    began = time.perf_counter()
    server.start()
    try:
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 20}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("orders", 0, offset)])
        message = consumer.poll(60)
        seconds = time.perf_counter() - began
        consumer.close()
    finally:
        server.stop()
    if message is None or message.error() is not None or message.offset() != offset:
        raise RuntimeError("the mounted backup does not serve its records")
    return seconds


_ALONE = "none: Kafka has no object store of its own, and no backup"
ROWS = (
    Row(
        "archive-produce",
        "produce 1-KB messages to a topic that is copied to S3, beside one that is not",
        (
            Metric("messages/s", "", True),
            Metric("of the rate without", "", True, limit=0.95),
            Metric("of the CPU without, while producing", "", False),
            Metric("of the CPU without, with all copies", "", False, limit=1.1),
            Metric("CPU of the copying process", "s/GB", False),
        ),
        _produce_tiered,
        where="in the process that copies, with a lower priority than the broker: SHA-256, the copy that "
        "is read back and compared, the request, and reading the log. Requests are not signed with their "
        "content (AWS_UNSIGNED_PAYLOAD), which would be another SHA-256.",
        heavy=True,
        rounds=3,
        alone=_ALONE,
    ),
    Row(
        "archive-read",
        "consume 1-KB messages that only the archive has, from local S3",
        (
            Metric("MB/s", "", True),
            Metric("of the local log", "", True),
            Metric("of the goal", "", True, limit=1.0),
        ),
        _read_archived,
        heavy=True,
        rounds=3,
        alone=_ALONE,
    ),
    Row(
        "archive-beside",
        "one-record Produce, acks=1, 1,000 a second: alone, and beside a cold reader of the archive",
        (
            Metric("p99 alone", "ms", False),
            Metric("p99 beside", "ms", False),
            Metric("of alone", "", False, limit=1.3),
        ),
        _beside_reader,
        heavy=True,
        rounds=3,
        alone=_ALONE,
    ),
    Row(
        "archive-restore",
        "restore 1-KB messages from local S3 into a data directory, and the backup before it",
        (Metric("MB/s", "", True, limit=150.0), Metric("backup MB/s", "", True)),
        _restore,
        heavy=True,
        rounds=3,
        alone=_ALONE,
    ),
    Row(
        "archive-mount",
        "start a broker on a backup of 10,000 segments, and read a record from its middle",
        (Metric("to the first record", "s", False, limit=3.0),),
        _mount,
        heavy=True,
        rounds=3,
        alone=_ALONE,
    ),
)
