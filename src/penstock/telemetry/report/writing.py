"""The content of a report, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.telemetry.inventory import Inventory
from penstock.telemetry.queries.alerts import Incident, find_incidents
from penstock.telemetry.queries.fleet import (
    SEVERITIES,
    Energy,
    Health,
    Utilization,
    count_by_status,
    energy,
    health,
    totals,
    utilization,
)
from penstock.telemetry.queries.gpus import find_gpus, latest
from penstock.telemetry.queries.hosts import HostCount, find_hosts
from penstock.telemetry.queries.idleness import NO_PRICES, Idle, Idleness, Prices, find_idle
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import HOUR_MS, Span, instant
from penstock.telemetry.queries.timeline import read_timelines
from penstock.telemetry.report import plots, temperatures
from penstock.telemetry.report.sections import Section, markdown, write_csv
from penstock.telemetry.thresholds import Thresholds, load_thresholds

__all__ = ["Report", "write_report"]

PAGE: Final = "report.md"
_ROWS_MOST: Final = 20
_UTIL, _SM_ACTIVE, _POWER, _TEMPERATURE = 203, 1002, 155, 150


@dataclass(frozen=True, slots=True)
class Report:
    """The written files; without samples there is only a summary."""

    summary: str
    sections: list[Section]
    #: the page first
    files: list[Path]


def write_report(
    reader: TableReader,
    out: Path,
    *,
    hours: float = 24.0,
    thresholds: Thresholds | None = None,
    prices: Prices = NO_PRICES,
) -> Report:
    """Report the last hours of samples into the folder `out`, which is made if it is not there."""
    span = latest(reader, int(hours * HOUR_MS))
    if not span.width:
        return Report(f"no samples in {reader.place} yet: nothing to report", [], [])
    incidents = [one for one in find_incidents(reader) if one.overlaps(span)]
    limits = thresholds or load_thresholds()
    idle = find_idle(reader, span, limits, prices=prices)
    sections = _sections(reader, span, incidents, idle, limits)
    summary = _summary(span, {section.name: section for section in sections}, idle)
    out.mkdir(parents=True, exist_ok=True)
    files = [out / PAGE, *_plot(reader, span, incidents, out)]
    for section in sections:
        write_csv(section, out / f"{section.name}.csv")
        files.append(out / f"{section.name}.csv")
    pictures = [path.name for path in files if path.suffix == ".png"]
    files[0].write_text(_page(summary, sections, pictures), encoding="utf-8")
    return Report(summary, sections, files)


def _sections(
    reader: TableReader, span: Span, incidents: list[Incident], idle: Idleness, thresholds: Thresholds
) -> list[Section]:
    inventory = Inventory(thresholds.hosts)
    rows = inventory.with_racks(totals(reader, span))
    groups = ("host", *(("rack",) if inventory.has_racks else ()), "model", "workload")
    states = health(rows, find_gpus(reader, span), incidents)
    return [
        *(
            Section(f"utilization_by_{by}", f"Utilisation by {by}", Utilization, _wasteful_first(rows, by))
            for by in groups
        ),
        Section("idle", "Allocated and not used", Idle, idle.gpus),
        Section("energy_by_host", "Energy by host", Energy, energy(rows, "host")),
        Section("hosts", "Hosts", HostCount, find_hosts(reader, thresholds)),
        Section("health", "Health", Health, states),
        Section("alerts", "Alerts", Incident, sorted(incidents, key=_urgency)),
    ]


def _wasteful_first(rows: Any, by: str) -> list[Utilization]:
    """Sort groups by unused time, the largest first; groups without measurements last."""

    def unused(one: Utilization) -> float:
        return -1.0 if one.gpu_util_percent is None else one.gpus * (100.0 - one.gpu_util_percent)

    return sorted(utilization(rows, by), key=lambda one: (-unused(one), one.group or ""))


def _urgency(incident: Incident) -> tuple[bool, int, float, str, str]:
    """Open alerts first, the worst of them first, and of these the newest."""
    severity = SEVERITIES.index(incident.severity)
    opened = -incident.opened_at.timestamp()
    return incident.state != "open", severity, opened, incident.rule, incident.subject


def _summary(span: Span, sections: dict[str, Section], idle: Idleness) -> str:
    models = sections["utilization_by_model"].rows
    measured = [one for one in models if one.gpu_util_percent is not None]
    gpus = sum(one.gpus for one in measured)
    busy = sum(one.gpu_util_percent * one.gpus for one in measured) / gpus if gpus else None
    used_wh = [one.energy_wh for one in sections["energy_by_host"].rows if one.energy_wh is not None]
    counted = [
        "utilisation not measured" if busy is None else f"{busy:.1f} % utilised",
        f"{sum(used_wh) / 1000:,.2f} kWh" if used_wh else "energy not measured",
    ]
    if idle.wasted_gpu_hours is not None:
        kwh = "" if idle.wasted_kwh is None else f" and {idle.wasted_kwh:,.2f} kWh"
        cost = "" if idle.wasted_cost is None else f", a cost of {idle.wasted_cost:,.2f}"
        counted.append(f"{idle.wasted_gpu_hours:,.1f} GPU-hours{kwh} wasted{cost}")
    states = count_by_status(sections["health"].rows)
    open_alerts = sum(one.state == "open" for one in sections["alerts"].rows)
    return (
        f"{instant(span.start):%Y-%m-%d %H:%M} to {instant(span.end):%Y-%m-%d %H:%M} UTC: "
        f"{sum(states.values())} GPUs, {', '.join(counted)}; "
        f"{states['critical']} critical, {states['warning']} with warnings; {open_alerts} alerts open"
    )


def _plot(reader: TableReader, span: Span, incidents: list[Incident], out: Path) -> list[Path]:
    # Windows that are still open would look like GPUs that say nothing.
    closed = span.within(reader.extent("rollups_10s") or span)
    fields = (_UTIL, _SM_ACTIVE, _POWER, _TEMPERATURE)
    busy, active, power, heat = read_timelines(reader, closed, fields)
    hot = {one.subject for one in incidents if one.rule == "hot"}
    figures = {
        "heatmap.png": plots.heatmap(busy),
        "utilization_power.png": plots.over_time(busy, active, power),
        "temperature.png": temperatures.plot(heat, power, hot),
        "alerts.png": plots.alerts(incidents, Span(closed.start, span.end)),
    }
    for name, figure in figures.items():
        figure.savefig(out / name)
    return [out / name for name in figures]


def _page(summary: str, sections: list[Section], pictures: list[str]) -> str:
    parts = ["# Fleet report\n", f"{summary}.\n"]
    parts += [f"![{name.removesuffix('.png').replace('_', ' ')}]({name})\n" for name in pictures]
    for section in sections:
        parts += [f"## {section.title}\n", markdown(section, _ROWS_MOST)]
    return "\n".join(parts)
