"""Brokers of one kind as a cluster on this machine: N child processes, all of which vote.

`Cluster.brokers` are plain servers, broker `i + 1` at index `i`: each can be killed, paused, restarted and
looked at alone. `start` and `wait_ready` return when each knows of all of them and none is fenced.

    with tempfile.TemporaryDirectory() as folder:
        cluster = penstock_cluster(Path(folder), {"num.partitions": "4"})
        cluster.start()
        try:
            ...  # any client, at cluster.bootstrap
            cluster.brokers[0].kill()
            cluster.brokers[0].start()
            cluster.wait_ready()
        finally:
            cluster.stop()
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lab.apache_kafka import kafka_node
from lab.home import LabError
from lab.penstock import penstock_node
from lab.server import HOST, Server, free_ports

POLL_S = 0.005
REPLICAS = 3
MIN_IN_SYNC = 2

NodeMaker: TypeAlias = Callable[[Path, int, Mapping[str, str]], Server]
Way: TypeAlias = Callable[[int, int], int]
"""`way(node, port)`: the port on which other nodes reach that port of the node; a proxy's port, if any."""


def direct(node: int, port: int) -> int:
    """The way without a proxy."""
    return port


@dataclass(slots=True)
class Cluster:
    """Brokers that are started and stopped together; a failed start stops those that run."""

    brokers: list[Server]
    #: what clients need beside the addresses, by the names of librdkafka
    client: dict[str, str] = field(default_factory=dict)
    #: variables for tests of clients: files with keys and certificates
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.brokers[0].name

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers]

    def start(self) -> float:
        """Start all at the same time; seconds until every broker is ready."""
        began = time.perf_counter()
        for broker in self.brokers:
            broker.launch()
        try:
            self.wait_ready()
        except LabError:
            self.stop()
            raise
        return time.perf_counter() - began

    def wait_ready(self) -> None:
        """Return when all brokers run and each knows of all; `LabError` where one has ended or is late."""
        deadline = time.monotonic() + max(broker.start_timeout for broker in self.brokers)
        for broker in self.brokers:
            while (known := broker.knows()) < len(self.brokers):
                if not broker.runs() or time.monotonic() > deadline:
                    found = f"{broker.name} at {broker.bootstrap} knows of {known} brokers"
                    raise LabError(f"{found}, not {len(self.brokers)}:\n{broker.log_tail()}")
                time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop all at the same time: the last one would wait in vain for a quorum."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.stop(), self.brokers))


def penstock_cluster(
    folder: Path,
    settings: Mapping[str, str],
    brokers: int = 3,
    way: Way = direct,
    python: str = sys.executable,
) -> Cluster:
    """Brokers of ours whose data, configuration and logs live in `folder`/broker-N; not started.

    `python` is the interpreter of an environment that has the package.
    """
    return cluster_of(partial(penstock_node, python=python), "INTERNAL", folder, settings, brokers, way)


def kafka_cluster(folder: Path, settings: Mapping[str, str], brokers: int = 3, way: Way = direct) -> Cluster:
    """As `penstock_cluster`, of Apache Kafka in KRaft combined mode, formatted."""
    return cluster_of(kafka_node, "CONTROLLER", folder, settings, brokers, way)


def cluster_of(
    maker: NodeMaker,
    internal: str,
    folder: Path,
    settings: Mapping[str, str],
    brokers: int,
    way: Way = direct,
) -> Cluster:
    """Brokers that `maker` makes; `internal` is the listener that the voters talk on."""
    nodes = range(1, brokers + 1)
    ports = free_ports(2 * brokers)
    client_ports, internal_ports = ports[:brokers], ports[brokers:]
    reached_at = [way(node, port) for node, port in zip(nodes, client_ports, strict=True)]
    voters_at = [way(node, port) for node, port in zip(nodes, internal_ports, strict=True)]
    common = {
        "controller.quorum.voters": ",".join(
            f"{node}@{HOST}:{port}" for node, port in zip(nodes, voters_at, strict=True)
        ),
        **_replication(brokers),
        **settings,
    }
    servers = []
    for index, node in enumerate(nodes):
        home = folder / f"broker-{node}"
        home.mkdir(parents=True)
        place = {
            "node.id": str(node),
            "broker.rack": f"RACK{node}",
            "listeners": _listeners(client_ports[index], internal, internal_ports[index]),
            "advertised.listeners": _listeners(reached_at[index], internal, voters_at[index]),
        }
        servers.append(maker(home, reached_at[index], {**place, **common}))
    return Cluster(servers)


def _listeners(port: int, internal: str, internal_port: int) -> str:
    return f"PLAINTEXT://{HOST}:{port},{internal}://{HOST}:{internal_port}"


def _replication(brokers: int) -> dict[str, str]:
    """Three replicas of everything where there are as many brokers, and small internal topics."""
    replicas, in_sync = str(min(REPLICAS, brokers)), str(min(MIN_IN_SYNC, brokers))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "8",
    }
