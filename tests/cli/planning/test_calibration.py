"""Calibration on this machine, with real brokers and few bytes."""

from __future__ import annotations

import pytest

from penstock.cli.failure import Failure
from penstock.cli.planning import calibration
from penstock.cli.planning.shipped import shipped_coefficients
from penstock.planning.coefficients import UNITS


@pytest.mark.process
def test_the_costs_of_this_machine_are_measured() -> None:
    shipped = shipped_coefficients()
    found = calibration.calibrated(shipped, megabytes=5)
    assert found.machine.startswith("this machine (")
    for name in UNITS:
        source = getattr(found, name).source
        assert source.endswith(("measured on this machine", "not measured by --calibrate")), name
    # A few megabytes say little about the costs of a gigabyte, except that there are some.
    assert found.append_s_per_gb.value > 0 and found.fetch_s_per_gb.value > 0
    assert 10 < found.resident_mb.value < 1000
    assert found.record_us.value == shipped.record_us.value


def test_without_schedstat_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    monkeypatch.setattr(calibration, "_PROC", Path("/nowhere"))
    with pytest.raises(Failure, match="needs /proc/PID/schedstat of Linux"):
        calibration.calibrated(shipped_coefficients())
