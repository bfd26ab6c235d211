"""The load generator: `load.c`, compiled once with librdkafka, and topics to point it at.

`echo.c` is compiled here, too: a broker that takes next to no time.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from lab.home import command, lab_root, require
from lab.librdkafka import bundled_library, librdkafka
from lab.server import Server, free_port

SOURCE = Path(__file__).with_name("load.c")
ECHO = Path(__file__).with_name("echo.c")
TIMEOUT_S = 300
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Flow:
    """The generator's messages, its times on the monotonic clock, and its own processor time."""

    messages: int
    bytes: int
    seconds: float
    client_cpu: float = 0.0
    began: float = 0.0

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds."""

    p50: float
    p99: float
    p99_9: float


@dataclass(frozen=True, slots=True)
class Latency:
    """The way from producer to consumer, and two parts of it: the client's queue, the Produce round trip."""

    seconds: float
    client_cpu: float
    end_to_end: Percentiles
    queue: Percentiles
    request: Percentiles
    #: how many messages went with a Produce
    messages_per_request: float


@dataclass(frozen=True, slots=True)
class Commits:
    """Transactions of one message; `p50` and `p99` in milliseconds."""

    transactions: int
    seconds: float
    client_cpu: float
    p50: float
    p99: float


def compiled() -> Path:
    """The generator, with the library of confluent-kafka, which has every codec: a local build may not."""
    library = bundled_library()
    paths = (f"-isystem{librdkafka().include}", f"-Wl,-rpath,{library.parent}")
    return _compiled(SOURCE, *paths, str(library), "-pthread")


def echo(folder: Path) -> Server:
    """A broker that only echoes, logs to `folder`, knows every topic and fills up: one for each run."""
    port = free_port()
    return Server("echo", port, [str(_compiled(ECHO)), str(port)], folder / "echo.log")


def _compiled(source: Path, *libraries: str) -> Path:
    """A program, named by the hash of its source and libraries so that an edit compiles again."""
    digest = hashlib.sha256(source.read_bytes() + " ".join(libraries).encode())
    name = f"{source.stem}-{digest.hexdigest()[:12]}"
    binary = lab_root() / "bin" / name
    if not binary.exists():
        require("cc")
        binary.parent.mkdir(exist_ok=True)
        strict = ("-O2", "-Wall", "-Wextra", "-Werror")
        command(["cc", *strict, source, "-o", binary, *libraries], binary.parent)
    return binary


def produce(
    bootstrap: str, topic: str, messages: int, size: int, settings: Mapping[str, str], clients: int = 1
) -> Flow:
    """Send from several client processes at the same time; each sends its share."""

    def run(share: int) -> Flow:
        return Flow(**_run("produce", bootstrap, topic, share, size, settings))

    with ThreadPoolExecutor(clients) as pool:
        return joined(list(pool.map(run, [messages // clients] * clients)))


def transactions(
    bootstrap: str, topic: str, messages: int, settings: Mapping[str, str], aborted: int = 0
) -> Flow:
    """Send messages of 1 KB in transactions of 100 ms until so many are committed.

    Every `aborted`-th transaction is aborted, none if it is 0.
    """
    named = {"transactional.id": topic, **settings}
    return Flow(**_run("transactions", bootstrap, topic, messages, aborted, named))


def commits(bootstrap: str, topic: str, count: int, settings: Mapping[str, str]) -> Commits:
    """Run transactions of one message of 100 bytes, one after the other."""
    return Commits(**_run("commits", bootstrap, topic, count, 100, {"transactional.id": topic, **settings}))


def joined(flows: Sequence[Flow]) -> Flow:
    """The sum of simultaneous runs, from the start of the first to the end of the last."""
    began = min(flow.began for flow in flows)
    return Flow(
        sum(flow.messages for flow in flows),
        sum(flow.bytes for flow in flows),
        max(flow.began + flow.seconds for flow in flows) - began,
        sum(flow.client_cpu for flow in flows),
        began,
    )


def consume(
    bootstrap: str, topic: str, messages: int, settings: Mapping[str, str], niceness: int = 0
) -> Flow:
    """Read the topic's first `messages` messages from all partitions; no consumer group is involved."""
    return Flow(**_run("consume", bootstrap, topic, messages, PARTITIONS, settings, niceness))


def latency(bootstrap: str, topic: str, messages: int, rate: int, settings: Mapping[str, str]) -> Latency:
    """Send `rate` messages a second to a new topic and watch them arrive."""
    measured = _run("latency", bootstrap, topic, messages, rate, settings)
    return Latency(
        measured["seconds"],
        measured["client_cpu"],
        Percentiles(**measured["end_to_end"]),
        _statistic(measured["statistics"], "int_latency"),
        _statistic(measured["statistics"], "rtt"),
        measured["statistics"]["txmsgs"]
        / sum(broker["req"].get("Produce", 0) for broker in measured["statistics"]["brokers"].values()),
    )


def _statistic(statistics: dict[str, Any], name: str) -> Percentiles:
    """A statistic of librdkafka about its busiest connection.

    `int_latency` is from the call to the request, the linger included; `rtt` from the request's last byte
    sent to its answer.
    """
    busiest = max(statistics["brokers"].values(), key=lambda broker: int(broker["rtt"]["cnt"]))
    return Percentiles(*(busiest[name][at] / 1e3 for at in ("p50", "p99", "p99_99")))


def _run(
    mode: str,
    bootstrap: str,
    topic: str,
    messages: int,
    argument: int,
    settings: Mapping[str, str],
    niceness: int = 0,
) -> dict[str, Any]:
    pairs = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [
            "nice",
            "-n",
            str(niceness),
            compiled(),
            mode,
            bootstrap,
            topic,
            str(messages),
            str(argument),
            *pairs,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"load {mode} against {bootstrap}: {done.stderr.strip()[-500:]}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


@contextmanager
def topic(
    bootstrap: str,
    partitions: int = PARTITIONS,
    configs: Mapping[str, str] | None = None,
    replicas: int = 1,
    on: Sequence[int] = (),
) -> Iterator[str]:
    """A topic for one measurement, deleted afterwards so that page cache and disk are as before.

    `on` says which brokers hold its one partition, the leader first; else the cluster chooses.
    """
    name = f"bench-{uuid.uuid4().hex[:8]}"
    settings = {"bootstrap.servers": bootstrap, "log_level": 2}
    placed = {"replica_assignment": [list(on)]} if on else {"replication_factor": replicas}
    wanted = NewTopic(name, 1 if on else partitions, config=dict(configs or {}), **placed)
    admin = AdminClient(settings)
    admin.create_topics([wanted])[name].result(30)
    try:
        yield name
    finally:
        # A client of its own: brokers may have been replaced since.
        admin = AdminClient(settings)
        admin.delete_topics([name])[name].result(30)
