"""Queries about a fleet: utilisation, energy, health (`idleness`: idle GPUs).

`telemetry.recompute` has the same queries in SQL, as a reference for tests. All of them are functions of
`totals`: for each GPU, workload and field the sums of a span's windows, which can have different widths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.inventory import RACK
from penstock.telemetry.queries.alerts import Incident
from penstock.telemetry.queries.gpus import ABOUT, ALL, Gpu, Only
from penstock.telemetry.queries.reader import Measure, TableReader
from penstock.telemetry.queries.spans import ROLLUPS, Level, Span

__all__ = [
    "GROUPS",
    "SEVERITIES",
    "Energy",
    "Health",
    "Utilization",
    "by_field",
    "count_by_status",
    "energy",
    "health",
    "mean_of",
    "totals",
    "used_energy",
    "utilization",
]

_UTIL, _SM_ACTIVE, _ENERGY, _TEMPERATURE = 203, 1002, 156, 150
_POWER_NS, _THERMAL_NS = 240, 241
#: the mean of the last second or so, and the power of an instant
_POWERS: Final = (155, 157)
_LIMITS: Final = (160, 164)
_MEMORY_TOTAL, _MEMORY_FREE, _MEMORY_USED = 250, 251, 252
_FIELDS: Final = (
    *(_UTIL, _SM_ACTIVE, _ENERGY, _TEMPERATURE, _POWER_NS, _THERMAL_NS, *_POWERS, *_LIMITS),
    *(_MEMORY_TOTAL, _MEMORY_FREE, _MEMORY_USED),
)
_SUMS: Final = ("samples", "weighted", "increase", "covered_s", "observed_s", "idle_s")
#: the highest value of all, and the lowest mean of a window
_EDGES: Final = ("max", "lowest")
_NOTHING: Final = pa.schema(
    [
        *((name, pa.string()) for name in ABOUT),
        ("field", pa.int32()),
        ("samples", pa.int64()),
        *((name, pa.float64()) for name in (*_SUMS[1:], *_EDGES)),
    ]
).empty_table()
_MJ_PER_WH, _J_PER_WH = 3.6e6, 3600.0
_NS_PER_S: Final = 1e9
#: the groupings of GPUs, each with its column
GROUPS: Final = {
    "gpu": "gpu_id",
    "host": "hostname",
    "model": "model",
    "workload": "workload",
    "job": "job",
    "pod": "pod",
    "namespace": "namespace",
    # of `Inventory.with_racks`
    "rack": RACK,
}
_Text: TypeAlias = str | None
_Place: TypeAlias = tuple[_Text, _Text, _Text, _Text, _Text, _Text]
#: the states of a GPU, the worst first
SEVERITIES: Final = ("critical", "warning", "ok")


@dataclass(frozen=True, slots=True)
class Utilization:
    """Means over all samples of a group's GPUs."""

    group: str | None
    gpus: int
    gpu_util_percent: float | None
    sm_active_share: float | None
    #: of one GPU
    memory_used_mib: float | None
    memory_used_share: float | None


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of a group's GPUs, and their mean power while they were measured.

    `measured_by` says how: by energy counters, by integrating power for GPUs that have none, or both.
    """

    group: str | None
    gpus: int
    #: None where nothing was measured over any time
    energy_wh: float | None
    gpu_power_mean_w: float | None
    measured_by: str | None


@dataclass(frozen=True, slots=True)
class Health:
    """A GPU's state: that of its worst open alert. Shares are of the time that was measured."""

    gpu_id: str
    hostname: str | None
    device: str | None
    pci_bus_id: str | None
    workload: str | None
    pod: str | None
    job: str | None
    status: str
    open_alerts: list[str]
    temperature_max_c: float | None
    memory_used_mib: float | None
    power_throttled_share: float | None
    thermal_throttled_share: float | None


def totals(
    reader: TableReader,
    span: Span,
    idle_max: float = 0.0,
    levels: Sequence[Level] = ROLLUPS,
    only: Only = ALL,
) -> Any:
    """The sums of the windows of each GPU, workload and field.

    samples, weighted (mean × samples), max, lowest (the lowest mean of a window), increase, covered_s, and
    observed_s, of which idle_s in windows that have never exceeded `idle_max`.
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
            Measure("lowest", "min", pc.field("mean")),
        ]
        wanted = pc.field("field").isin(list(_FIELDS)) & only.where()
        parts.append(reader.aggregate(piece, keys, measures, wanted))
    return _merged(pa.concat_tables(parts), tuple(keys))


def _merged(rows: Any, keys: Sequence[str]) -> Any:
    """Rows of `totals` with equal keys as one."""
    measures = [(name, "sum") for name in _SUMS] + [("max", "max"), ("lowest", "min")]
    merged = rows.group_by(list(keys)).aggregate(measures)
    return merged.rename_columns([*keys, *_SUMS, *_EDGES])


def by_field(rows: Any, *keys: str) -> dict[tuple[Any, ...], dict[int, dict[str, Any]]]:
    """The sums of the windows by key, and then by field."""
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in _merged(rows, (*keys, "field")).to_pylist():
        found.setdefault(tuple(row[key] for key in keys), {})[row["field"]] = row
    return found


def _of(rows: Any, *fields: int) -> Any:
    return rows.filter(pc.field("field").isin(list(fields)))


def _gpus_by(rows: Any, key: str) -> dict[Any, int]:
    counted = rows.group_by(key).aggregate([("gpu_id", "count_distinct")])
    return dict(zip(counted[key].to_pylist(), counted["gpu_id_count_distinct"].to_pylist(), strict=True))


def mean_of(row: dict[str, Any] | None) -> float | None:
    return row["weighted"] / row["samples"] if row and row["samples"] else None


def _share(row: dict[str, Any] | None) -> float | None:
    """Of the time that a counter of nanoseconds covers, how much it has counted."""
    return row["increase"] / _NS_PER_S / row["covered_s"] if row and row["covered_s"] else None


def utilization(rows: Any, by: str) -> list[Utilization]:
    """From totals, how busy the GPUs of each group were; the busiest group first."""
    own = _of(rows, _UTIL, _SM_ACTIVE, _MEMORY_TOTAL, _MEMORY_FREE, _MEMORY_USED)
    gpus = _gpus_by(own, GROUPS[by])
    found = [
        Utilization(
            group,
            gpus[group],
            mean_of(fields.get(_UTIL)),
            mean_of(fields.get(_SM_ACTIVE)),
            mean_of(fields.get(_MEMORY_USED)),
            _memory_share(fields),
        )
        for (group,), fields in by_field(own, GROUPS[by]).items()
    ]
    return sorted(found, key=lambda one: (-_or_less(one.gpu_util_percent), one.group or ""))


def _or_less(measured: float | None) -> float:
    """Sort missing measurements last."""
    return -1.0 if measured is None else measured


def _memory_share(fields: dict[int, dict[str, Any]]) -> float | None:
    used, free = mean_of(fields.get(_MEMORY_USED)), mean_of(fields.get(_MEMORY_FREE))
    total = mean_of(fields.get(_MEMORY_TOTAL)) or (None if used is None or free is None else used + free)
    return None if used is None or not total else used / total


def energy(rows: Any, by: str) -> list[Energy]:
    """From totals, watt-hours of each group; the group that has used most first."""
    own = _of(rows, _ENERGY, *_POWERS)
    gpus = _gpus_by(own, GROUPS[by])
    used: dict[Any, list[tuple[float, float, str]]] = {}
    # By GPU first: each may be measured in its own way.
    keys = dict.fromkeys((GROUPS[by], "gpu_id"))
    for (group, *_), fields in by_field(own, *keys).items():
        used.setdefault(group, []).extend(used_energy(fields))
    found = []
    for group, parts in used.items():
        used_wh = sum(wh for wh, _, _ in parts)
        covered_s = sum(seconds for _, seconds, _ in parts)
        measured_by = " and ".join(sorted({source for _, _, source in parts})) or None
        if covered_s:
            found.append(Energy(group, gpus[group], used_wh, used_wh * 3600 / covered_s, measured_by))
        else:
            found.append(Energy(group, gpus[group], None, None, None))
    return sorted(found, key=lambda one: (-_or_less(one.energy_wh), one.group or ""))


def used_energy(fields: dict[int, dict[str, Any]]) -> list[tuple[float, float, str]]:
    """A GPU's watt-hours, over how many seconds, and how that is known; nothing if it is not."""
    ways = (
        (_ENERGY, _MJ_PER_WH, "energy counter"),
        *((field, _J_PER_WH, "integrated power") for field in _POWERS),
    )
    for field, unit, source in ways:
        row = fields.get(field)
        # The first sample has gained nothing yet, and says nothing of the time before it.
        if row and row["covered_s"]:
            return [(row["increase"] / unit, row["covered_s"], source)]
    return []


def health(rows: Any, gpus: Iterable[Gpu], incidents: Iterable[Incident]) -> list[Health]:
    """The state of these GPUs, and of those with an open alert but without samples; worst first."""
    measured = by_field(rows, "gpu_id")
    by_subject: dict[str, list[Incident]] = {}
    places = {gpu.gpu_id: _place(gpu) for gpu in gpus}
    for incident in incidents:
        if incident.state == "open":
            by_subject.setdefault(incident.subject, []).append(incident)
            if incident.subject != incident.hostname:
                places.setdefault(incident.subject, _place(incident))
    found = []
    for gpu_id, place in places.items():
        # An alert about a host is one about each of its GPUs.
        own = by_subject.get(gpu_id, []) + by_subject.get(place[0] or "", [])
        status = min((one.severity for one in own), key=SEVERITIES.index, default="ok")
        rules = sorted({one.rule for one in own})
        fields = measured.get((gpu_id,), {})
        hottest = fields[_TEMPERATURE]["max"] if _TEMPERATURE in fields else None
        shares = _share(fields.get(_POWER_NS)), _share(fields.get(_THERMAL_NS))
        memory = mean_of(fields.get(_MEMORY_USED))
        found.append(Health(gpu_id, *place, status, rules, hottest, memory, *shares))
    return sorted(found, key=lambda one: (SEVERITIES.index(one.status), -len(one.open_alerts), one.gpu_id))


def _place(one: Gpu | Incident) -> _Place:
    """Host, device, PCI address, workload, pod and job, in the order of Health."""
    return one.hostname, one.device, one.pci_bus_id, one.workload, one.pod, one.job


def count_by_status(found: Iterable[Health]) -> dict[str, int]:
    """How many GPUs are in which state; every state is named."""
    counted = Counter(one.status for one in found)
    return {status: counted[status] for status in SEVERITIES}
