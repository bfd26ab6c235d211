"""How many machines a workload needs, and why."""

from __future__ import annotations

import pytest

from penstock.planning.sizing import size_cluster
from penstock.planning.units import PlanError
from penstock.planning.workload import Hardware, Workload
from tests.planning.samples import coefficients, workload


def needs(load: Workload, hardware: Hardware | None = None) -> dict[str, int]:
    sizing = size_cluster(load, hardware or Hardware(), coefficients())
    return {need.constraint: need.machines for need in sizing.needs}


def test_the_disks_of_a_week_bind_first() -> None:
    sizing = size_cluster(workload(zones=3, fan_out=3), Hardware(), coefficients())
    assert sizing.binding.constraint == "disk space"
    # 1.8144 PB x 1.1 in 12 disks of 8 TB, 85 % full, is 24.5 machines; then a spare one in each zone
    assert sizing.binding.machines == 25 + 3
    assert sizing.machines == 30 and sizing.machines % 3 == 0


def test_a_short_retention_is_bound_by_the_processor_or_by_the_network() -> None:
    assert size_cluster(
        workload(retention_s=600.0), Hardware(cores=4), coefficients()
    ).binding.constraint == ("processor")
    wide = workload(retention_s=600.0, fan_out=50, batch_bytes=1_000_000)
    assert size_cluster(wide, Hardware(cores=64), coefficients()).binding.constraint == "network out"
    slow = Hardware(cores=64, disks=1, disk_write_bytes_s=100e6)
    assert size_cluster(workload(retention_s=60.0), slow, coefficients()).binding.constraint == "disk writes"


def test_a_small_workload_needs_a_machine_for_each_replica() -> None:
    sizing = size_cluster(workload(rate=10.0), Hardware(), coefficients())
    assert (sizing.machines, sizing.brokers, sizing.binding.constraint) == (3, 3, "replicas and zones")
    assert size_cluster(workload(rate=10.0, replicas=1), Hardware(), coefficients()).machines == 1


def test_more_of_anything_never_needs_fewer_machines() -> None:
    known = needs(workload())
    for change in ({"rate": 2e6}, {"size_bytes": 2000}, {"retention_s": 14 * 86_400.0}, {"replicas": 4}):
        more = needs(workload(**change))
        assert all(more[constraint] >= known[constraint] for constraint in known)
    assert needs(workload(fan_out=9))["network out"] > known["network out"]
    assert needs(workload(), Hardware(disks=24))["disk space"] < known["disk space"]


def test_each_broker_leads_as_many_partitions() -> None:
    sizing = size_cluster(workload(zones=3), Hardware(), coefficients())
    assert sizing.partitions % sizing.brokers == 0
    assert sizing.partitions / sizing.brokers >= 16


def test_a_partition_is_never_faster_than_its_leaders_core() -> None:
    """With few machines and much load, the rate of partitions decides their number."""
    sizing = size_cluster(workload(retention_s=60.0, batch_bytes=1_000_000), Hardware(), coefficients())
    assert sizing.workload.write_bytes_s / sizing.partitions < sizing.partition_limit_bytes_s / 4


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"size_bytes": 3 * 10**9}, "a message of 3 GB is too large"),
        ({"replicas": 0}, "--replicas 0 is not in the range from 1 to 15"),
        ({"zones": 0}, "--zones 0"),
        ({"fan_out": -1}, "--fan-out -1"),
        ({"rate": 1e15}, "no cluster is this large: disk space alone needs"),
    ],
)
def test_impossible_input_has_one_line(changes: dict[str, float], part: str) -> None:
    with pytest.raises(PlanError, match=r"^[^\n]+$") as caught:
        size_cluster(workload(**changes), Hardware(), coefficients())
    assert part in str(caught.value)


def test_a_machine_has_a_core_and_a_disk() -> None:
    with pytest.raises(PlanError, match="--cores 0"):
        Hardware(cores=0)
    with pytest.raises(PlanError, match="--disks 2000"):
        Hardware(disks=2000)
    assert Hardware(cores=1).broker_cores == 1
