"""Clusters that are backed up while their brokers are killed and their disks are full."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Protocol

from chaos.broker import MARKER
from lab.cluster import Cluster, cluster_of
from lab.penstock import penstock
from lab.server import Server
from tests.backup.clusters import create
from tests.backup.load import ARCHIVE, Load

__all__ = ["OneBroker", "Source", "TieredCluster"]

_ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "penstock.remote.log.address": ARCHIVE,
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
}


class Source(Protocol):
    """A cluster in a folder; the variables of the process name its store."""

    def __init__(self, folder: Path, rng: Random) -> None: ...

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def create(self, topic: str) -> None:
        """Create a topic of two partitions."""

    def disturb(self, load: Load) -> None:
        """Kill brokers and fill disks, under load, and mend it all."""

    def has_freed_disks(self) -> bool:
        """Whether only the archive has the first records, where there is one."""


class OneBroker:
    """A broker without tiered storage."""

    def __init__(self, folder: Path, rng: Random) -> None:
        folder.mkdir()
        self._server = penstock(folder, {})

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def create(self, topic: str) -> None:
        create(self.bootstrap, topic, 2, retention_ms="-1")

    def disturb(self, load: Load) -> None:
        self._server.kill()
        self._server.start()

    def has_freed_disks(self) -> bool:
        return True


class TieredCluster:
    """Three brokers that remove segments from their disks as soon as the archive has them."""

    def __init__(self, folder: Path, rng: Random) -> None:
        folder.mkdir()
        self._folder, self._rng = folder, rng
        self._cluster: Cluster = cluster_of(_node, "INTERNAL", folder, _SETTINGS, 3)

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def create(self, topic: str) -> None:
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "0"}
        create(self.bootstrap, topic, 2, 3, retention_ms="-1", internal_segment_bytes="20000", **tiered)

    def disturb(self, load: Load) -> None:
        for broker in self._rng.sample(self._cluster.brokers, 2):
            broker.kill()
            load.go_on()
            broker.start()
            self._cluster.wait_ready()
            load.go_on()
        full = self._rng.choice(list(self._folder.glob("broker-*"))) / "full"
        full.touch()
        for _ in range(5):
            load.go_on()
        full.unlink()
        load.go_on()

    def has_freed_disks(self) -> bool:
        folders = list(self._folder.glob("broker-*/data/topics/orders/partition-[01]"))
        return len(folders) == 6 and all(_first_offset(each) > 0 for each in folders)


def _first_offset(folder: Path) -> int:
    return min((int(path.stem) for path in folder.glob("*.log")), default=0)


def _node(home: Path, port: int, properties: Mapping[str, str]) -> Server:
    """A broker whose disk is full while `full` is in its folder."""
    configuration = home / "server.properties"
    stated = {"log.dirs": str(home / "data"), **properties}
    configuration.write_text("".join(f"{key}={value}\n" for key, value in stated.items()))
    paths = [str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), MARKER: str(home / "full")}
    command = [sys.executable, "-m", "chaos.broker", "up", "--config", str(configuration)]
    return Server("penstock", port, command, home / "broker.log", environment)
