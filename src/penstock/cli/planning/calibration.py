"""`penstock plan --calibrate`: measures the coefficients on this machine.

Three brokers run in a temporary directory, and this process is their client, over librdkafka. Only the
processor time of the brokers counts, so that a slow client costs time and not accuracy. Values that need
minutes (memory of connections, idle partitions, single messages) stay those of the benchmarks, and say so.
"""

from __future__ import annotations

import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.cluster.plan import ClusterPlan, make_homes
from penstock.cli.cluster.processes import wait_for_end
from penstock.cli.cluster.starting import start_all, stop_again
from penstock.cli.failure import Failure
from penstock.planning.coefficients import Coefficient, Coefficients

__all__ = ["busy_warning", "calibrated"]

_PROC: Final = Path("/proc")
_BROKERS: Final = 3
_START_S: Final = 60.0
_WAIT_S: Final = 120.0
_END_S: Final = 10.0
_PARTITIONS: Final = 3
_LARGE: Final = 10_000
_SMALL: Final = 1_000
_SMALL_BATCH: Final = 16
_BATCH_BYTES: Final = 1_000_000
_QUIET: Final = {"log_level": 2}
#: each measurement is repeated, and the median counts
_ROUNDS: Final = 3


def calibrated(shipped: Coefficients, megabytes: int = 200) -> Coefficients:
    """The coefficients of this machine; `megabytes` are sent in each measurement."""
    if not (_PROC / "self" / "schedstat").exists():
        raise Failure(
            "--calibrate needs /proc/PID/schedstat of Linux: leave it out to use the shipped coefficients"
        )
    with _cluster() as (bootstrap, pids):
        meter = _Meter(bootstrap, pids, megabytes * 1_000_000)
        meter.create()
        resident = _resident_bytes(pids) / len(pids)
        append = meter.produced("single", _LARGE, {"batch.size": str(_BATCH_BYTES)})
        replicated = meter.produced("replicated", _LARGE, {"batch.size": str(_BATCH_BYTES)})
        fetch = meter.consumed("single", {})
        small_produce = meter.produced("small", _SMALL, {"batch.num.messages": str(_SMALL_BATCH)})
        batch = _SMALL * _SMALL_BATCH
        sizes = ("fetch.message.max.bytes", "fetch.max.bytes", "message.max.bytes")
        small_fetch = meter.consumed("small", dict.fromkeys(sizes, str(batch)))
    return _coefficients(
        shipped,
        _Measured(
            append=append,
            fetch=fetch,
            replicated=replicated,
            produce_request=(small_produce - append) * batch,
            fetch_request=(small_fetch - fetch) * batch,
            resident_bytes=resident,
        ),
    )


class _Measured(NamedTuple):
    """Seconds of CPU per byte, and per request; bytes of memory."""

    append: float
    fetch: float
    replicated: float
    produce_request: float
    fetch_request: float
    resident_bytes: float


def _coefficients(shipped: Coefficients, found: _Measured) -> Coefficients:
    """The coefficients of this machine.

    Other processes disturb differences of measurements most. A follower costs as much as an append at least,
    because it appends the same bytes, and requests whose cost would be negative keep that of the benchmarks.
    """

    def of(value: float, how: str) -> Coefficient:
        return Coefficient(float(f"{value:.4g}"), f"{how}, measured on this machine")

    def kept(name: str) -> Coefficient:
        known: Coefficient = getattr(shipped, name)
        return Coefficient(known.value, f"{known.source}, not measured by --calibrate")

    def positive(name: str, value: float, how: str) -> Coefficient:
        return of(value, how) if value > 0 else kept(name)

    follow = max(found.append, (found.replicated - found.append) / (_BROKERS - 1) - found.fetch)
    return msgspec.structs.replace(
        shipped,
        machine=f"this machine ({os.cpu_count()} cores, {platform.machine()})",
        append_s_per_gb=of(found.append * 1e9, "10-KB messages in batches of 1 MB, one replica"),
        fetch_s_per_gb=of(found.fetch * 1e9, "a consumer from the beginning"),
        replicate_s_per_gb=of(follow * 1e9, "(three replicas - one replica) / 2 followers - a consumer"),
        produce_request_us=positive(
            "produce_request_us", found.produce_request * 1e6, "batches of 16 KB without their bytes"
        ),
        fetch_request_us=positive(
            "fetch_request_us", found.fetch_request * 1e6, "fetches of 16 KB without their bytes"
        ),
        resident_mb=of(found.resident_bytes / 1e6, "a broker that has just started"),
        **{name: kept(name) for name in ("record_us", "idle_cores_per_replica", "connection_kb")},
    )


def busy_warning() -> str:
    """A line for a machine with other work, whose measurements would be too high; empty for a quiet one."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores / 2:
        return ""
    return f"this machine is busy (load {load:.1f} on {cores} cores): the measured costs will be too high"


class _Meter:
    """Sends and reads messages, and returns the brokers' seconds of CPU per byte."""

    def __init__(self, bootstrap: str, pids: Sequence[int], amount: int) -> None:
        self._bootstrap = bootstrap
        self._pids = pids
        self._amount = amount

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **_QUIET})
        replicas = {"single": 1, "small": 1, "replicated": _BROKERS}
        topics = [NewTopic(name, _PARTITIONS, factor) for name, factor in replicas.items()]
        for made in admin.create_topics(topics, operation_timeout=_WAIT_S).values():
            made.result(_WAIT_S)

    def produced(self, topic: str, size: int, settings: Mapping[str, str]) -> float:
        config = {
            "bootstrap.servers": self._bootstrap,
            "acks": "all",
            "linger.ms": "5",
            "queue.buffering.max.messages": "1000000",
            **settings,
            **_QUIET,
        }
        producer, value = Producer(config), os.urandom(size)

        def send() -> int:
            for number in range(self._amount // size):
                while True:
                    try:
                        producer.produce(topic, value, partition=number % _PARTITIONS)
                        break
                    except BufferError:
                        producer.poll(0.1)
                if number % 1000 == 0:
                    producer.poll(0)
            if producer.flush(_WAIT_S):
                raise Failure(
                    f"the calibration could not send its messages within {_WAIT_S:g} s: try it again"
                )
            return self._amount

        return self._median(send)

    def consumed(self, topic: str, settings: Mapping[str, str]) -> float:
        config = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "calibration",
            "enable.auto.commit": "false",
            "queued.min.messages": "100000",
            **settings,
            **_QUIET,
        }

        def read() -> int:
            consumer, received, deadline = Consumer(config), 0, time.monotonic() + _WAIT_S
            consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
            while received < self._amount:
                for message in consumer.consume(10_000, 1.0):
                    received += len(message.value() or b"")
                if time.monotonic() > deadline:
                    raise Failure(f"the calibration could not read within {_WAIT_S:g} s: try it again")
            consumer.close()
            return received

        return self._median(read)

    def _median(self, work: Callable[[], int]) -> float:
        found = []
        for _ in range(_ROUNDS):
            before = _cpu_seconds(self._pids)
            done = work()
            found.append((_cpu_seconds(self._pids) - before) / done)
        return sorted(found)[_ROUNDS // 2]


@contextmanager
def _cluster() -> Iterator[tuple[str, list[int]]]:
    """Three brokers that end with the calibration; yields their addresses and process ids."""
    with tempfile.TemporaryDirectory(prefix="penstock-calibration-") as folder:
        homes = make_homes(
            Path(folder), ClusterPlan(brokers=_BROKERS, port=0, configs={"log.retention.hours": "1"})
        )
        start_all(homes, _START_S, together=True)
        try:
            processes = [process for home in homes if (process := home.process()) is not None]
            yield ",".join(home.address for home in homes), [process.pid for process in processes]
            for home in homes:
                home.signal(signal.SIGTERM)
            wait_for_end(processes, _END_S)
        finally:
            stop_again(homes)


def _cpu_seconds(pids: Sequence[int]) -> float:
    """The time that the threads of these processes have run."""
    schedules = (path for pid in pids for path in (_PROC / str(pid) / "task").glob("*/schedstat"))
    return sum(int(_text(path).split()[0]) for path in schedules if _text(path)) / 1e9


def _resident_bytes(pids: Sequence[int]) -> int:
    lines = (line for pid in pids for line in _text(_PROC / str(pid) / "status").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def _text(path: Path) -> str:
    """A file of /proc; empty if its thread has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
