"""The hosts of a fleet: how many GPUs each has, and how many it should have."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock.telemetry.inventory import Inventory
from penstock.telemetry.queries.gpus import Gpu, find_gpus, latest
from penstock.telemetry.queries.now import last_seen, newest_ms
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import Thresholds

__all__ = ["HostCount", "count_hosts", "find_hosts"]


@dataclass(frozen=True, slots=True)
class HostCount:
    """A host with GPUs, or one that the file of thresholds names."""

    hostname: str
    rack: str | None
    models: list[str]
    #: with samples just before the newest of all
    gpus: int
    #: by the file of thresholds; None if it says nothing
    gpus_expected: int | None
    #: of those that are expected, or else of those with samples in the last 24 hours
    gpus_missing: int
    #: GPUs of the last 24 hours that are not heard any more: id, device and PCI address
    silent: list[str]
    last_seen: datetime | None


def find_hosts(reader: TableReader, thresholds: Thresholds) -> list[HostCount]:
    """Count the GPUs of the last 24 hours of samples, as of the newest one."""
    now_ms, absent_ms = newest_ms(reader), int(thresholds.missing_gpu.absent_s * 1000)
    extent = reader.extent()
    # Collectors may be ahead of the pipeline.
    end_ms = now_ms + 1 if extent is None else extent.end
    heard = last_seen(reader, end_ms, end_ms - now_ms + absent_ms)
    return count_hosts(find_gpus(reader, latest(reader)), heard, Inventory(thresholds.hosts))


def count_hosts(gpus: Iterable[Gpu], heard: Container[str], inventory: Inventory) -> list[HostCount]:
    """Count GPUs by host, and those of them that are `heard`; hosts that lack most come first."""
    own: dict[str, list[Gpu]] = {name: [] for name, host in inventory.named.items() if host.gpus}
    for gpu in gpus:
        if gpu.hostname is not None:
            own.setdefault(gpu.hostname, []).append(gpu)
    found = [_counted(name, each, heard, inventory) for name, each in own.items()]
    return sorted(found, key=lambda one: (-one.gpus_missing, one.rack or "", one.hostname))


def _counted(hostname: str, gpus: list[Gpu], heard: Container[str], inventory: Inventory) -> HostCount:
    host = inventory.of(hostname)
    silent = sorted(_placed(gpu) for gpu in gpus if gpu.gpu_id not in heard)
    present = len(gpus) - len(silent)
    expected = len(gpus) if host.gpus is None else host.gpus
    return HostCount(
        hostname,
        host.rack,
        sorted({gpu.model for gpu in gpus if gpu.model is not None}),
        present,
        host.gpus,
        max(0, expected - present),
        silent,
        max((gpu.last_seen for gpu in gpus), default=None),
    )


def _placed(gpu: Gpu) -> str:
    return " ".join(part for part in (gpu.gpu_id, gpu.device, gpu.pci_bus_id) if part)
