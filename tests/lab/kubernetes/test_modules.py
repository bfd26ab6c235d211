"""Modules from which programs of Kubernetes are built."""

from __future__ import annotations

import pytest

from lab.kubernetes.modules import kubernetes_module, plain_module, version_flags

PUBLISHED = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
	k8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
)
"""


def test_staged_libraries_are_replaced_by_their_published_versions() -> None:
    assert kubernetes_module(PUBLISHED, "v1.34.4") == (
        "module penstock.example/kubernetes\n"
        "go 1.24.0\n"
        "godebug default=go1.24\n"
        "require k8s.io/kubernetes v1.34.4\n"
        "replace k8s.io/api => k8s.io/api v0.34.4\n"
        "replace k8s.io/client-go => k8s.io/client-go v0.34.4\n"
    )


def test_a_block_of_debug_settings_is_taken_over() -> None:
    block = "godebug (\n\tdefault=go1.24\n\twinsymlink=0\n)"
    written = kubernetes_module(PUBLISHED.replace("godebug default=go1.24", block), "v1.34.4")
    assert block in written


def test_a_module_that_is_not_kubernetes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not the go\.mod of k8s\.io/kubernetes"):
        kubernetes_module("module other\n\ngo 1.24.0\n", "v1.34.4")


def test_programs_are_linked_with_their_version() -> None:
    prefix = "-X=k8s.io/component-base/version."
    wanted = [f"{prefix}gitVersion=v1.34.4", f"{prefix}gitMajor=1", f"{prefix}gitMinor=34"]
    assert version_flags("v1.34.4") == wanted


def test_a_plain_module_requires_nothing() -> None:
    assert plain_module("pause", "1.24.0") == "module penstock.example/pause\ngo 1.24.0\n"
