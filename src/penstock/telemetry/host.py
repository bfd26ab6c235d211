"""Metrics of a host, from Linux' /proc: load, processors, memory, disks, network.

    key      the host
    value    {"timestamp": "2025-07-18T20:42:34.000Z", "metric_name": "system_memory_used_bytes",
              "hostname": "dgx-031", "value": 1.2e11, "labels": {}}

Names end with `_total` where a value counts up from the host's start.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import PenstockError
from penstock.telemetry.message import Message, format_timestamp
from penstock.telemetry.outlet import Outlet

__all__ = ["HostCollector", "HostUnreadable", "Reading", "read_host"]

_SECTOR_BYTES: Final = 512
#: of /proc/stat's processor line: user, nice, system, idle, iowait, irq, softirq, steal
_TICKS: Final = 8
_IDLE, _IOWAIT = 3, 4
_encoder: Final = msgspec.json.Encoder()


class HostUnreadable(PenstockError):
    """This host has no /proc, or it is not Linux'."""


class Reading(NamedTuple):
    """One value of one metric; `device` is a disk or a network interface."""

    metric: str
    value: float
    device: str = ""


def _read_proc(name: str) -> str:
    try:
        return Path("/proc", name).read_text(encoding="utf-8")
    except OSError as error:
        raise HostUnreadable(
            f"cannot read /proc/{name}: {error.strerror}; this collector needs Linux"
        ) from error


def read_host(read: Callable[[str], str] = _read_proc) -> Iterator[Reading]:
    """The metrics for which one reading is enough: they are not compared with an earlier reading."""
    for name, value in zip(("1", "5", "15"), read("loadavg").split(), strict=False):
        yield Reading(f"system_load{name}", float(value))
    memory = {name: int(rest.split()[0]) * 1024 for name, rest in _pairs(read("meminfo"))}
    yield Reading("system_memory_total_bytes", memory["MemTotal"])
    yield Reading("system_memory_used_bytes", memory["MemTotal"] - memory["MemAvailable"])
    for line in read("diskstats").splitlines():
        fields = line.split()
        # The counters of partitions and loop devices are contained in those of their disk.
        if len(fields) >= 14 and _is_disk(fields[2]):
            yield Reading("system_disk_read_bytes_total", int(fields[5]) * _SECTOR_BYTES, fields[2])
            yield Reading("system_disk_written_bytes_total", int(fields[9]) * _SECTOR_BYTES, fields[2])
    for name, rest in _pairs(read("net/dev")):
        fields = rest.split()
        if name != "lo" and len(fields) >= 16:
            yield Reading("system_network_received_bytes_total", int(fields[0]), name)
            yield Reading("system_network_sent_bytes_total", int(fields[8]), name)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon:
            yield name.strip(), rest


def _is_disk(name: str) -> bool:
    if name.startswith("nvme"):
        return "p" not in name.removeprefix("nvme")
    return name.startswith(("sd", "vd", "xvd")) and not name[-1].isdigit()


class HostCollector:
    """Reads this host once per round. `read` gives a file of /proc by its name."""

    def __init__(
        self,
        outlet: Outlet,
        hostname: str | None = None,
        read: Callable[[str], str] = _read_proc,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rounds = 0
        self.samples = 0
        self._outlet = outlet
        self._hostname = hostname or socket.gethostname()
        self._read = read
        self._clock = clock
        self._ticks: tuple[int, int] | None = None

    def round(self) -> None:
        """Read everything once, and send it."""
        at_ms = int(self._clock() * 1000)
        readings = [*self._processors(), *read_host(self._read)]
        self._outlet.send(self._message(at_ms, reading) for reading in readings)
        self.rounds += 1
        self.samples += len(readings)

    def _processors(self) -> Iterator[Reading]:
        """The share of time that processors were busy since the round before."""
        ticks = [int(each) for each in self._read("stat").splitlines()[0].split()[1 : _TICKS + 1]]
        idle, total = ticks[_IDLE] + ticks[_IOWAIT], sum(ticks)
        before, self._ticks = self._ticks, (idle, total)
        if before is not None and total > before[1]:
            yield Reading("system_cpu_util_percent", 100.0 * (1 - (idle - before[0]) / (total - before[1])))

    def _message(self, at_ms: int, reading: Reading) -> Message:
        document = {
            "timestamp": format_timestamp(at_ms),
            "metric_name": reading.metric,
            "hostname": self._hostname,
            "value": float(reading.value),
            "labels": {"device": reading.device} if reading.device else {},
        }
        return Message(self._hostname.encode(), _encoder.encode(document), at_ms)
