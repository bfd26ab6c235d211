"""The result file of a rehearsal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubernetes_rehearsal import reporting
from kubernetes_rehearsal.scenario import Step
from lab.home import LabError


def rehearsed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: bool, until: str = ""
) -> tuple[int, Any]:
    def steps(release: Any, setting: Any, say: Callable[[str], None]) -> Iterator[Step]:
        yield Step("install and produce", 2.0, "3 brokers")
        yield Step("kill a pod", 1.0, "penstock-1")
        if fails:
            raise LabError("the count of load does not add up")

    monkeypatch.setattr(reporting, "rehearse", steps)
    nothing: Any = None
    status = reporting.report(nothing, nothing, tmp_path / "build/kubernetes.json", until)
    return status, json.loads((tmp_path / "build/kubernetes.json").read_text())


def test_a_rehearsal_that_ends_has_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, found = rehearsed(monkeypatch, tmp_path, fails=False)
    assert (status, found["failure"]) == (0, "")
    assert [step["name"] for step in found["steps"]] == ["install and produce", "kill a pod"]


def test_a_failed_step_is_reported_with_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, found = rehearsed(monkeypatch, tmp_path, fails=True)
    assert (status, found["failure"]) == (1, "the count of load does not add up")
    assert len(found["steps"]) == 2


def test_a_rehearsal_ends_after_the_chosen_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, found = rehearsed(monkeypatch, tmp_path, fails=True, until="install")
    assert (status, len(found["steps"])) == (0, 1)
