"""The plan: the cluster of today, its figures, its year of growth, and notes about what it assumes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from penstock.planning.coefficients import UNITS, Coefficients
from penstock.planning.figures import Figure, figures_of, memory_of
from penstock.planning.sizing import Sizing, size_cluster
from penstock.planning.units import MONTHS_PER_YEAR, format_bytes, format_count, format_duration
from penstock.planning.workload import REBUILD_BYTES_S, UNEVEN_LEADERS, UNEVEN_REPLICAS, Hardware, Workload

__all__ = ["Plan", "Year", "make_plan"]

MONTHS: Final = (0, 3, 6, 9, MONTHS_PER_YEAR)
#: sixteen modules of 32 GB; few servers have more
_COMMON_MEMORY_BYTES: Final = 512 * 10**9
#: the most partitions that the benchmarks measure on one broker
_MEASURED_PARTITIONS: Final = 5000
#: the most partitions that one request may create
_MOST_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Year:
    """The cluster after some months."""

    months: int
    sizing: Sizing
    #: of a machine
    memory_bytes: float

    @property
    def disks(self) -> int:
        return self.sizing.machines * self.sizing.hardware.disks


@dataclass(frozen=True, slots=True)
class Plan:
    """A cluster for a workload."""

    sizing: Sizing
    coefficients: Coefficients
    #: the months of `MONTHS`; only month 0 without growth
    year: tuple[Year, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    @property
    def lasts_months(self) -> int | None:
        """The number of months for which today's machines and brokers suffice; None for a year and more."""
        now = self.sizing
        for months in range(1, MONTHS_PER_YEAR + 1):
            later = size_cluster(now.workload.after(months), now.hardware, self.coefficients, now.partitions)
            if later.machines > now.machines or later.brokers_per_machine > now.brokers_per_machine:
                return months - 1
        return None

    def as_document(self) -> dict[str, Any]:
        """The plan as JSON: numbers in base units."""
        return {
            "figures": {each.key: each.value for each in self.figures},
            "binding": self.sizing.binding.constraint,
            "machines_by_constraint": {need.constraint: need.machines for need in self.sizing.needs},
            "year": [_year_row(each) for each in self.year],
            "lasts_months": self.lasts_months if len(self.year) > 1 else None,
            "notes": list(self.notes),
            "coefficients": {
                "machine": self.coefficients.machine,
                **{name: getattr(self.coefficients, name).value for name in UNITS},
            },
        }


def make_plan(workload: Workload, hardware: Hardware, measured: Coefficients) -> Plan:
    """Plan for today; only the partitions are those of a year later.

    Why: adding partitions later moves keys to other partitions, adding machines does not.
    """
    months = MONTHS if workload.growth != 1.0 else MONTHS[:1]
    drafts = [size_cluster(workload.after(each), hardware, measured) for each in months]
    partitions = max(draft.partitions for draft in drafts)
    sizings = [size_cluster(workload.after(each), hardware, measured, partitions) for each in months]
    year = tuple(
        Year(each, sizing, memory_of(sizing, measured)) for each, sizing in zip(months, sizings, strict=True)
    )
    return Plan(year[0].sizing, measured, year, figures_of(year[0].sizing, measured), _notes(year[0]))


def _year_row(year: Year) -> dict[str, Any]:
    sizing = year.sizing
    return {
        "month": year.months,
        "messages_per_second": sizing.workload.rate,
        "bytes_per_second": sizing.workload.write_bytes_s,
        "stored_bytes": sizing.workload.stored_bytes * sizing.workload.replicas,
        "machines": sizing.machines,
        "brokers": sizing.brokers,
        "disks": year.disks,
        "cores_per_machine": sizing.cores_per_machine,
        "memory_bytes_per_machine": year.memory_bytes,
        "network_in_bytes_per_second_per_machine": sizing.received_bytes_s / sizing.machines,
        "network_out_bytes_per_second_per_machine": sizing.sent_bytes_s / sizing.machines,
        "binding": sizing.binding.constraint,
    }


def _notes(now: Year) -> tuple[str, ...]:
    """What an operator has to know, because the plan depends on it."""
    notes = (*_failure_notes(now.sizing), *_machine_notes(now), *_partition_notes(now.sizing))
    return tuple(note for note in notes if note)


def _machine_notes(now: Year) -> tuple[str, ...]:
    # Memory is not among the constraints: a smaller page cache slows down reads, and nothing fails.
    sizing, memory = now.sizing, now.memory_bytes
    return (
        f"{format_bytes(memory)} of memory per machine is more than common machines have "
        f"({format_bytes(_COMMON_MEMORY_BYTES)}), and memory is no constraint of the plan: with less, "
        f"consumers that are less than {format_duration(sizing.workload.cache_s)} behind read from disks; "
        "lower --cached, or plan with more machines (fewer --disks or --cores)"
        if memory > _COMMON_MEMORY_BYTES
        else "",
        "a machine with one core has none for the system, compaction and recompression, which slow down its "
        "broker; use --cores 2 or more"
        if sizing.hardware.cores == 1
        else "",
        _rebuild_note(sizing),
    )


def _rebuild_note(sizing: Sizing) -> str:
    """The traffic of a rebuild comes on top of that of the messages: it must not exceed the hardware."""
    if sizing.workload.replicas == 1 or sizing.machines <= sizing.workload.replicas:
        return ""
    hardware = sizing.hardware
    rebuild = sizing.brokers_per_machine * REBUILD_BYTES_S
    received = sizing.received_bytes_s * UNEVEN_REPLICAS / sizing.carriers
    sent = sizing.sent_bytes_s * UNEVEN_LEADERS / sizing.carriers
    free = {
        "network": hardware.network_bytes_s - max(received, sent),
        "disks": hardware.disks * hardware.disk_write_bytes_s - received,
    }
    slow = " and ".join(name for name, left in free.items() if left < rebuild)
    return slow and (
        f"the rebuild of a lost machine takes up to {format_bytes(rebuild, '/s')} of each other machine, for "
        f"which its {slow} may be too slow beside the messages; lower penstock.balance.bytes.per.second"
    )


def _failure_notes(sizing: Sizing) -> tuple[str, ...]:
    workload = sizing.workload
    in_sync, per_zone = max(1, workload.replicas - 1), math.ceil(workload.replicas / workload.zones)
    return (
        "one replica: the loss of a machine makes its partitions unavailable, and the loss of its disks "
        "loses data"
        if workload.replicas == 1
        else "",
        f"2 zones: one of them has {sizing.voters // 2 + 1} of the {sizing.voters} voters; while it is lost, "
        "no leaders are elected and no metadata changes, so the plan does not hold without that zone; use 3 "
        "zones, or have one of the voters (process.roles=controller) in a third"
        if workload.replicas > 1 and workload.zones == 2
        else "",
        f"{workload.zones} zones for {workload.replicas} replicas: a zone has up to {per_zone} of them, "
        "and without "
        f"it writes with acks=all and min.insync.replicas={in_sync} are refused; use {workload.replicas} "
        "zones"
        if workload.replicas > 2 and workload.zones > 1 and workload.replicas - per_zone < in_sync
        else "",
        f"{sizing.machines} machines for {workload.replicas} replicas: no machine is left to rebuild lost "
        f"replicas on"
        if 1 < workload.replicas == sizing.machines
        else "",
        "disks hold the replicas of a lost machine, not those of a lost zone: if a zone may be gone for "
        "longer than "
        "penstock.self.healing.delay.ms, raise that or add disks"
        if workload.zones > 1 and workload.replicas > 1
        else "",
    )


def _partition_notes(sizing: Sizing) -> tuple[str, ...]:
    workload = sizing.workload
    per_broker = sizing.partitions * workload.replicas / sizing.brokers
    rate = workload.write_bytes_s / sizing.partitions
    return (
        f"{format_count(math.ceil(per_broker))} replicas on a broker are more than the benchmarks measure "
        f"({_MEASURED_PARTITIONS:,})"
        if per_broker > _MEASURED_PARTITIONS
        else "",
        f"{sizing.partitions:,} partitions: one request creates at most {_MOST_AT_ONCE:,}; use several "
        "topics, or "
        "`penstock topic alter`"
        if sizing.partitions > _MOST_AT_ONCE
        else "",
        f"a partition takes {format_bytes(rate, '/s')}: set penstock.balance.bytes.per.second above that, "
        "or lost "
        "replicas never catch up"
        if workload.replicas > 1 and rate > REBUILD_BYTES_S
        else "",
    )
