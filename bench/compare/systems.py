"""The systems as processes: one server, or three of a cluster, with one interface.

A system is started on an empty folder with the settings of a class of durability. Its client module and the
address that the module takes belong to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compare.classes import DurabilityClass
from lab.apache_kafka import VERSION as KAFKA_VERSION
from lab.apache_kafka import apache_kafka
from lab.cluster import kafka_cluster, penstock_cluster
from lab.home import LabError
from lab.nats import VERSION as NATS_VERSION
from lab.nats import nats_cluster, nats_server
from lab.penstock import penstock
from lab.rabbitmq import rabbitmq, rabbitmq_cluster, rabbitmq_version
from lab.server import HOST, Server, free_ports
from lab.valkey import valkey, valkey_version

__all__ = ["CLIENT_MODULES", "System", "made", "server_versions"]

CLIENT_MODULES = {
    "penstock": "load_kafka",
    "kafka": "load_kafka",
    "nats": "load_nats",
    "rabbitmq-quorum": "load_amqp",
    "rabbitmq-stream": "load_stream",
    "valkey": "load_valkey",
}
_POLL_S = 0.02


@dataclass(slots=True)
class System:
    """Servers of one contender. `start` returns when all accept clients; data survives `kill` and `start`."""

    name: str
    servers: Sequence[Server]
    address: str
    options: dict[str, Any] = field(default_factory=dict)
    has_queue: bool = True

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    def start(self) -> float:
        """Seconds until all servers accept clients."""
        began = time.perf_counter()
        if len(self.servers) == 1:
            return self.servers[0].start()
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                _wait(server, len(self.servers))
        except LabError:
            self.stop()
            raise
        return time.perf_counter() - began

    def stop(self) -> None:
        with ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(lambda server: server.stop(), self.servers))

    def kill(self) -> None:
        """SIGKILL to all servers, one immediately after the other."""
        for server in self.servers:
            assert server.process is not None, "not started"
            server.process.kill()
        for server in self.servers:
            server.kill()


def _wait(server: Server, nodes: int) -> None:
    deadline = time.monotonic() + server.start_timeout
    while not _is_ready(server, nodes):
        if not server.runs() or time.monotonic() > deadline:
            raise LabError(f"{server.name} at {server.bootstrap} is not ready:\n{server.log_tail()}")
        time.sleep(_POLL_S)


def _is_ready(server: Server, nodes: int) -> bool:
    """Brokers that speak Kafka must know each other; others must accept clients."""
    return server.knows() >= nodes if server.name in ("penstock", "kafka") else server.healthy()


def made(contender: str, durability: DurabilityClass, folder: Path) -> System:
    """A contender for a class, not started. Raises `MissingTool` or `LabError` if it cannot be had."""
    make = _MAKERS[contender]
    system = make(durability.settings[contender], durability.nodes, folder)
    system.options["replicas"] = durability.nodes
    return system


def _penstock(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    if nodes == 1:
        return _system("penstock", [penstock(folder, settings)])
    return _system("penstock", penstock_cluster(folder, settings, nodes).brokers)


def _kafka(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    if nodes == 1:
        return _system("kafka", [apache_kafka(folder, settings)])
    return _system("kafka", kafka_cluster(folder, settings, nodes).brokers)


def _nats(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    if nodes == 1:
        return _system("nats", [nats_server(folder, jetstream=settings)])
    return _system("nats", nats_cluster(folder, nodes, jetstream=settings))


def _quorum_queues(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    return _system("rabbitmq-quorum", _rabbitmq(settings, nodes, folder, []))


def _rabbitmq(
    settings: Mapping[str, str], nodes: int, folder: Path, plugins: Sequence[str]
) -> Sequence[Server]:
    if nodes == 1:
        return [rabbitmq(folder, settings, plugins=plugins)]
    return rabbitmq_cluster(folder, nodes, settings=settings, plugins=plugins)


def _streams(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    servers = _rabbitmq(settings, nodes, folder, ["rabbitmq_stream"])
    ports = free_ports(nodes)
    for server, port in zip(servers, ports, strict=True):
        # Each node has a port of its own, and tells clients to use it.
        with (server.log.parent / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"stream.listeners.tcp.1 = {HOST}:{port}\n")
            configuration.write(f"stream.advertised_host = {HOST}\nstream.advertised_port = {port}\n")
    address = ",".join(f"{HOST}:{port}" for port in ports)
    return System("rabbitmq-stream", servers, address, has_queue=False)


def _valkey(settings: Mapping[str, str], nodes: int, folder: Path) -> System:
    assert nodes == 1, "Valkey has no quorum"
    return _system("valkey", [valkey(folder, settings)])


def _system(name: str, servers: Sequence[Server]) -> System:
    return System(name, servers, ",".join(server.bootstrap for server in servers))


_MAKERS: dict[str, Callable[[Mapping[str, str], int, Path], System]] = {
    "penstock": _penstock,
    "kafka": _kafka,
    "nats": _nats,
    "rabbitmq-quorum": _quorum_queues,
    "rabbitmq-stream": _streams,
    "valkey": _valkey,
}


def server_versions(contenders: Sequence[str]) -> dict[str, str]:
    """The versions of the servers that are not part of this repository."""
    found: dict[str, Callable[[], str]] = {
        "kafka": lambda: KAFKA_VERSION,
        "nats": lambda: NATS_VERSION.removeprefix("v"),
        "rabbitmq-quorum": rabbitmq_version,
        "rabbitmq-stream": rabbitmq_version,
        "valkey": valkey_version,
    }
    names = {"kafka": "Apache Kafka", "nats": "NATS", "valkey": "Valkey"}
    return {names.get(name, "RabbitMQ"): found[name]() for name in contenders if name in found}
