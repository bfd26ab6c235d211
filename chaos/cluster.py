"""Brokers as processes of their own, in a network that can be cut.

`close` always ends all of them: each was started here and is ended by its own handle.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml

from chaos.broker import MARKER
from chaos.network import Network, Place
from chaos.watching import Watched
from lab.server import free_port
from penstock.encryption.keys import KEY_BYTES, format_key
from penstock.net.client_security import client_security
from penstock.security.client_names import java_names
from penstock.testing.security import SECURE_LISTENER, new_security

__all__ = ["DELIVERIES_MAX", "Cluster"]

_ROOT: Final = Path(__file__).parent.parent
_REPLICAS: Final = 3
#: The largest limit that a broker takes. A record counts as delivered when it is acquired, as in Kafka, also
#: if its response was lost with a broker, so that kills in quick succession use up a lower limit.
DELIVERIES_MAX: Final = 25
_STOP_S: Final = 60.0
#: for metrics and health, in a network of its own
_MONITORING_PORT: Final = 9404


class Cluster:
    """Brokers 1 to n, all of which vote; use it in a `with`."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        network: Network,
        configs: Mapping[str, object] | None = None,
        *,
        secured: bool = False,
    ) -> None:
        """`configs` are added to those of all brokers. With `secured`, clients need `client_config`."""
        self._secured = secured
        #: settings that clients need beside the bootstrap address
        self.client_config: dict[str, str] = {}
        self._configs = dict(configs or {})
        self.nodes = range(1, brokers + 1)
        self.network = network
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._places: dict[int, Place] = {}
        self._monitoring: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        self.network.start()
        try:
            self._write_configs()
            for node in self.nodes:
                self.start(node)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self._processes:
            self.kill(node)
        self.network.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{place.host}:{place.client_port}" for place in self._places.values())

    def watched(self, node: int) -> Watched:
        """The addresses at which the health of a broker is watched."""
        place = self._places[node]
        settings = java_names(self.client_config)
        protocol = settings.get("security.protocol", "PLAINTEXT")
        security = client_security(protocol, settings.get, lambda: secrets.token_urlsafe(18))
        return Watched((place.host, place.client_port), self._monitoring[node], security)

    def start(self, node: int) -> None:
        """Start the broker's process unless it runs; does not wait until it is ready."""
        if self.runs(node):
            return
        home = self._home(node)
        command = [sys.executable, "-m", "chaos.broker", "up", "--config", str(home / "broker.yaml")]
        with (home / "broker.log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                [*self._places[node].within, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, MARKER: str(home / "full")},
                cwd=_ROOT,
                start_new_session=True,
            )

    def kill(self, node: int) -> None:
        process = self._processes[node]
        process.kill()
        process.wait()

    def stop(self, node: int) -> None:
        """End the broker as an operator does: a controlled shutdown."""
        process = self._processes[node]
        process.terminate()
        process.wait(_STOP_S)

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def fill_disk(self, node: int) -> None:
        (self._home(node) / "full").touch()

    def free_disk(self, node: int) -> None:
        (self._home(node) / "full").unlink(missing_ok=True)

    def heal(self) -> None:
        """Undo every fault: all links, disks and processes are there again."""
        self.network.heal()
        for node in self.nodes:
            self.free_disk(node)
            self.resume(node)
            self.start(node)

    def runs(self, node: int) -> bool:
        return node in self._processes and self._processes[node].poll() is None

    def _home(self, node: int) -> Path:
        return self._directory / f"broker-{node}"

    def _write_configs(self) -> None:
        self._places = {node: self.network.place(node) for node in self.nodes}
        for node, place in self._places.items():
            self._monitoring[node] = (place.host, _MONITORING_PORT if place.within else free_port())
        voters = ",".join(f"{node}@{place.peers}" for node, place in self._places.items())
        listener, secured = "PLAINTEXT", self._secure() if self._secured else {}
        if secured:
            listener = SECURE_LISTENER
        for node, place in self._places.items():
            client = f"{listener}://{place.host}:{place.client_port}"
            configs = {
                "node.id": node,
                "listeners": f"{client},INTERNAL://{place.host}:{place.internal_port}",
                "advertised.listeners": f"{client},INTERNAL://{place.peers}",
                "controller.quorum.voters": voters,
                "log.dirs": str(self._home(node).absolute() / "data"),
                "penstock.metrics.listener": ":".join(map(str, self._monitoring[node])),
                "default.replication.factor": _REPLICAS,
                "min.insync.replicas": _REPLICAS - 1,
                "offsets.topic.replication.factor": _REPLICAS,
                "offsets.topic.num.partitions": 3,
                "transaction.state.log.num.partitions": 3,
                "group.share.max.delivery.count.limit": DELIVERIES_MAX,
                # A Metadata request that a paused broker executes late would create a deleted topic again.
                "auto.create.topics.enable": "false",
                # The disk of this machine may be nearly full, which is no fault of the run.
                "penstock.disk.free.min.ratio": 0,
                # Namespaces have addresses of their own, which only this machine can reach.
                "penstock.insecure.listeners.allow": "true",
                **secured,
                **self._configs,
            }
            self._home(node).mkdir(parents=True)
            file = self._home(node) / "broker.yaml"
            file.touch(0o600)
            file.write_text(yaml.safe_dump(configs), encoding="utf-8")

    def _secure(self) -> dict[str, str]:
        """The configs of secured brokers with encrypted disks."""
        hosts = {host for p in self._places.values() for host in (p.host, p.peers.rpartition(":")[0])}
        security = new_security(*sorted(hosts))
        self.client_config = security.client
        return {**security.brokers, "penstock.encryption.keys": format_key("chaos", os.urandom(KEY_BYTES))}
