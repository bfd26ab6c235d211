"""What a pipeline says of itself: for Prometheus, and on a terminal."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console

from penstock.cli.telemetry.progress import shown
from penstock.telemetry.pipeline.progress import Progress
from tests.telemetry.pipeline.progress_reports import NOW_S, report


def query(end: int, latest: str | None) -> dict[str, Any]:
    return {"sources": [{"endOffset": f'{{"t": {{"0": {end}, "1": 10}}}}', "latestOffset": latest}]}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def progress(registry: CollectorRegistry) -> Progress:
    """After one batch of 100 rows, ten seconds after it was started."""
    times = iter((NOW_S - 10, NOW_S))
    made = Progress(registry, clock=lambda: next(times))
    made(report())
    return made


def test_the_metrics_of_prometheus(progress: Progress, registry: CollectorRegistry) -> None:
    progress.saw(query(20, '{"t": {"0": 50, "1": 15}}'))
    expected = {
        ("rows_total", "dead_lettered"): 5,
        ("rows_total", "late"): 2,
        ("batch_id", None): 7,
        ("lag_messages", None): 35,
        ("freshness_seconds", None): 4,
        ("batch_seconds_sum", None): 3,
    }
    for (name, verdict), value in expected.items():
        labels = {"verdict": verdict} if verdict else {}
        assert registry.get_sample_value(f"penstock_pipeline_{name}", labels) == value, name


def test_values_not_yet_measured_are_not_zero(registry: CollectorRegistry) -> None:
    progress = Progress(registry)
    for name in ("batch_id", "lag_messages", "freshness_seconds"):
        value = registry.get_sample_value(f"penstock_pipeline_{name}")
        assert value is not None and math.isnan(value), name
    # A batch of dead letters only says nothing about freshness.
    progress(report()._replace(counts=report().counts._replace(newest_ms=0)))
    assert progress.freshness_s is None
    assert registry.get_sample_value("penstock_pipeline_batch_id") == 7


def test_an_unknown_lag_is_none(progress: Progress) -> None:
    progress.saw(query(20, '{"t": {"0": 50, "1": 15}}'))
    progress.saw(None)
    assert progress.lag == 35
    for unknown in ("null", None):
        progress.saw(query(20, unknown))
        assert progress.lag == 0


def test_a_terminal_shows_it_live(progress: Progress) -> None:
    screen = io.StringIO()
    with shown(progress, Console(file=screen, force_terminal=True, width=80)) as (_, show):
        progress.saw(query(20, '{"t": {"0": 5050, "1": 15}}'))
        show()
    picture = screen.getvalue().splitlines()
    rows = {"lag": "5,035", "rows/s": "10", "dead letters": "5", "batch time": "3.0 s", "alerts opened": "1"}
    for name, value in rows.items():
        assert any(f" {name} " in line and f" {value} " in line for line in picture), name


def test_elsewhere_each_batch_is_a_line(progress: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    with shown(progress, Console(file=io.StringIO())) as (batch, show):
        batch(report(8))
        show()
    assert capsys.readouterr().out == (
        "batch 8: 100 read, 90 valid, 5 dead-lettered, 3 duplicates, 2 late, 1 alerts; 100 read so far\n"
    )


def test_values_unknown_before_the_first_batch_are_not_zero() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    with shown(Progress(CollectorRegistry()), console) as (_, show):
        show()
    for name in ("lag", "rows/s", "batch time", "freshness"):
        (line, *_) = [line for line in screen.getvalue().splitlines() if f" {name} " in line]
        assert " - " in line, name
