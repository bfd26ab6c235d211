"""Temperatures of a fleet: over time, and of each GPU beside its power."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from penstock.telemetry.queries.timeline import Timeline
from penstock.telemetry.report.plots import edges, marker, middles, new_figure, spread, step_text, time_axis

__all__ = ["plot"]

_COLOUR, _HOTTEST_COLOUR, _HOT_COLOUR = "#0072b2", "#d55e00", "#c1272d"
#: GPU- and the first eight digits
_NAME_SHOWN: Final = 12
#: names of more GPUs would cover each other
_NAMED_MOST: Final = 12


def plot(heat: Timeline, power: Timeline, hot: Container[str]) -> Figure:
    """Above: mean, spread and highest temperature over time. Below: each GPU's means, `hot` ones named."""
    figure = new_figure(8.0, f"Temperature of {len(heat.gpu_ids):,} GPUs, {step_text(heat.step_ms)} steps")
    upper, lower = figure.subplots(2, 1)
    at, (low, mean, high) = middles(heat), spread(heat.values)
    upper.fill_between(
        at, low, high, color=_COLOUR, alpha=0.2, linewidth=0, label="10th to 90th percentile of GPUs"
    )
    upper.plot(at, mean, color=_COLOUR, marker=marker(at, mean), label="mean")
    highest = _highest(heat.values)
    upper.plot(at, highest, color=_HOTTEST_COLOUR, marker=marker(at, highest), label="hottest GPU")
    upper.legend(loc="upper center", bbox_to_anchor=(0.5, 1.17), ncols=3, frameon=False, fontsize=9)
    time_axis(upper, *edges(heat))
    _beside_power(lower, heat, power, hot)
    for axes in (upper, lower):
        axes.set_ylabel("temperature (°C)")
        axes.grid(alpha=0.3)
    return figure


def _highest(values: Any) -> Any:
    """The highest value of each column; NaN where nothing was measured."""
    highest = np.full(values.shape[1], np.nan)
    known = ~np.isnan(values).all(axis=0)
    highest[known] = np.nanmax(values[:, known], axis=0) if known.any() else np.nan
    return highest


def _beside_power(axes: Any, heat: Timeline, power: Timeline, hot: Container[str]) -> None:
    watts = dict(zip(power.gpu_ids, _means(power.values), strict=True))
    celsius = _means(heat.values)
    known = [
        (gpu, watts[gpu], celsius[row], heat.hostnames[row])
        for row, gpu in enumerate(heat.gpu_ids)
        if not np.isnan([watts.get(gpu, np.nan), celsius[row]]).any()
    ]
    for colour, label, own in (
        (_COLOUR, "GPU", [each for each in known if each[0] not in hot]),
        (_HOT_COLOUR, "with an alert hot", [each for each in known if each[0] in hot]),
    ):
        places = [each[1] for each in own], [each[2] for each in own]
        axes.scatter(*places, s=14, color=colour, alpha=0.7, linewidths=0, label=label)
    named = sorted((each for each in known if each[0] in hot), key=lambda each: -each[2])[:_NAMED_MOST]
    for gpu, x, y, hostname in named:
        axes.annotate(f" {gpu[:_NAME_SHOWN]} {hostname}", (x, y), fontsize=7, va="center")
    axes.set_xlabel("power (W), mean of the time")
    axes.legend(loc="lower right", frameon=False, fontsize=9)


def _means(values: Any) -> Any:
    """The mean of each row; NaN where nothing was measured."""
    means = np.full(values.shape[0], np.nan)
    known = ~np.isnan(values).all(axis=1)
    means[known] = np.nanmean(values[known], axis=1)
    return means
