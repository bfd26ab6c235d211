"""What a fleet's owner asks: how busy, how idle, how much energy, how healthy.

The same questions as the pipeline's `views`, without Spark. All of them are functions of `totals`: for each
GPU, job and field the sums of a span's windows, which merge whatever their widths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.queries.alerts import Incident
from penstock.telemetry.queries.gpus import ABOUT, Gpu
from penstock.telemetry.queries.reader import Measure, TableReader
from penstock.telemetry.queries.spans import DAY_MS, ROLLUPS, Level, Span
from penstock.telemetry.thresholds import Thresholds

__all__ = [
    "GROUPS",
    "SEVERITIES",
    "Energy",
    "Health",
    "Idle",
    "Utilization",
    "count_by_status",
    "energy",
    "health",
    "idle",
    "totals",
    "utilization",
]

_UTIL, _SM_ACTIVE, _ENERGY, _TEMPERATURE = 203, 1002, 156, 150
_POWER_NS, _THERMAL_NS = 240, 241
_FIELDS: Final = (_UTIL, _SM_ACTIVE, _ENERGY, _TEMPERATURE, _POWER_NS, _THERMAL_NS)
_SUMS: Final = ("samples", "weighted", "increase", "covered_s", "observed_s", "idle_s")
_NOTHING: Final = pa.schema(
    [
        *((name, pa.string()) for name in ABOUT),
        ("field", pa.int32()),
        ("samples", pa.int64()),
        *((name, pa.float64()) for name in (*_SUMS[1:], "max")),
    ]
).empty_table()
_MJ_PER_WH: Final = 3.6e6
_NS_PER_S: Final = 1e9
#: by what GPUs can be put together, and the column that says it
GROUPS: Final = {
    "gpu": "gpu_id",
    "host": "hostname",
    "model": "model",
    "job": "job",
    "namespace": "namespace",
}
#: what a GPU's state can be, the worst first
SEVERITIES: Final = ("critical", "warning", "ok")


@dataclass(frozen=True, slots=True)
class Utilization:
    """Means over all samples of a group's GPUs."""

    group: str | None
    gpus: int
    gpu_util_percent: float | None
    sm_active_share: float | None


@dataclass(frozen=True, slots=True)
class Idle:
    """A GPU that a job holds, and uses too little: it was idle for a time, or is busy in name only."""

    gpu_id: str
    hostname: str | None
    job: str
    observed_s: float
    idle_s: float
    gpu_util_percent: float | None
    sm_active_share: float | None
    fake_busy: bool


@dataclass(frozen=True, slots=True)
class Energy:
    """What a group's GPUs have used, and their mean power while they were measured."""

    group: str | None
    gpus: int
    #: None where nothing was measured over any time
    energy_wh: float | None
    gpu_power_mean_w: float | None


@dataclass(frozen=True, slots=True)
class Health:
    """A GPU's state: that of its worst open alert. Shares are of the time that was measured."""

    gpu_id: str
    hostname: str | None
    job: str | None
    status: str
    open_alerts: list[str]
    temperature_max_c: float | None
    power_throttled_share: float | None
    thermal_throttled_share: float | None


def totals(reader: TableReader, span: Span, idle_max: float = 0.0, levels: Sequence[Level] = ROLLUPS) -> Any:
    """For each GPU, job and field: what its windows add up to.

    samples, weighted (mean × samples), max, increase, covered_s, and observed_s, of which idle_s in windows
    that have never exceeded `idle_max`.
    """
    keys = {name: pc.field(name) for name in (*ABOUT, "field")}
    parts = [_NOTHING]
    for piece in reader.cover(span, levels):
        width_s = piece.level.width_ms / 1000
        is_idle = pc.field("max") <= idle_max
        measures = [
            Measure("samples", "sum", pc.field("count")),
            Measure("weighted", "sum", pc.multiply(pc.field("mean"), pc.field("count").cast(pa.float64()))),
            Measure("increase", "sum", pc.field("increase")),
            Measure("covered_s", "sum", pc.field("covered_s")),
            Measure("observed_s", "sum", pc.if_else(pc.field("count") > 0, width_s, 0.0)),
            Measure("idle_s", "sum", pc.if_else(is_idle, width_s, 0.0)),
            Measure("max", "max", pc.field("max")),
        ]
        parts.append(reader.aggregate(piece, keys, measures, pc.field("field").isin(list(_FIELDS))))
    return _merged(pa.concat_tables(parts), tuple(keys))


def _merged(rows: Any, keys: Sequence[str]) -> Any:
    """Rows of `totals` with equal keys as one."""
    measures = [(name, "sum") for name in _SUMS] + [("max", "max")]
    merged = rows.group_by(list(keys)).aggregate(measures)
    return merged.rename_columns([*keys, *_SUMS, "max"])


def _by_field(rows: Any, *keys: str) -> dict[tuple[Any, ...], dict[int, dict[str, Any]]]:
    """By key, and then by field: what the windows add up to."""
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in _merged(rows, (*keys, "field")).to_pylist():
        found.setdefault(tuple(row[key] for key in keys), {})[row["field"]] = row
    return found


def _of(rows: Any, *fields: int) -> Any:
    return rows.filter(pc.field("field").isin(list(fields)))


def _gpus_by(rows: Any, key: str) -> dict[Any, int]:
    counted = rows.group_by(key).aggregate([("gpu_id", "count_distinct")])
    return dict(zip(counted[key].to_pylist(), counted["gpu_id_count_distinct"].to_pylist(), strict=True))


def _mean(row: dict[str, Any] | None) -> float | None:
    return row["weighted"] / row["samples"] if row and row["samples"] else None


def _share(row: dict[str, Any] | None) -> float | None:
    """Of the time that a counter of nanoseconds covers, how much it has counted."""
    return row["increase"] / _NS_PER_S / row["covered_s"] if row and row["covered_s"] else None


def utilization(rows: Any, by: str) -> list[Utilization]:
    """From totals, how busy the GPUs of each group were; the busiest group first."""
    own = _of(rows, _UTIL, _SM_ACTIVE)
    gpus = _gpus_by(own, GROUPS[by])
    found = [
        Utilization(group, gpus[group], _mean(fields.get(_UTIL)), _mean(fields.get(_SM_ACTIVE)))
        for (group,), fields in _by_field(own, GROUPS[by]).items()
    ]
    return sorted(found, key=lambda one: (-(one.gpu_util_percent or 0.0), one.group or ""))


def energy(rows: Any, by: str) -> list[Energy]:
    """From totals, watt-hours by the counters; the group that has used most first."""
    own = _of(rows, _ENERGY)
    gpus = _gpus_by(own, GROUPS[by])
    found = []
    for (group,), fields in _by_field(own, GROUPS[by]).items():
        used = fields[_ENERGY]
        # A counter's first sample has gained nothing yet, and says nothing of the time before it.
        used_wh = used["increase"] / _MJ_PER_WH if used["covered_s"] else None
        mean_w = None if used_wh is None else used_wh * 3600 / used["covered_s"]
        found.append(Energy(group, gpus[group], used_wh, mean_w))
    return sorted(found, key=lambda one: (-(one.energy_wh or 0.0), one.group or ""))


def idle(reader: TableReader, span: Span, told: Thresholds) -> list[Idle]:
    """GPUs that jobs hold and waste, the longest idle first.

    A window is idle if nothing in it exceeded the threshold, so windows are of a minute at most, except in
    spans of more than a day, where those would be too many.
    """
    levels = ROLLUPS if span.width > DAY_MS else ROLLUPS[1:]
    rows = totals(reader, span, told.idle_occupied.gpu_util_max_percent, levels)
    found = []
    for (gpu_id, hostname, job), fields in _by_field(rows, "gpu_id", "hostname", "job").items():
        used, busy, active = fields.get(_UTIL), _mean(fields.get(_UTIL)), _mean(fields.get(_SM_ACTIVE))
        if not job or used is None or busy is None:
            continue
        is_fake = (
            active is not None
            and busy >= told.fake_busy.gpu_util_min_percent
            and active <= told.fake_busy.sm_active_max_share
        )
        if used["idle_s"] or is_fake:
            about = (gpu_id, hostname, job, used["observed_s"], used["idle_s"])
            found.append(Idle(*about, busy, active, is_fake))
    return sorted(found, key=lambda one: (-one.idle_s, one.gpu_id, one.job))


def health(rows: Any, gpus: Iterable[Gpu], incidents: Iterable[Incident]) -> list[Health]:
    """The state of these GPUs, and of those that have an open alert but were not heard of; worst first."""
    measured = _by_field(rows, "gpu_id")
    by_subject: dict[str, list[Incident]] = {}
    places = {gpu.gpu_id: (gpu.hostname, gpu.job) for gpu in gpus}
    for incident in incidents:
        if incident.state == "open":
            by_subject.setdefault(incident.subject, []).append(incident)
            if incident.subject != incident.hostname:
                places.setdefault(incident.subject, (incident.hostname, incident.job))
    found = []
    for gpu_id, (hostname, job) in places.items():
        # An alert about a host is one about each of its GPUs.
        own = by_subject.get(gpu_id, []) + by_subject.get(hostname or "", [])
        status = min((one.severity for one in own), key=SEVERITIES.index, default="ok")
        rules = sorted({one.rule for one in own})
        fields = measured.get((gpu_id,), {})
        hottest = fields[_TEMPERATURE]["max"] if _TEMPERATURE in fields else None
        shares = _share(fields.get(_POWER_NS)), _share(fields.get(_THERMAL_NS))
        found.append(Health(gpu_id, hostname, job, status, rules, hottest, *shares))
    return sorted(found, key=lambda one: (SEVERITIES.index(one.status), -len(one.open_alerts), one.gpu_id))


def count_by_status(found: Iterable[Health]) -> dict[str, int]:
    """How many GPUs are in which state; every state is named."""
    counted = Counter(one.status for one in found)
    return {status: counted[status] for status in SEVERITIES}
