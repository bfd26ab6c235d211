"""Plots of temperatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.telemetry.report import temperatures
from tests.telemetry.report.timelines import timeline


def dots_of(axes: Any) -> list[int]:
    """How many dots each colour has."""
    return [len(dots.get_offsets()) for dots in axes.collections]


@pytest.mark.parametrize("gpus", [0, 1, 40, 2000])
def test_hot_gpus_are_named_beside_their_power(gpus: int) -> None:
    heat, power = timeline(gpus, 20), timeline(gpus, 20)
    hot = set(heat.gpu_ids[:3])
    figure = temperatures.plot(heat, power, hot)
    upper, lower = figure.axes
    assert figure.get_suptitle() == f"Temperature of {gpus:,} GPUs, 1 min steps"
    assert {text.get_text().split()[0] for text in lower.texts} == {gpu[:12] for gpu in hot}
    assert sum(dots_of(lower)) == gpus
    assert upper.get_ylabel() == lower.get_ylabel() == "temperature (°C)"
    figure.canvas.draw()


def test_only_measured_gpus_have_a_dot() -> None:
    heat, power = timeline(4, 6), timeline(3, 6)
    heat.values[0] = np.nan
    power.values[1] = np.nan
    lower = temperatures.plot(heat, power, {heat.gpu_ids[1]}).axes[1]
    assert dots_of(lower) == [1, 0]
    assert not lower.texts
