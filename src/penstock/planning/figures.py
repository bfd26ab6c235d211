"""The printed numbers of a plan, each with the formula that it follows from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.planning.coefficients import Coefficients
from penstock.planning.sizing import Sizing, uneven_replicas
from penstock.planning.units import counted, format_bits, format_bytes, format_count, format_duration
from penstock.planning.workload import (
    BROKER_BUSY,
    LEADERS_PER_BROKER,
    NETWORK_BUSY,
    REBUILD_BYTES_S,
    REPLICAS_PER_DISK,
    UNEVEN_LEADERS,
    UNEVEN_REPLICAS,
    Workload,
)

__all__ = ["Figure", "figures_of", "memory_of"]

#: the default of segment.bytes
_SEGMENT_BYTES: Final = 1 << 30
#: requests and responses in flight; brokers bound them by queued.max.request.bytes and the like
_BUFFERS_BYTES: Final = 1_000_000_000
_CONNECTIONS: Final = 10_000


class Figure(NamedTuple):
    """A number of the plan: `value` in base units, `text` as it is printed, and where it comes from."""

    key: str
    label: str
    value: float
    text: str
    formula: str


def figures_of(sizing: Sizing, measured: Coefficients) -> tuple[Figure, ...]:
    return (
        *_data(sizing),
        *_cluster(sizing),
        *_processor(sizing, measured),
        *_memory(sizing, measured),
        *_disks(sizing),
        *_network(sizing),
    )


def _data(sizing: Sizing) -> Iterator[Figure]:
    workload = sizing.workload
    write, stored = workload.write_bytes_s, workload.stored_bytes
    rate, size = format_count(workload.rate), format_bytes(workload.size_bytes)
    yield Figure(
        "bytes_per_second", "data rate", write, format_bytes(write, "/s"), f"{rate} messages/s x {size}"
    )
    yield Figure(
        "stored_bytes_once",
        "storage, one copy",
        stored,
        format_bytes(stored),
        f"{format_bytes(write, '/s')} x {format_duration(workload.retention_s)}",
    )
    everything = stored * workload.replicas
    yield Figure(
        "stored_bytes",
        "storage, all replicas",
        everything,
        format_bytes(everything),
        f"{format_bytes(stored)} x {counted(workload.replicas, 'replica')}",
    )


def _cluster(sizing: Sizing) -> Iterator[Figure]:
    workload, binding = sizing.workload, sizing.binding
    zones = (
        f" ({sizing.machines // workload.zones} in each of {workload.zones} zones)"
        if workload.zones > 1
        else ""
    )
    yield Figure(
        "machines",
        "machines",
        sizing.machines,
        f"{sizing.machines:,}{zones}",
        f"{binding.constraint}: {binding.formula}" + (", rounded up to whole zones" if zones else ""),
    )
    yield Figure(
        "brokers",
        "brokers",
        sizing.brokers,
        f"{sizing.brokers:,} ({sizing.brokers_per_machine} on each machine)",
        f"a broker is one core: {format_count(round(sizing.cores, 2))} busy cores, busy at most "
        f"{BROKER_BUSY:.0%} after the loss of a machine or a zone, also with {UNEVEN_LEADERS} x the mean "
        f"number of leaders and {UNEVEN_REPLICAS} x that of replicas",
    )
    yield Figure(
        "voters", "voters", sizing.voters, f"{sizing.voters}", "one per machine at most, over all zones"
    )
    yield from _partitions(sizing)


def _partitions(sizing: Sizing) -> Iterator[Figure]:
    workload = sizing.workload
    leaders = sizing.partitions / sizing.brokers
    yield Figure(
        "partitions",
        "partitions",
        sizing.partitions,
        f"{sizing.partitions:,} ({format_count(leaders)} led by each broker)",
        f"at least {LEADERS_PER_BROKER} leaders per broker and {REPLICAS_PER_DISK} replicas per disk, in a "
        "year; "
        f"a multiple of the brokers",
    )
    rate = workload.write_bytes_s / sizing.partitions
    limit = sizing.partition_limit_bytes_s
    yield Figure(
        "partition_bytes_per_second",
        "rate of a partition",
        rate,
        f"{format_bytes(rate, '/s')} of {format_bytes(limit, '/s')} that its leader's core carries",
        f"{format_bytes(workload.write_bytes_s, '/s')} / {sizing.partitions:,}; limit: {BROKER_BUSY:.0%} "
        "of a core / "
        f"{format_count(round(BROKER_BUSY / limit * 1e9, 2))} s of CPU per GB led",
    )


def _processor(sizing: Sizing, measured: Coefficients) -> Iterator[Figure]:
    workload, costs = sizing.workload, sizing.costs
    batch = max(workload.batch_bytes, workload.size_bytes)
    shared = sizing.hardware.cores == 1
    yield Figure(
        "cores_per_machine",
        "cores of a machine",
        sizing.cores_per_machine,
        "1 of 1, shared by the broker and the system"
        if shared
        else f"{sizing.cores_per_machine} of {sizing.hardware.cores}, fast ones",
        "one for each broker"
        + ("" if shared else ", one for the system, compaction and recompression")
        + "; a partition is never faster than one core",
    )
    per_gb = costs.leader(workload.replicas - 1 + workload.fan_out) + costs.follow * (workload.replicas - 1)
    yield Figure(
        "busy_cores",
        "busy cores, all brokers",
        sizing.cores,
        format_count(round(sizing.cores, 2)),
        f"{format_bytes(workload.write_bytes_s, '/s')} x {per_gb * 1e9:.2f} s per GB (append "
        f"{costs.append * 1e9:.2f} + {counted(workload.replicas - 1 + workload.fan_out, 'reader')} x "
        f"{costs.serve * 1e9:.2f} + "
        f"{counted(workload.replicas - 1, 'follower')} x {costs.follow * 1e9:.2f}, in batches of "
        f"{format_bytes(batch)}) + "
        f"{format_count(round(sizing.idle_cores, 3))} for {sizing.partitions * workload.replicas:,} idle "
        "replicas",
    )
    busy = sizing.cores / sizing.brokers
    yield Figure(
        "broker_busy",
        "a broker is busy",
        busy,
        f"{busy:.0%} of its core",
        f"{format_count(round(sizing.cores, 2))} / {sizing.brokers:,}; measured on {measured.machine}",
    )


def memory_of(sizing: Sizing, measured: Coefficients) -> float:
    """The memory of a machine: its page cache and its brokers."""
    connections = measured.connection_kb.value * 1e3 * _CONNECTIONS
    process = measured.resident_mb.value * 1e6 + connections + _BUFFERS_BYTES
    return sizing.cache_bytes + process * sizing.brokers_per_machine


def _memory(sizing: Sizing, measured: Coefficients) -> Iterator[Figure]:
    workload = sizing.workload
    memory = memory_of(sizing, measured)
    yield Figure(
        "memory_bytes_per_machine",
        "memory of a machine",
        memory,
        f"{format_bytes(memory)}, {format_bytes(sizing.cache_bytes)} of it page cache",
        f"page cache: {format_bytes(workload.write_bytes_s * workload.replicas, '/s')} written x "
        f"{uneven_replicas(workload)} for the most loaded / {counted(sizing.carriers, 'machine')} x "
        f"{_cached_text(workload)}; "
        f"each broker: {format_bytes(measured.resident_mb.value * 1e6)} + {_CONNECTIONS:,} "
        "connections x "
        f"{format_bytes(measured.connection_kb.value * 1e3)} + {format_bytes(_BUFFERS_BYTES)} of requests",
    )


def _cached_text(workload: Workload) -> str:
    if workload.cache_s < workload.cached_s:
        return f"{format_duration(workload.cache_s)}, all that is kept"
    return f"{format_duration(workload.cache_s)} that consumers may be behind"


def _disks(sizing: Sizing) -> Iterator[Figure]:
    workload, hardware = sizing.workload, sizing.hardware
    stored = workload.stored_bytes * workload.replicas
    disks = sizing.machines * hardware.disks
    full = stored / (disks * hardware.disk_bytes)
    yield Figure(
        "disks",
        "disks",
        disks,
        f"{disks:,} of {format_bytes(hardware.disk_bytes)} ({hardware.disks} in each machine), {full:.0%} "
        "full",
        f"{counted(sizing.machines, 'machine')} x {hardware.disks}; {format_bytes(stored)} / "
        f"({disks:,} x {format_bytes(hardware.disk_bytes)})",
    )
    writes = workload.write_bytes_s * workload.replicas / disks
    yield Figure(
        "disk_write_bytes_per_second",
        "writes to a disk",
        writes,
        f"{format_bytes(writes, '/s')} of {format_bytes(hardware.disk_write_bytes_s, '/s')}",
        f"{format_bytes(workload.write_bytes_s * workload.replicas, '/s')} / {disks:,} disks",
    )
    replicas = math.ceil(sizing.partitions * workload.replicas / sizing.machines)
    active = replicas * _SEGMENT_BYTES
    yield Figure(
        "ssd_bytes_per_machine",
        "SSD for active segments",
        active,
        f"{format_bytes(active)} per machine",
        f"{counted(replicas, 'replica')} x {format_bytes(_SEGMENT_BYTES)} (segment.bytes). Brokers do not "
        "move segments between disks: use SSDs for all, or a cache in front of hard disks (lvmcache, bcache)",
    )
    yield from _rebuild(sizing)


def _rebuild(sizing: Sizing) -> Iterator[Figure]:
    workload = sizing.workload
    if workload.replicas == 1 or sizing.machines <= workload.replicas:
        return
    lost = workload.stored_bytes * workload.replicas / sizing.machines
    receivers = sizing.brokers - sizing.brokers_per_machine
    seconds = lost / (receivers * REBUILD_BYTES_S)
    yield Figure(
        "rebuild_seconds",
        "rebuild of a lost machine",
        seconds,
        format_duration(seconds),
        f"{format_bytes(lost)} to {counted(receivers, 'broker')}, each at penstock.balance.bytes.per.second "
        f"({format_bytes(REBUILD_BYTES_S, '/s')})",
    )


def _network(sizing: Sizing) -> Iterator[Figure]:
    workload = sizing.workload
    limit = f"limit: {format_bits(sizing.hardware.network_bytes_s)} x {NETWORK_BUSY:.0%}"
    for key, label, total, formula in (
        ("in", "network in", sizing.received_bytes_s, counted(workload.replicas, "replica")),
        (
            "out",
            "network out",
            sizing.sent_bytes_s,
            f"({counted(workload.replicas - 1, 'follower')} + {counted(workload.fan_out, 'consumer group')})",
        ),
    ):
        each, machine = total / sizing.brokers, total / sizing.machines
        yield Figure(
            f"network_{key}_bytes_per_second",
            f"{label} of a broker",
            each,
            f"{format_bits(each)}, {format_bits(machine)} of its machine",
            f"{format_bytes(workload.write_bytes_s, '/s')} x {formula} / "
            f"{counted(sizing.brokers, 'broker')}; {limit}",
        )
