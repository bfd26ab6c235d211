"""Brokers 1 to n as processes, each with one or more data directories; all of them vote."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from disasters.layout import Disk
from disasters.system import Conditions, System
from lab.server import HOST, Server, free_ports

__all__ = ["Cluster", "Shape"]

_LOOK_S: Final = 0.05
_STOP_S: Final = 25.0
#: retention and expiry are looked at this often, so that a wrong clock shows soon
_CHECK_MS: Final = "1000"


@dataclass(frozen=True, slots=True)
class Shape:
    """The requirements of a disaster on its cluster; disasters of one shape can share a cluster."""

    brokers: int = 3
    directories: int = 1
    #: whether each data directory is a small file system of its own, which Kafka needs to run full
    small_disks: bool = False
    #: whether clocks can be set while the brokers run
    moving_clocks: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """Brokers as processes. Use it in a `with`: leaving it kills every process that it started.

    Why it has more than 25 methods: one per operation on a broker, its files or its network.
    """

    def __init__(self, directory: Path, system: System, shape: Shape) -> None:
        self.system = system
        self.shape = shape
        self.nodes = tuple(range(1, shape.brokers + 1))
        self._directory = directory
        self._servers: dict[int, Server] = {}
        self._mounts: list[Path] = []
        #: the conditions of a machine without a fault
        self.usual = Conditions(clock_moves=shape.moving_clocks)
        self.conditions = dict.fromkeys(self.nodes, self.usual)

    def __enter__(self) -> Self:
        ports = free_ports(2 * len(self.nodes))
        voters = ",".join(f"{node}@{HOST}:{ports[2 * node - 1]}" for node in self.nodes)
        for node in self.nodes:
            self._prepare(node, ports[2 * node - 2], ports[2 * node - 1], voters)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            if self.runs(node):
                self.kill(node)
        for mount in self._mounts:
            subprocess.run(["umount", str(mount)], check=False, capture_output=True)

    def _prepare(self, node: int, port: int, internal_port: int, voters: str) -> None:
        home = self.home(node)
        home.mkdir(parents=True)
        listeners = f"PLAINTEXT://{HOST}:{port},{self.system.internal}://{HOST}:{internal_port}"
        replicas = str(min(3, len(self.nodes)))
        in_sync = str(min(2, len(self.nodes)))
        if self.shape.small_disks and self.system.name == "kafka":
            self._mount(home / "data")
        properties = {
            "node.id": str(node),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.voters": voters,
            "log.dirs": ",".join(map(str, self.disk(node).directories)),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "3",
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": _CHECK_MS,
            "offsets.retention.check.interval.ms": _CHECK_MS,
            **self.system.settings,
            **self.shape.settings,
        }
        self._servers[node] = self.system.node(home, port, properties)

    def _mount(self, place: Path) -> None:
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(place)], check=True)
        self._mounts.append(place)

    def twin(self, node: int) -> Server:
        """Makes a second process on a broker's directories, with its number and other ports; not started."""
        home = self.home(node) / "twin"
        home.mkdir()
        port, internal_port = free_ports(2)
        listeners = f"PLAINTEXT://{HOST}:{port},{self.system.internal}://{HOST}:{internal_port}"
        stated = (self.home(node) / "server.properties").read_text().splitlines()
        properties = dict(line.split("=", 1) for line in stated)
        properties |= {"listeners": listeners, "advertised.listeners": listeners}
        twin = self.system.node(home, port, properties)
        self.system.dress(twin, home, Conditions())
        return twin

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self._servers.values())

    def address(self, node: int) -> str:
        return self._servers[node].bootstrap

    def home(self, node: int) -> Path:
        return self._directory / f"broker-{node}"

    def set_clocks(self, ahead_ms: int) -> None:
        """Sets the wall clocks of all brokers, which run."""
        for node in self.nodes:
            self.system.set_clock(self.home(node), ahead_ms)

    def disk(self, node: int) -> Disk:
        names = ("data", *(f"data-{number}" for number in range(2, self.shape.directories + 1)))
        return Disk(self.system.layout, tuple(self.home(node) / name for name in names))

    def configure(self, node: int, key: str, value: str) -> None:
        """Changes a broker's config file; read at its next start."""
        path = self.home(node) / "server.properties"
        kept = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}=")]
        path.write_text("\n".join([*kept, f"{key}={value}"]) + "\n")

    def start(self, *nodes: int) -> None:
        """Starts the processes of these brokers, or of all, that do not run; does not wait for them."""
        for node in nodes or self.nodes:
            if not self.runs(node):
                server = self._servers[node]
                self.system.dress(server, self.home(node), self.conditions[node])
                server.launch()

    def stop(self, *nodes: int) -> bool:
        """Stops brokers at the same time, by SIGTERM; returns whether all ended by themselves."""
        for node in nodes:
            self.terminate(node)
        ended = [self.wait_ended(node) for node in nodes]
        return all(ended)

    def terminate(self, node: int) -> None:
        process = self._servers[node].process
        assert process is not None, f"broker {node} does not run"
        process.terminate()

    def wait_ended(self, node: int) -> bool:
        """Waits for a broker's end, which is made to come; returns whether it came by itself."""
        process = self._servers[node].process
        assert process is not None, f"broker {node} does not run"
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def kill(self, *nodes: int) -> None:
        """SIGKILL, all at the same moment."""
        processes = [self._servers[node].process for node in nodes]
        for process in processes:
            assert process is not None, "a broker that was never started"
            process.send_signal(signal.SIGKILL)
        for process in processes:
            assert process is not None
            process.wait()

    def pause(self, node: int) -> None:
        self._servers[node].pause()

    def resume(self, node: int) -> None:
        self._servers[node].resume()

    def wipe(self, node: int) -> None:
        """Gives a stopped broker empty directories, as a replaced disk would be."""
        for data in self.disk(node).directories:
            shutil.rmtree(data)
            data.mkdir()
        self.system.format(self.home(node))

    def fill_disk(self, node: int) -> None:
        self.system.fill(self.home(node))

    def free_disk(self, node: int) -> None:
        self.system.free(self.home(node))

    def spoil_memory(self, node: int) -> None:
        """Has the memory of a broker of ours flip bits of the metadata that it applies from now on."""
        (self.home(node) / "faulty").touch()

    def mend_memory(self, node: int) -> None:
        (self.home(node) / "faulty").unlink()

    def runs(self, node: int) -> bool:
        process = self._servers[node].process
        return process is not None and process.poll() is None

    @property
    def running(self) -> list[int]:
        return [node for node in self.nodes if self.runs(node)]

    def ready(self, node: int) -> bool:
        """Whether a broker answers and knows of as many unfenced brokers as there are processes."""
        return self._servers[node].knows() >= len(self.running)

    def wait_ready(self, timeout_s: float) -> bool:
        return wait_until(lambda: all(self.ready(node) for node in self.running), timeout_s)

    def log(self, node: int) -> str:
        path = self._servers[node].log
        return path.read_text(errors="replace") if path.exists() else ""


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Returns true as soon as the condition holds, false if it does not within the time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True
