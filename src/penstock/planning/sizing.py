"""How many machines and brokers a workload needs, and which constraint is the binding one.

Each constraint has a number of machines of its own. The cluster has the largest, rounded up to whole zones. A
plan holds with one machine gone, after its replicas were rebuilt on the others, and with one zone gone,
before anything was rebuilt. With one replica there is nothing to rebuild, so that no machine is spare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.planning.coefficients import Coefficients
from penstock.planning.costs import Costs, costs_of
from penstock.planning.units import PlanError, counted, format_bytes, format_count
from penstock.planning.workload import (
    BROKER_BUSY,
    DISK_BUSY,
    DISK_FULL,
    LEADERS_PER_BROKER,
    NETWORK_BUSY,
    REPLICAS_PER_DISK,
    UNEVEN_LEADERS,
    UNEVEN_REPLICAS,
    Hardware,
    Workload,
)

__all__ = ["Need", "Sizing", "size_cluster", "uneven_replicas"]

#: more would be a mistyped option rather than a cluster
_MOST_MACHINES: Final = 100_000
#: a quorum that survives the loss of a machine has three voters
_QUORUM_MACHINES: Final = 3


@dataclass(frozen=True, slots=True)
class Need:
    """The machines that one constraint needs; `formula` has the numbers."""

    constraint: str
    machines: int
    formula: str


@dataclass(frozen=True, slots=True)
class Sizing:
    """A cluster for one workload."""

    workload: Workload
    hardware: Hardware
    costs: Costs
    needs: tuple[Need, ...]
    machines: int
    brokers_per_machine: int
    partitions: int
    idle_cores: float

    @property
    def binding(self) -> Need:
        """The binding constraint: the first of those that need most machines."""
        return max(self.needs, key=lambda need: need.machines)

    @property
    def brokers(self) -> int:
        return self.machines * self.brokers_per_machine

    @property
    def spare(self) -> int:
        return _spare(self.workload)

    @property
    def carriers(self) -> int:
        """The machines that carry all replicas once those of a lost machine in each zone are rebuilt."""
        return self.machines - self.spare if self.machines > self.workload.replicas else self.machines

    @property
    def cache_bytes(self) -> float:
        """The page cache of the fullest machine after a rebuild: no more than the data that it stores."""
        workload = self.workload
        writes = workload.write_bytes_s * workload.replicas * uneven_replicas(workload) / self.carriers
        return writes * workload.cache_s

    @property
    def received_bytes_s(self) -> float:
        """What all replicas receive: leaders from producers, followers from leaders."""
        return self.workload.write_bytes_s * self.workload.replicas

    @property
    def sent_bytes_s(self) -> float:
        """What all leaders send to followers and consumers."""
        return self.workload.write_bytes_s * (self.workload.replicas - 1 + self.workload.fan_out)

    @property
    def voters(self) -> int:
        """Voters of the metadata quorum: an odd number, at most one on each machine."""
        return 5 if self.machines >= 5 else 3 if self.machines >= 3 else 1

    @property
    def cores_per_machine(self) -> int:
        """A core for each broker and one for the system, which a machine with a single core does not have."""
        return min(self.brokers_per_machine + 1, self.hardware.cores)

    @property
    def cores(self) -> float:
        """Busy cores of all brokers together, with every machine up."""
        return _busy_cores(self.workload, self.costs, self.workload.replicas) + self.idle_cores

    @property
    def partition_limit_bytes_s(self) -> float:
        """What one partition can take: its leader is one core."""
        readers = self.workload.replicas - 1 + self.workload.fan_out
        return BROKER_BUSY / self.costs.leader(readers)


def size_cluster(
    workload: Workload, hardware: Hardware, measured: Coefficients, partitions: int = 0
) -> Sizing:
    """The smallest cluster; `partitions` is the least number of partitions."""
    costs = costs_of(workload, measured)
    idle = measured.idle_cores_per_replica.value
    found = _sized(workload, hardware, costs, partitions, 0.0)
    # Idle partitions cost processor time, too, and their number follows from the number of brokers.
    return _sized(workload, hardware, costs, partitions, found.partitions * workload.replicas * idle)


def _sized(
    workload: Workload, hardware: Hardware, costs: Costs, partitions: int, idle_cores: float
) -> Sizing:
    needs = _needs(workload, hardware, costs, idle_cores)
    machines = max(need.machines for need in needs)
    machines = math.ceil(machines / workload.zones) * workload.zones
    if machines > _MOST_MACHINES:
        worst = max(needs, key=lambda need: need.machines)
        raise PlanError(
            f"no cluster is this large: {worst.constraint} alone needs {worst.machines:,} machines "
            f"({worst.formula}); give larger machines (--disk, --disks, --network, --cores), or check the "
            "units"
        )
    spare = _spare(workload)
    wanted = _cores_after(workload, costs, idle_cores)
    survivors = {"machine": machines - spare, "zone": _left(machines, workload)}
    brokers = max(1, *(math.ceil(cores / survivors[loss]) for loss, cores in wanted.items()))
    return Sizing(
        workload=workload,
        hardware=hardware,
        costs=costs,
        needs=needs,
        machines=machines,
        brokers_per_machine=brokers,
        partitions=_partitions(workload, hardware, costs, machines, brokers, partitions),
        idle_cores=idle_cores,
    )


def uneven_replicas(workload: Workload) -> float:
    """The replicas of the fullest machine, relative to the mean."""
    return UNEVEN_REPLICAS if workload.replicas > 1 else 1.0


def _spare(workload: Workload) -> int:
    """Machines whose share the others can carry: one in each zone, in which its replicas are rebuilt."""
    return workload.zones if workload.replicas > 1 else 0


def _left(machines: int, workload: Workload) -> int:
    """The machines that are left when one zone is gone; all of them with one zone or one replica."""
    if workload.zones == 1 or workload.replicas == 1:
        return machines
    return machines * (workload.zones - 1) // workload.zones


def _alive(workload: Workload) -> float:
    """The replicas of a partition that are left, on average, when one zone is gone."""
    if workload.zones == 1 or workload.replicas == 1:
        return workload.replicas
    return workload.replicas * (1 - 1 / workload.zones)


def _busy_cores(workload: Workload, costs: Costs, replicas: float) -> float:
    """Busy cores of a cluster in which every partition has that many replicas."""
    per_byte = costs.leader(replicas - 1 + workload.fan_out) + costs.follow * (replicas - 1)
    return workload.write_bytes_s * per_byte


def _cores_after(workload: Workload, costs: Costs, idle_cores: float) -> dict[str, float]:
    """Cores that brokers must have after the loss of a machine, and of a zone, by their limits."""

    def wanted(replicas: float) -> float:
        leading = costs.leader(replicas - 1 + workload.fan_out) * UNEVEN_LEADERS
        following = costs.follow * (replicas - 1) * UNEVEN_REPLICAS
        return (workload.write_bytes_s * (leading + following) + idle_cores) / BROKER_BUSY

    return {"machine": wanted(workload.replicas), "zone": wanted(_alive(workload))}


def _needs(workload: Workload, hardware: Hardware, costs: Costs, idle_cores: float) -> tuple[Need, ...]:
    """The machines that each constraint needs, those that users buy first."""
    stored = workload.stored_bytes * workload.replicas
    writes = workload.write_bytes_s * workload.replicas
    sent = workload.write_bytes_s * (workload.replicas - 1 + workload.fan_out)
    voters = _QUORUM_MACHINES if workload.replicas > 1 else 1
    return (
        _need("disk space", workload, stored, hardware.usable_disk_bytes, "stored", _disk_text(hardware)),
        _need(
            "disk writes",
            workload,
            writes,
            hardware.usable_write_bytes_s,
            "written",
            f"{hardware.disks} disks x {format_bytes(hardware.disk_write_bytes_s, '/s')} x {DISK_BUSY:.0%}",
        ),
        _need(
            "network in", workload, writes, hardware.usable_network_bytes_s, "received", _net_text(hardware)
        ),
        _network_out(workload, hardware, sent),
        _cpu(workload, hardware, costs, idle_cores),
        Need(
            "replicas and zones",
            max(workload.replicas, workload.zones, voters),
            f"{counted(workload.replicas, 'replica')} on different machines, "
            f"{counted(workload.zones, 'zone')}, {counted(voters, 'voter')}",
        ),
    )


def _need(constraint: str, workload: Workload, total: float, usable: float, verb: str, each: str) -> Need:
    spare = _spare(workload)
    uneven = UNEVEN_LEADERS if verb == "sent" and workload.replicas > 1 else uneven_replicas(workload)
    machines = math.ceil(total * uneven / usable) + spare
    rate = "" if verb == "stored" else "/s"
    formula = f"{format_bytes(total, rate)} {verb} x {uneven} for the most loaded / ({each})"
    return Need(constraint, machines, formula + (f" + {spare} spare" if spare else ""))


def _network_out(workload: Workload, hardware: Hardware, sent: float) -> Need:
    """Leaders send all that followers and consumers read. After the loss of a zone fewer machines have the
    leaders.
    """
    need = _need("network out", workload, sent, hardware.usable_network_bytes_s, "sent", _net_text(hardware))
    left = workload.write_bytes_s * (max(0.0, _alive(workload) - 1) + workload.fan_out) * UNEVEN_LEADERS
    machines = math.ceil(left / hardware.usable_network_bytes_s)
    if workload.zones > 1 and workload.replicas > 1:
        machines = math.ceil(machines * workload.zones / (workload.zones - 1))
        if machines > need.machines:
            formula = (
                f"{format_bytes(left, '/s')} sent after the loss of a zone, {UNEVEN_LEADERS} x the mean by "
                f"the busiest / ({_net_text(hardware)}) x {workload.zones} / {workload.zones - 1} zones"
            )
            return Need("network out", machines, formula)
    return need


def _cpu(workload: Workload, hardware: Hardware, costs: Costs, idle_cores: float) -> Need:
    wanted = _cores_after(workload, costs, idle_cores)
    spare = _spare(workload)
    after_machine = math.ceil(wanted["machine"] / hardware.broker_cores) + spare
    after_zone = math.ceil(wanted["zone"] / hardware.broker_cores)
    if workload.zones > 1 and workload.replicas > 1:
        after_zone = math.ceil(after_zone * workload.zones / (workload.zones - 1))
    if after_zone > after_machine:
        text = f"{format_count(wanted['zone'])} cores after the loss of a zone"
        tail = f" x {workload.zones} / {workload.zones - 1} zones"
    else:
        text = f"{format_count(wanted['machine'])} cores"
        tail = f" + {spare} spare" if spare else ""
    formula = f"{text} (busy at most {BROKER_BUSY:.0%}) / {hardware.broker_cores} for brokers{tail}"
    return Need("processor", max(after_machine, after_zone), formula)


def _partitions(
    workload: Workload, hardware: Hardware, costs: Costs, machines: int, brokers: int, least: int
) -> int:
    """A multiple of the number of brokers, so that each leads as many."""
    all_brokers = machines * brokers
    per_partition = BROKER_BUSY / costs.leader(workload.replicas - 1 + workload.fan_out)
    # As many disks as data needs: a cluster that is sized by another constraint has disks to spare.
    disks = math.ceil(workload.stored_bytes * workload.replicas / (hardware.disk_bytes * DISK_FULL))
    wanted = max(
        least,
        all_brokers * LEADERS_PER_BROKER,
        # A partition that needs more than a quarter of its core leaves no choice of a leader.
        math.ceil(workload.write_bytes_s / per_partition * 4),
        math.ceil(disks * REPLICAS_PER_DISK / workload.replicas),
    )
    return math.ceil(wanted / all_brokers) * all_brokers


def _disk_text(hardware: Hardware) -> str:
    return f"{hardware.disks} disks x {format_bytes(hardware.disk_bytes)} x {DISK_FULL:.0%}"


def _net_text(hardware: Hardware) -> str:
    return f"{format_bytes(hardware.network_bytes_s, '/s')} x {NETWORK_BUSY:.0%}"
