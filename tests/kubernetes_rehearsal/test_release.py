"""The release of the chart, with a kubectl that answers from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubernetes_rehearsal.release import Release, eventually, is_ready
from lab.home import LabError
from lab.kubernetes.kubectl import Kubectl


def release(tmp_path: Path, script: str) -> Release:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Release(Kubectl(program, tmp_path / "access"), tmp_path / "helm", "queue")


def pod(name: str, ready: str = "True") -> dict[str, object]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.process
def test_brokers_are_sorted_by_their_ordinals(tmp_path: Path) -> None:
    items = [pod("penstock-10"), pod("penstock-2"), pod("penstock-0")]
    (tmp_path / "pods.json").write_text(json.dumps({"items": items}))
    found = release(tmp_path, f"cat {tmp_path}/pods.json").brokers()
    assert [each["metadata"]["name"] for each in found] == ["penstock-0", "penstock-2", "penstock-10"]


@pytest.mark.process
def test_all_brokers_have_to_be_ready(tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text(
        json.dumps({"items": [pod("penstock-0"), pod("penstock-1", "False")]})
    )
    assert not release(tmp_path, f"cat {tmp_path}/pods.json").all_ready(2)


def test_a_pod_that_ends_is_not_ready() -> None:
    ending = pod("penstock-0")
    assert is_ready(ending)
    assert not is_ready({**ending, "metadata": {"deletionTimestamp": "2026-11-19T00:00:00Z"}})


@pytest.mark.process
def test_the_disruption_budget_refuses_an_eviction(tmp_path: Path) -> None:
    refusal = "Error from server (TooManyRequests): it would violate the pod's disruption budget."
    assert not release(tmp_path, f'echo "{refusal}" >&2; exit 1').may_evict("penstock-1")
    assert release(tmp_path, "cat").may_evict("penstock-1")


@pytest.mark.process
def test_another_refusal_of_an_eviction_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="Forbidden"):
        release(tmp_path, 'echo "Error from server (Forbidden)" >&2; exit 1').may_evict("penstock-1")


@pytest.mark.process
def test_commands_run_in_the_namespace_of_the_release(tmp_path: Path) -> None:
    said = release(tmp_path, 'echo "$@"').kubectl("get", "pods")
    assert said.split() == [f"--kubeconfig={tmp_path}/access", "--namespace=queue", "get", "pods"]


def test_a_condition_that_never_holds_is_named() -> None:
    with pytest.raises(LabError, match="not within 0 s: the moon is full"):
        eventually(lambda: False, "the moon is full", patience_s=0)
