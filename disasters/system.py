"""The two kinds of broker that a disaster can strike: how a node is made, and where it keeps its files."""

from __future__ import annotations

import os
import shutil
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from disasters.broker import CLOCK, DISK_FULL, MEMORY
from disasters.layout import KAFKA, PENSTOCK, Layout
from lab import LabError
from lab.apache_kafka import CLUSTER_ID, kafka_node, tool
from lab.home import command
from lab.kafka_clock import with_clock
from lab.server import Server
from penstock.broker.base.system_ports import OsFiles
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import parse_keys

__all__ = ["SYSTEMS", "Conditions", "System"]

_ROOT: Final = Path(__file__).resolve().parent.parent
#: room for a small broker: three of them share a machine with everything else
_KAFKA_HEAP: Final = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_BALLAST: Final = "ballast"
_CLOCK: Final = "clock"
_PAGE_BYTES: Final = 4096
_SMALL_DISK_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Conditions:
    """The faults of the machine that a broker is started on."""

    clock_ms: int = 0
    #: whether the clock can be set while the broker runs, which takes another class of Kafka
    clock_moves: bool = False
    descriptors_max: int | None = None


class System(Protocol):
    """A kind of broker."""

    name: str
    layout: Layout
    #: listener that the voters use
    internal: str
    #: how long a cluster may take until all replicas are in sync again
    whole_s: float
    settings: Mapping[str, str]

    def node(self, home: Path, port: int, properties: Mapping[str, str]) -> Server:
        """Makes a broker in `home`, not started."""

    def dress(self, server: Server, home: Path, conditions: Conditions) -> None:
        """Sets the command and environment of the next start."""

    def set_clock(self, home: Path, ahead_ms: int) -> None:
        """Sets the wall clock of a broker that runs."""

    def format(self, home: Path) -> None:
        """Prepares a broker to start on empty directories, as an operator must."""

    def fill(self, home: Path) -> None:
        """Makes the disk of a broker full, which may run."""

    def free(self, home: Path) -> None:
        """Makes room again."""

    def read(self, path: Path) -> bytes:
        """Returns the content of a file of a broker."""

    def position(self, path: Path, at: int) -> int:
        """Returns where a file has the byte at a position of its content."""

    def options(self, home: Path) -> list[str]:
        """Returns the options of commands that read the files of a broker."""


class _Penstock:
    name = "penstock"
    layout = PENSTOCK
    internal = "INTERNAL"
    whole_s = 40.0
    settings: Mapping[str, str] = {}

    def node(self, home: Path, port: int, properties: Mapping[str, str]) -> Server:
        configuration = home / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [sys.executable, "-m", "disasters.broker", "up", "--config", str(configuration)]
        return Server(self.name, port, command, home / "broker.log")

    def dress(self, server: Server, home: Path, conditions: Conditions) -> None:
        self.set_clock(home, conditions.clock_ms)
        paths = [str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
        server.environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            CLOCK: str(home / _CLOCK),
            DISK_FULL: str(home / "full"),
            MEMORY: str(home / "faulty"),
        }
        server.command = _limited(server.command, conditions)

    def set_clock(self, home: Path, ahead_ms: int) -> None:
        _write_clock(home, ahead_ms)

    def format(self, home: Path) -> None:
        """An empty directory is formatted at the start."""

    def fill(self, home: Path) -> None:
        (home / "full").touch()

    def free(self, home: Path) -> None:
        (home / "full").unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def position(self, path: Path, at: int) -> int:
        return at

    def options(self, home: Path) -> list[str]:
        return []


class _EncryptedPenstock(_Penstock):
    """Penstock with encryption at rest: damage strikes ciphertext."""

    settings: Mapping[str, str] = {"penstock.encryption.keys": f"disasters:{b64encode(bytes(32)).decode()}"}

    def read(self, path: Path) -> bytes:
        return self._files().read(str(path))

    def position(self, path: Path, at: int) -> int:
        return self._files().stored_position(str(path), at)

    def options(self, home: Path) -> list[str]:
        return ["--encryption-config", str(home / "server.properties")]

    def _files(self) -> EncryptedFiles:
        """The files of a broker, as an operator with the keys reads copies in any place."""
        return EncryptedFiles(
            OsFiles(), parse_keys(self.settings["penstock.encryption.keys"]), is_bound=False
        )


class _Kafka:
    name = "kafka"
    layout = KAFKA
    internal = "CONTROLLER"
    whole_s = 90.0
    settings: Mapping[str, str] = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # else retention begins half a minute after the start
        "log.initial.task.delay.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }

    def node(self, home: Path, port: int, properties: Mapping[str, str]) -> Server:
        server = kafka_node(home, port, properties)
        options = [
            option for option in server.command if not option.startswith(("-Xm", "-XX", "-Dorg.slf4j"))
        ]
        server.command = [
            options[0],
            *_KAFKA_HEAP,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            *options[1:],
        ]
        return server

    def dress(self, server: Server, home: Path, conditions: Conditions) -> None:
        self.set_clock(home, conditions.clock_ms)
        clock = home / _CLOCK if conditions.clock_ms or conditions.clock_moves else None
        broker = with_clock(_limited(server.command, Conditions()), clock)
        server.command = _limited(broker, conditions)

    def set_clock(self, home: Path, ahead_ms: int) -> None:
        _write_clock(home, ahead_ms)

    def format(self, home: Path) -> None:
        storage_tool = [*tool("kafka.tools.StorageTool"), "format", "-t", CLUSTER_ID]
        command([*storage_tool, "-c", str(home / "server.properties"), "--ignore-formatted"], home)

    def fill(self, home: Path) -> None:
        """Fills the file system of a data directory, which must be a small one of its own."""
        if shutil.disk_usage(home / "data").total > _SMALL_DISK_BYTES:
            raise LabError("a full disk takes a small file system, and root to mount it")
        with suppress(OSError), (home / "data" / _BALLAST).open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(_PAGE_BYTES))

    def free(self, home: Path) -> None:
        (home / "data" / _BALLAST).unlink(missing_ok=True)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def position(self, path: Path, at: int) -> int:
        return at

    def options(self, home: Path) -> list[str]:
        return []


def _write_clock(home: Path, ahead_ms: int) -> None:
    """Sets the shift that brokers read; a reader finds the old content or the new one."""
    written = home / f"{_CLOCK}.new"
    written.write_text(str(ahead_ms))
    written.replace(home / _CLOCK)


def _limited(command: Sequence[str], conditions: Conditions) -> list[str]:
    """Returns the command with a descriptor limit, which replaces an earlier one."""
    plain = list(command[3:] if command[0] == "prlimit" else command)
    if conditions.descriptors_max is None:
        return plain
    return ["prlimit", f"--nofile={conditions.descriptors_max}", "--", *plain]


SYSTEMS: Final[Mapping[str, System]] = {
    "penstock": _Penstock(),
    "penstock-encrypted": _EncryptedPenstock(),
    "kafka": _Kafka(),
}
