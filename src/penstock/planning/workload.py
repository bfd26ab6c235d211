"""The inputs of a plan: the workload, the hardware of one machine, and the limits that a plan keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.planning.units import PlanError, format_bytes

__all__ = [
    "BROKER_BUSY",
    "DISK_BUSY",
    "DISK_FULL",
    "LEADERS_PER_BROKER",
    "NETWORK_BUSY",
    "REBUILD_BYTES_S",
    "REPLICAS_PER_DISK",
    "UNEVEN_LEADERS",
    "UNEVEN_REPLICAS",
    "Hardware",
    "Workload",
]

#: of one core; from this share on a broker logs `loop_busy`
BROKER_BUSY: Final = 0.8
#: of the line rate: headers of TCP/IP and Ethernet take 5 %, and requests come in bursts
NETWORK_BUSY: Final = 0.8
#: of a disk's size: indexes, record headers and the last, unfinished segment of each partition need space,
#: too
DISK_FULL: Final = 0.85
#: of a disk's write rate: reads of consumers that are far behind need the rest
DISK_BUSY: Final = 0.8
#: the leaders of the busiest broker after a failure, relative to the mean
UNEVEN_LEADERS: Final = 1.4
#: the replicas of the fullest machine, relative to the mean
UNEVEN_REPLICAS: Final = 1.1
#: with fewer leaders per broker, those of a lost broker cannot be spread evenly
LEADERS_PER_BROKER: Final = 16
#: a replica is in one data directory; with fewer per disk, disks fill unevenly
REPLICAS_PER_DISK: Final = 4
#: the default of penstock.balance.bytes.per.second: what a broker fetches of replicas that are rebuilt
REBUILD_BYTES_S: Final = 20 << 20
_LARGEST_MESSAGE: Final = 1_000_000_000
_MOST_REPLICAS: Final = 15
_MOST_ZONES: Final = 100
_MOST_FAN_OUT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Messages in, messages kept, messages out. Sizes are those after compression by the producers."""

    rate: float
    size_bytes: int
    retention_s: float
    replicas: int = 3
    #: how many consumer groups read every message
    fan_out: int = 1
    zones: int = 1
    #: how much a producer sends to one partition in one request
    batch_bytes: int = 16_384
    #: consumers that are less than this behind read from memory
    cached_s: float = 600.0
    #: the factor of one month
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.size_bytes > _LARGEST_MESSAGE:
            raise PlanError(
                f"a message of {format_bytes(self.size_bytes)} is too large: a batch of records has at "
                "most 2 GB, "
                "and brokers hold it in memory; store it elsewhere, and send its address"
            )
        for name, value, most in (
            ("--replicas", self.replicas, _MOST_REPLICAS),
            ("--zones", self.zones, _MOST_ZONES),
        ):
            if not 1 <= value <= most:
                raise PlanError(f"{name} {value} is not in the range from 1 to {most}")
        if not 0 <= self.fan_out <= _MOST_FAN_OUT:
            raise PlanError(f"--fan-out {self.fan_out} is not in the range from 0 to {_MOST_FAN_OUT}")

    def after(self, months: int) -> Workload:
        """The workload after some months of growth."""
        return replace(self, rate=self.rate * self.growth**months)

    @property
    def write_bytes_s(self) -> float:
        """What producers send."""
        return self.rate * self.size_bytes

    @property
    def stored_bytes(self) -> float:
        """One copy of all that is kept."""
        return self.write_bytes_s * self.retention_s

    @property
    def cache_s(self) -> float:
        """The age of the oldest messages in the page cache: older ones than the retention do not exist."""
        return min(self.cached_s, self.retention_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One machine."""

    cores: int = 16
    disk_bytes: int = 8 * 10**12
    disks: int = 12
    disk_write_bytes_s: float = 200e6
    #: each direction
    network_bytes_s: float = 25e9 / 8

    def __post_init__(self) -> None:
        for name, value in (("--cores", self.cores), ("--disks", self.disks)):
            if not 1 <= value <= 1024:
                raise PlanError(f"{name} {value} is not in the range from 1 to 1024")

    @property
    def broker_cores(self) -> int:
        """Cores for brokers: one is left to the system, to compaction and to recompression."""
        return max(1, self.cores - 1)

    @property
    def usable_disk_bytes(self) -> float:
        return self.disks * self.disk_bytes * DISK_FULL

    @property
    def usable_network_bytes_s(self) -> float:
        return self.network_bytes_s * NETWORK_BUSY

    @property
    def usable_write_bytes_s(self) -> float:
        return self.disks * self.disk_write_bytes_s * DISK_BUSY
