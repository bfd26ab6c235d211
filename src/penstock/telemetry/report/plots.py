"""Plots of a fleet, legible with a few GPUs and with thousands.

Figures are drawn by Agg, without matplotlib's global state, so that reports can be made in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from penstock.telemetry.queries.alerts import Incident
from penstock.telemetry.queries.spans import Span, instant
from penstock.telemetry.queries.timeline import Timeline

__all__ = [
    "alerts",
    "edges",
    "heatmap",
    "marker",
    "middles",
    "new_figure",
    "over_time",
    "spread",
    "step_text",
    "time_axis",
]

_DPI: Final = 120
_WIDTH_IN: Final = 12.0
#: colours that colour-blind people can distinguish
#: GPU- and the first eight digits
_SUBJECT_SHOWN: Final = 12
#: lanes with more alerts name some of their GPUs at the side
_BARS_NAMED_MOST, _LANE_NAMES_MOST = 12, 3
_BAR_NAME_IN: Final = 0.16
_COLOURS: Final = {"critical": "#c1272d", "warning": "#e69f00"}
_UTIL_COLOUR, _ACTIVE_COLOUR, _POWER_COLOUR = "#0072b2", "#009e73", "#d55e00"
_LABELS_MOST: Final = 40
#: more rows than this, and labels are those of hosts
_GPUS_NAMED_MOST: Final = 32
_HOSTS_RULED_MOST: Final = 64


def new_figure(height_in: float, title: str) -> Figure:
    figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    return figure


def time_axis(axes: Axes, start_ms: int, end_ms: int) -> None:
    locator = AutoDateLocator(maxticks=12)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set_xlim(_date(start_ms), _date(end_ms))
    axes.set_xlabel("time (UTC)")


def _date(at_ms: int) -> float:
    return float(date2num(instant(int(at_ms))))


def step_text(step_ms: int) -> str:
    for unit, width in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if step_ms % width == 0:
            return f"{step_ms // width} {unit}"
    return f"{step_ms // 1000} s"


def middles(timeline: Timeline) -> list[float]:
    """The middle of each step, as matplotlib counts days."""
    return [_date(start + timeline.step_ms // 2) for start in timeline.starts_ms]


def edges(timeline: Timeline) -> tuple[int, int]:
    starts = timeline.starts_ms
    return int(starts[0]), int(starts[-1]) + timeline.step_ms


def heatmap(busy: Timeline) -> Figure:
    """Utilisation, a row for each GPU: GPUs of a host are neighbours."""
    gpus = len(busy.gpu_ids)
    # A row is at least one pixel high, up to the height of a screen.
    height_in = (
        float(np.clip(1.6 + 0.24 * gpus, 3.0, 8.0))
        if gpus <= 200
        else float(np.clip(gpus / _DPI + 1.6, 8.0, 18.0))
    )
    figure = new_figure(height_in, f"GPU utilisation of {gpus:,} GPUs, mean of {step_text(busy.step_ms)}")
    axes = figure.subplots()
    start, end = edges(busy)
    colours = colormaps["viridis"].with_extremes(bad="#8a8a8a")
    if gpus:
        image = axes.imshow(
            np.ma.masked_invalid(busy.values),
            aspect="auto",
            cmap=colours,
            vmin=0,
            vmax=100,
            interpolation="nearest",
            extent=(_date(start), _date(end), gpus - 0.5, -0.5),
        )
        bar = figure.colorbar(image, ax=axes, pad=0.01, fraction=0.03, anchor=(0.0, 1.0))
        bar.set_label("utilisation (%); grey: no samples")
        _name_rows(axes, busy)
    time_axis(axes, start, end)
    return figure


def _name_rows(axes: Axes, busy: Timeline) -> None:
    """Name GPUs where there is room, else hosts, else some of the hosts."""
    gpus = len(busy.gpu_ids)
    firsts = [row for row in range(gpus) if row == 0 or busy.hostnames[row] != busy.hostnames[row - 1]]
    if len(firsts) <= _HOSTS_RULED_MOST:
        _rule(axes, firsts[1:], 1.2)
    if gpus <= _GPUS_NAMED_MOST:
        _rule(axes, range(1, gpus), 0.4)
        labels = [f"{host}  {gpu[:12]}" for host, gpu in zip(busy.hostnames, busy.gpu_ids, strict=True)]
        axes.set_yticks(range(gpus), labels, fontsize=8, family="monospace")
        return
    ends = [*firsts[1:], gpus]
    middles = [(first + last - 1) / 2 for first, last in zip(firsts, ends, strict=True)]
    every = -(-len(firsts) // _LABELS_MOST)
    axes.set_yticks(middles[::every], [busy.hostnames[row] for row in firsts[::every]], fontsize=8)
    axes.set_ylabel("host" if every == 1 else f"host (every {every}th is named)")


def _rule(axes: Axes, rows: Sequence[int], width: float) -> None:
    """White lines above these rows."""
    edges = [row - 0.5 for row in rows]
    axes.hlines(edges, 0, 1, transform=axes.get_yaxis_transform(), colors="white", linewidth=width)


def over_time(busy: Timeline, active: Timeline, power: Timeline) -> Figure:
    """Utilisation of GPUs with its spread, and the power of all GPUs."""
    figure = new_figure(6.5, f"Utilisation and power of the fleet, {step_text(busy.step_ms)} steps")
    upper, lower = figure.subplots(2, 1, sharex=True)
    at = middles(busy)
    low, mean, high = spread(busy.values)
    upper.fill_between(
        at, low, high, color=_UTIL_COLOUR, alpha=0.2, linewidth=0, label="10th to 90th percentile of GPUs"
    )
    upper.plot(at, mean, color=_UTIL_COLOUR, marker=marker(at, mean), label="mean utilisation")
    if len(active.gpu_ids):
        works = spread(active.values)[1] * 100
        upper.plot(
            at,
            works,
            color=_ACTIVE_COLOUR,
            marker=marker(at, works),
            label="mean SM active",
        )
    upper.set_ylabel("share of time (%)")
    upper.set_ylim(0, 105)
    total_w = np.where(np.isnan(power.values).all(axis=0), np.nan, np.nansum(power.values, axis=0))
    scale, unit = (1000.0, "kW") if np.nanmax(total_w, initial=0.0) >= 1000 else (1.0, "W")
    lower.plot(
        at,
        total_w / scale,
        color=_POWER_COLOUR,
        marker=marker(at, total_w),
        label=f"power of {len(power.gpu_ids):,} GPUs together",
    )
    lower.set_ylabel(f"power ({unit})")
    lower.set_ylim(0, max(1.0, np.nanmax(total_w, initial=0.0) / scale * 1.08))
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=3, frameon=False, fontsize=9)
    time_axis(lower, *edges(busy))
    return figure


def marker(at: Sequence[float], values: Any) -> str:
    """The marker of a line: a line through a point or two, or between gaps, is none that anyone sees."""
    known = np.pad(~np.isnan(values), 1)
    is_alone = known[1:-1] & ~known[:-2] & ~known[2:]
    if len(at) <= _LABELS_MOST:
        return "o"
    return "." if is_alone.any() else ""


def spread(values: Any) -> tuple[Any, Any, Any]:
    """10th percentile, mean and 90th percentile of each column; NaN where nothing was measured."""
    spread = np.full((3, values.shape[1]), np.nan)
    known = ~np.isnan(values).all(axis=0)
    if known.any():
        spread[0, known], spread[2, known] = np.nanpercentile(values[:, known], (10, 90), axis=0)
        spread[1, known] = np.nanmean(values[:, known], axis=0)
    return spread[0], spread[1], spread[2]


def alerts(incidents: Sequence[Incident], span: Span) -> Figure:
    """A lane for each rule, and in it a bar for each alert from when it opened to when it was resolved."""
    by_rule: dict[str, list[Incident]] = {}
    for one in sorted(incidents, key=lambda one: (one.rule, one.opened_at, one.subject)):
        by_rule.setdefault(one.rule, []).append(one)
    count = sum(map(len, by_rule.values()))
    most = min(_BARS_NAMED_MOST, max(map(len, by_rule.values()), default=0))
    figure = new_figure(
        float(np.clip(2.0 + max(0.55, _BAR_NAME_IN * most) * max(2, len(by_rule)), 3.1, 18.0)),
        f"{count:,} alerts on {len({one.subject for one in incidents}):,} GPUs and hosts",
    )
    axes = figure.subplots()
    for lane, own in enumerate(by_rule.values()):
        _draw_lane(axes, lane, own, span)
    labels = [_lane_label(rule, own) for rule, own in by_rule.items()]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(max(1, len(by_rule)) - 0.5, -0.5)
    axes.hlines(
        np.arange(1, len(by_rule)) - 0.5,
        0,
        1,
        transform=axes.get_yaxis_transform(),
        colors="#cccccc",
        linewidth=0.8,
    )
    axes.grid(axis="x", alpha=0.3)
    keys: list[Any] = [Patch(color=colour, label=severity) for severity, colour in _COLOURS.items()]
    keys.append(Line2D([], [], color="black", marker=">", linestyle="none", markersize=5, label="still open"))
    axes.legend(
        handles=keys, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9
    )
    time_axis(axes, *span)
    return figure


def _subject_text(incident: Incident) -> str:
    """A GPU by the first of its digits and its host; a host by its name."""
    if incident.subject == incident.hostname:
        return incident.subject
    return f"{incident.subject[:_SUBJECT_SHOWN]} {incident.hostname or ''}".rstrip()


def _lane_label(rule: str, incidents: Sequence[Incident]) -> str:
    label = f"{rule} ({len(incidents):,})"
    if len(incidents) <= _BARS_NAMED_MOST:
        return label
    # Bars are too thin for names of their own.
    subjects = list(dict.fromkeys(map(_subject_text, incidents)))
    shown = subjects[:_LANE_NAMES_MOST]
    left = len(subjects) - len(shown)
    return "\n".join([label, *shown, *([f"and {left:,} more"] if left else [])])


def _draw_lane(axes: Axes, lane: int, incidents: Sequence[Incident], span: Span) -> None:
    start, end = _date(span.start), _date(span.end)
    # Bars share the lane's height: few are thick, many become a silhouette.
    height = 0.8 / max(3, len(incidents))
    top = lane - height * len(incidents) / 2
    least = (end - start) / 400
    for number, one in enumerate(incidents):
        opened = max(start, float(date2num(one.opened_at)))
        over = end if one.resolved_at is None else float(date2num(one.resolved_at))
        middle = top + height * (number + 0.5)
        axes.barh(middle, max(over - opened, least), height * 0.85, opened, color=_COLOURS[one.severity])
        if len(incidents) <= _BARS_NAMED_MOST:
            axes.text(opened, middle, f" {_subject_text(one)}", fontsize=7, va="center", clip_on=True)
        if one.resolved_at is None:
            axes.plot(
                end,
                middle,
                marker=">",
                color="black",
                markersize=5 if len(incidents) < 8 else 2,
                clip_on=False,
            )
