"""The part of `make disasters` that runs with every test: three brokers, several disasters in one stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from disasters import report
from disasters.catalogue import Disaster
from disasters.combined import COMBINED
from disasters.run import Runner
from disasters.system import SYSTEMS

_FAST = ("damage-stopped", "damage-killed")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_disaster_destroys_an_acknowledged_record(tmp_path: Path) -> None:
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
