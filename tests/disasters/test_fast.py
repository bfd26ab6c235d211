"""The part of `make disasters` that runs with every test: three brokers, several disasters in one stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from disasters import clients, cluster, report
from disasters.catalogue import Disaster
from disasters.combined import COMBINED
from disasters.run import Runner
from disasters.system import SYSTEMS

_FAST = ("damage-stopped", "damage-killed")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_disaster_destroys_an_acknowledged_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests share machines: a broker that is slow has lost nothing.
    monkeypatch.setattr(type(SYSTEMS["penstock"]), "whole_s", 120.0)
    monkeypatch.setattr(clients, "_STALLED_S", 60.0)
    monkeypatch.setattr(clients, "_REQUEST_S", 30.0)
    monkeypatch.setattr(clients, "_DELIVERY_S", 90.0)
    monkeypatch.setattr(cluster, "_STOP_S", 90.0)
    chosen = [disaster for disaster in COMBINED.disasters if disaster.name in _FAST]
    results = []
    with Runner(SYSTEMS["penstock"], tmp_path, print) as runner:
        for result in runner.run(chosen):
            results.append(result)
            print(report.line(result))
    harmed = [(report.line(r), *r.said) for r in results if not r.verdict.is_good]
    assert len(results) == len(_FAST)
    assert not harmed, harmed


def test_a_disaster_that_cannot_be_carried_out_is_not_run(tmp_path: Path) -> None:
    def fail(scene: object) -> None:
        raise AssertionError("no such file")

    # A cluster that no process has to be started for.
    class Unstarted(Runner):
        def _cluster_of(self, shape: object) -> object:  # type: ignore[override]
            raise AssertionError("no such file")

    with Unstarted(SYSTEMS["penstock"], tmp_path, print) as runner:
        [result] = runner.run([Disaster("odd", 0, "something odd", fail)])
    assert not result.verdict.is_good
    assert "no such file" in report.line(result)
