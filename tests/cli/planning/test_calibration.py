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


def test_noise_makes_no_cost_vanish() -> None:
    shipped = shipped_coefficients()
    noisy = calibration._Measured(
        append=2e-9,
        fetch=1e-9,
        replicated=3e-9,
        produce_request=-1e-6,
        fetch_request=5e-5,
        resident_bytes=4e7,
    )
    found = calibration._coefficients(shipped, noisy)
    assert found.replicate_s_per_gb.value == 2.0, "a follower appends, too"
    assert found.produce_request_us.value == shipped.produce_request_us.value
    assert found.produce_request_us.source.endswith("not measured by --calibrate")
    assert found.fetch_request_us.value == 50.0


def test_a_busy_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (1.9, 9.0, 9.0))
    assert calibration.busy_warning() == ""
    monkeypatch.setattr("os.getloadavg", lambda: (3.04, 0.0, 0.0))
    assert "busy (load 3.0 on 4 cores)" in calibration.busy_warning()
