"""Plots of fleets of all sizes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from penstock.telemetry.queries.alerts import Incident
from penstock.telemetry.queries.spans import Span, instant
from penstock.telemetry.queries.timeline import Timeline
from penstock.telemetry.report import plots
from tests.telemetry.report.timelines import STEP_MS, timeline
from tests.telemetry.small_fleet import BEGIN_MS


def incident(number: int, rule: str, minutes: float | None) -> Incident:
    opened = instant(BEGIN_MS) + timedelta(minutes=number % 100)
    over = None if minutes is None else opened + timedelta(minutes=minutes)
    return Incident(
        rule=rule,
        subject=f"GPU-{number}",
        state="resolved" if over else "open",
        severity="warning" if rule == "hot" else "critical",
        since=opened,
        opened_at=opened,
        changed_at=over or opened,
        resolved_at=over,
        hostname="node-1",
        device="nvidia0",
        pci_bus_id=None,
        workload=None,
        job=None,
        pod=None,
        measure=1.0,
        evidence=None,
        action="look",
    )


@pytest.mark.parametrize(
    ("gpus", "labels"), [(1, 1), (8, 8), (32, 32), (40, 5), (320, 40), (328, 21), (2000, 36)]
)
def test_rows_are_named_as_far_as_there_is_room(gpus: int, labels: int) -> None:
    figure = plots.heatmap(timeline(gpus, 20))
    axes = figure.axes[0]
    assert len(axes.get_yticklabels()) == labels
    width, height = figure.canvas.get_width_height()
    assert width == 1440
    assert 360 <= height <= 2160
    assert height >= min(gpus, 1900)


def test_the_heatmap_has_a_legend() -> None:
    figure = plots.heatmap(timeline(2000))
    assert figure.get_suptitle() == "GPU utilisation of 2,000 GPUs, mean of 1 min"
    bar = figure.axes[1].get_ylabel()
    assert "%" in bar
    assert "no samples" in bar
    assert "UTC" in figure.axes[0].get_xlabel()


def test_over_time_has_units_and_legends() -> None:
    busy = timeline(16)
    active = busy._replace(values=busy.values / 100)
    power = busy._replace(values=busy.values * 7)
    upper, lower = plots.over_time(busy, active, power).axes
    assert "%" in upper.get_ylabel()
    assert lower.get_ylabel() == "power (kW)"
    legend = lower.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["power of 16 GPUs together"]
    (line,) = lower.get_lines()
    total_kw = np.asarray(line.get_ydata(), dtype=float)
    assert total_kw[0] == pytest.approx(busy.values[:, 0].sum() * 7 / 1000)
    # Nothing was measured then, which is not nothing.
    assert np.isnan(total_kw[60])


def test_little_power_is_in_watts() -> None:
    busy = timeline(1)
    empty = Timeline([], [], busy.starts_ms, STEP_MS, np.zeros((0, 120)))
    upper, lower = plots.over_time(busy, empty, busy).axes
    assert lower.get_ylabel() == "power (W)"
    assert len(upper.get_lines()) == 1


def test_a_lane_for_each_rule_and_a_bar_for_each_alert() -> None:
    span = Span(BEGIN_MS, BEGIN_MS + 120 * STEP_MS)
    incidents = [incident(number, "hot", 5.0) for number in range(30)] + [incident(31, "xid", None)]
    (axes,) = plots.alerts(incidents, span).axes
    labels = [label.get_text().splitlines()[0] for label in axes.get_yticklabels()]
    assert labels == ["hot (30)", "xid (1)"]
    assert len(axes.patches) == 31
    assert len(axes.get_lines()) == 1


def test_no_alerts() -> None:
    figure = plots.alerts([], Span(BEGIN_MS, BEGIN_MS + STEP_MS))
    assert figure.get_suptitle() == "0 alerts on 0 GPUs and hosts"
    figure.canvas.draw()


def texts(figure: Any) -> list[str]:
    (axes,) = figure.axes
    return [text.get_text().strip() for text in (*axes.texts, *axes.get_yticklabels())]


def test_alert_bars_name_their_gpus() -> None:
    span = Span(BEGIN_MS, BEGIN_MS + 3_600_000)
    few = plots.alerts([incident(number, "hot", 5) for number in range(3)], span)
    assert {"GPU-0 node-1", "GPU-1 node-1", "GPU-2 node-1"} <= set(texts(few))
    many = plots.alerts([incident(number, "hot", 5) for number in range(50)], span)
    (label,) = [text for text in texts(many) if text.startswith("hot (50)")]
    assert label.splitlines()[1:] == ["GPU-0 node-1", "GPU-1 node-1", "GPU-2 node-1", "and 47 more"]


def test_a_step_between_two_gaps_is_seen() -> None:
    """GPUs that send a value each minute, in steps of half a minute."""
    busy = timeline(4, 120)
    assert {line.get_marker() for line in plots.over_time(busy, busy, busy).axes[0].lines} == {""}
    busy.values[:, ::2] = np.nan
    assert {line.get_marker() for line in plots.over_time(busy, busy, busy).axes[0].lines} == {"."}
