"""Plans on paper: placed by the controller's code, no broker is over its limits, also with losses.

The costs are the measured ones of the package. So new measurements are checked, too.
"""

from __future__ import annotations

import os

import pytest

from docs.planned import PAPER_CLUSTERS, PAPER_HARDWARE, PaperCase
from penstock.cli.planning.shipped import shipped_coefficients
from penstock.planning.paper import VOTERS, PaperCluster, Peak
from penstock.planning.plan import make_plan
from penstock.planning.sizing import Sizing, size_cluster
from penstock.planning.workload import Hardware, Workload
from tests.planning.samples import workload

#: `make paper` also checks the cluster whose placement takes a minute
LIMITS = {"processor", "network in", "network out", "disk writes", "disk space", "page cache", VOTERS}
WITH_LARGEST = bool(os.environ.get("PENSTOCK_PAPER"))


def planned(load: Workload, hardware: Hardware) -> Sizing:
    return make_plan(load, hardware, shipped_coefficients()).sizing


def over(peaks: list[Peak]) -> list[Peak]:
    return [peak for peak in peaks if peak.exceeded]


@pytest.mark.parametrize("case", PAPER_CLUSTERS, ids=str)
def test_no_broker_is_over_its_limits_also_with_a_machine_or_a_zone_lost(case: PaperCase) -> None:
    """The table of docs/planning.md: 1 M and 10 M messages/s of 1 KB and 10 KB."""
    if case.checked_by == "make paper" and not WITH_LARGEST:
        pytest.skip("takes a minute: make paper")
    peaks = PaperCluster(planned(case.workload(), PAPER_HARDWARE)).check(machines=2)
    assert over(peaks) == []
    assert {peak.resource for peak in peaks} == LIMITS
    situations = list(dict.fromkeys(peak.situation for peak in peaks))
    assert situations[0] == "all machines up"
    assert sum(name.startswith("machine ") for name in situations) == 2
    assert situations[3:] == ["zone 1 lost", "zone 2 lost", "zone 3 lost"]


def test_a_plan_is_not_far_from_its_limits() -> None:
    """The checks are of use only if the binding constraint is nearly used up."""
    for load, resource in (
        (workload(zones=3), "disk space"),
        (workload(zones=3, retention_s=600.0), "processor"),
        (workload(zones=3, retention_s=600.0, fan_out=60, batch_bytes=1_000_000), "network out"),
    ):
        peaks = PaperCluster(planned(load, Hardware(cores=8))).check(machines=3)
        assert over(peaks) == []
        assert max(peak.share for peak in peaks if peak.resource == resource) > 0.5


def test_every_machine_of_a_small_cluster_may_be_lost() -> None:
    for zones in (1, 3):
        assert over(PaperCluster(planned(workload(rate=200e3, zones=zones), Hardware())).check()) == []


@pytest.mark.parametrize("replicas", [2, 3])
def test_one_of_two_zones_has_the_majority_of_the_voters(replicas: int) -> None:
    """All other limits are kept, but without that zone the cluster elects no leaders."""
    sizing = planned(workload(rate=200e3, zones=2, replicas=replicas), Hardware())
    assert sizing.voters == 5
    assert over(PaperCluster(sizing).check()) == [Peak("zone 1 lost", VOTERS, 3 / 2)]


def test_a_cluster_that_is_too_small_is_found_out() -> None:
    sizing = size_cluster(workload(zones=3), Hardware(), shipped_coefficients())
    smaller = Sizing(
        workload=sizing.workload,
        hardware=sizing.hardware,
        costs=sizing.costs,
        needs=sizing.needs,
        machines=sizing.machines - 6,
        brokers_per_machine=sizing.brokers_per_machine,
        partitions=sizing.partitions,
        idle_cores=sizing.idle_cores,
    )
    assert {peak.resource for peak in over(PaperCluster(smaller).check())} == {"disk space"}


def test_replicas_never_share_a_machine() -> None:
    sizing = planned(workload(rate=100e3, retention_s=3600.0), Hardware(cores=16))
    cluster = PaperCluster(sizing)
    machines = cluster.machines_of_replicas()
    assert machines and all(len(set(each)) == sizing.workload.replicas for each in machines)


def test_a_sum_that_is_not_precise_exceeds_no_limit() -> None:
    """The page cache of one replica without a spread: the sum over partitions is above 1 by a digit."""
    load = workload(rate=1848.5436098270432, size_bytes=100, replicas=1, zones=4, retention_s=86_400.0)
    peaks = PaperCluster(planned(load, Hardware())).check()
    assert max(peak.share for peak in peaks) == pytest.approx(1)
    assert over(peaks) == []
    assert Peak("a situation", "a resource", 1.001).exceeded


def test_with_one_replica_nothing_is_lost_on_paper() -> None:
    peaks = PaperCluster(planned(workload(replicas=1), Hardware())).check()
    assert {peak.situation for peak in peaks} == {"all machines up"}
    assert over(peaks) == []
