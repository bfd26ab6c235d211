"""The coefficients of `penstock plan` and the results that they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import coefficients
from bench.results import LATEST, Run, load
from penstock.cli.planning.shipped import shipped_coefficients
from penstock.planning.coefficients import UNITS, Coefficient, decode


def values(**changed: float) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Rows with round numbers."""
    rows = {
        ("produce-1k", "CPU per GB"): 0.5,
        ("produce-100", "CPU per million"): 0.07,
        ("consume-1k", "CPU per GB"): 0.1,
        ("cluster-produce-1k", "CPU per GB"): 3.5,
        ("partitions", "Produce at 100"): 30.0,
        ("partitions", "Fetch at 100"): 40.0,
        ("cluster-idle", "cores"): 0.03,
        ("start", "resident, idle"): 40.0,
        ("connections", "memory per connection"): 4.0,
    }
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (row, metric), value in rows.items():
        rounds = [value * 9, value, value / 9]
        found.setdefault(row, {})[metric] = {"penstock": rounds, "kafka": [99.0]}
    return found


def run() -> Run:
    return Run("a machine", {}, "abc1234", 3, 1.0, ["penstock", "kafka"], values(), date="2026-01-01")


def test_coefficients_follow_from_the_medians_of_the_rows() -> None:
    found = coefficients.derived([run()])
    assert found.append_s_per_gb == Coefficient(0.5, "produce-1k (abc1234 2026-01-01)")
    assert found.fetch_s_per_gb.value == 0.1
    # (3.5 - 0.5) / 2 followers is 1.5, of which the leader serves 0.1
    assert found.replicate_s_per_gb.value == pytest.approx(1.4)
    assert found.record_us.value == pytest.approx(0.07 - 0.05)
    assert found.produce_request_us.value == pytest.approx(30 - 0.5 * 16.384, rel=1e-3)
    assert found.fetch_request_us.value == pytest.approx(40 - 0.1 * 16.384, rel=1e-3)
    assert found.idle_cores_per_replica.value == pytest.approx(1e-5)


def test_the_file_is_written_only_with_all_rows(tmp_path: Path) -> None:
    path, part = tmp_path / "coefficients.json", run()
    del part.values["start"]
    assert not coefficients.write_if_complete([part], path)
    assert not path.exists()
    assert coefficients.write_if_complete([run()], path)
    assert decode(path.read_bytes()) == coefficients.derived([run()])


def test_the_shipped_coefficients_are_those_of_the_results() -> None:
    """Equal where they name the same runs; a row that was measured again since may differ by its noise.

    `python -m bench.coefficients` writes the file.
    """
    shipped, current = shipped_coefficients(), coefficients.derived(load(LATEST))
    for name in UNITS:
        known: Coefficient = getattr(shipped, name)
        measured: Coefficient = getattr(current, name)
        assert re.search(r"\([0-9a-f]{7}", known.source), f"{name} has no commit"
        if known.source == measured.source:
            assert known == measured, f"{name}: run `python -m bench.coefficients`"
        else:
            assert measured.value / 2.5 <= known.value <= measured.value * 2.5, (
                f"{name}: run `python -m bench.coefficients`"
            )
