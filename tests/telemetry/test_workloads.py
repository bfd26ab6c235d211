"""Which workload labels name: those of dcgm-exporter itself, and what Prometheus makes of them."""

from __future__ import annotations

import pytest

from penstock.telemetry.workloads import (
    NOTHING,
    Workload,
    WrongWorkloadLabels,
    parse_order,
    workload_of,
)

#: what Prometheus adds to every sample of a ServiceMonitor's target
SCRAPE = {"job": "dcgm-exporter", "service": "dcgm-exporter", "endpoint": "metrics"}
OWN_POD = {"pod": "dcgm-exporter-x7kqz", "namespace": "monitoring", "container": "exporter"}
TRAINER = {"pod": "trainer-0", "namespace": "team", "container": "main"}


def exported(labels: dict[str, str]) -> dict[str, str]:
    return {f"exported_{name}": value for name, value in labels.items()}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, NOTHING),
        # the scrape's own labels
        (SCRAPE, NOTHING),
        ({**SCRAPE, "namespace": "monitoring"}, NOTHING),
        # scraped directly, or with honor_labels
        (TRAINER, Workload("team/trainer-0/main", None, "trainer-0", "team")),
        ({**SCRAPE, **TRAINER}, Workload("team/trainer-0/main", None, "trainer-0", "team")),
        ({"pod": "", "namespace": "", "container": ""}, NOTHING),
        ({"pod_name": "old-0", "pod_namespace": "n"}, Workload("n/old-0", None, "old-0", "n")),
        # without honor_labels: the plain labels are the exporter's own
        (
            {**SCRAPE, **OWN_POD, **exported(TRAINER)},
            Workload("team/trainer-0/main", None, "trainer-0", "team"),
        ),
        ({**SCRAPE, **OWN_POD}, NOTHING),
        ({"job": "gpu-metrics", "pod": "gpu-metrics-2xk4d", "namespace": "ops"}, NOTHING),
        # one that is only a namesake of its namespace
        ({**SCRAPE, **OWN_POD, "exported_namespace": "team"}, Workload(None, None, None, "team")),
        # batch schedulers
        ({**SCRAPE, "hpc_job": "4711"}, Workload("4711", "4711", None, None)),
        ({**SCRAPE, "slurm_job_id": "4711"}, Workload("4711", "4711", None, None)),
        ({**SCRAPE, "exported_job": "4711"}, Workload("4711", "4711", None, None)),
        (
            {**TRAINER, "hpc_job": "4711"},
            Workload("team/trainer-0/main", "4711", "trainer-0", "team"),
        ),
    ],
)
def test_a_workload_is_named_by_its_labels(labels: dict[str, str], expected: Workload) -> None:
    assert workload_of(labels) == expected


def test_the_order_of_labels_can_be_changed() -> None:
    labels = {**TRAINER, "hpc_job": "4711", "label_team_job": "llama"}
    assert workload_of(labels, parse_order("hpc_job,pod")).name == "4711"
    assert workload_of(labels, parse_order(" label_team_job , pod ")).name == "llama"
    # A scrape's own label counts if the source says so.
    assert workload_of(SCRAPE, parse_order("job")).name == "dcgm-exporter"
    with pytest.raises(WrongWorkloadLabels):
        parse_order(" , ")


def test_values_that_are_no_texts() -> None:
    assert workload_of({"slurm_job_id": 4711}).name == "4711"
