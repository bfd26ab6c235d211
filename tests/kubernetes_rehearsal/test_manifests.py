"""The pods of the clients, and the values of the release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubernetes_rehearsal.manifests import LOAD, TOOLS, chart_values, client_objects
from tests.deploy.charts import rendered


def objects(archive_class: str | None = "shared") -> list[dict[str, Any]]:
    found = client_objects(
        "penstock", "image:1", "Never", "penstock:9092", "print()", "node-3", archive_class
    )
    return list(found)


def pods(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == "Pod"}


def test_clients_run_on_the_node_that_is_left_alone() -> None:
    for pod in pods(objects()).values():
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node-3"}


def test_every_mount_of_a_client_has_its_volume() -> None:
    for archive_class in ("shared", None):
        for pod in pods(objects(archive_class)).values():
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            (container,) = pod["spec"]["containers"]
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_a_cluster_without_shared_volumes_gets_no_claim_and_no_backup() -> None:
    assert {each["kind"] for each in objects(None)} == {"ConfigMap", "Pod"}
    assert "backup" not in chart_values("image", "1", "Never", "", archive=False, external_metrics=False)


def test_load_and_tools_are_pods_of_the_same_image() -> None:
    found = pods(objects())
    assert set(found) == {LOAD, TOOLS}
    assert {each["spec"]["containers"][0]["image"] for each in found.values()} == {"image:1"}


def test_the_chart_accepts_the_values(tmp_path: Path) -> None:
    values = chart_values(
        "localhost/penstock", "rehearsal-1", "Never", "disks", archive=True, external_metrics=True
    )
    kinds = {each["kind"] for each in rendered(values, tmp_path)}
    assert {"StatefulSet", "CronJob"} <= kinds
