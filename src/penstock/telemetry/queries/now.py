"""The current state of each GPU, from its newest sample: without waiting times and closed windows.

A recording with one scrape is enough. Conditions that need two samples (counters) or a duration (alerts) are
not evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.fields import HEAT_REASONS, POWER_REASONS
from penstock.telemetry.heat import expected_heat
from penstock.telemetry.models import power_limit_w
from penstock.telemetry.queries.gpus import ABOUT, ALL, Attributes, Gpu, Only, find_gpus, is_of_gpu, latest
from penstock.telemetry.queries.idleness import busy_power_w, fake_busy
from penstock.telemetry.queries.reader import Measure, TableReader
from penstock.telemetry.queries.spans import HOUR_MS, SAMPLES, Piece, Span, instant
from penstock.telemetry.thresholds import Thresholds

__all__ = ["STATES", "NowGpu", "count_states", "find_now", "last_seen", "newest_ms"]

_REASONS, _TEMPERATURE, _POWER, _UTIL, _XID = 112, 150, 155, 203, 230
_LIMITS: Final = (164, 160)
_TOTAL, _FREE, _USED, _SM_ACTIVE = 250, 251, 252, 1002
_REMAP_FAILED, _REMAP_PENDING = 395, 396
_FIELDS: Final = (
    *(_REASONS, _TEMPERATURE, _POWER, _UTIL, _XID, *_LIMITS),
    *(_TOTAL, _FREE, _USED, _SM_ACTIVE, _REMAP_FAILED, _REMAP_PENDING),
)
#: by field: when it was last measured, and the value
_Values: TypeAlias = Mapping[int, tuple[int, float]]
#: How far back a GPU's newest values are looked for, step by step: most are in the first.
_LOOKS_MS: Final = (60_000, 600_000, HOUR_MS)
#: the states of a GPU, those that waste it first
STATES: Final = ("idle_occupied", "fake_busy", "silent", "unknown", "busy", "idle")


@dataclass(frozen=True, slots=True)
class NowGpu(Attributes):
    """A GPU at its newest sample; missing values are None."""

    state: str
    #: further findings: hot, thermal_throttle, power_throttle, xid, row_remap
    findings: list[str]
    #: why it is said to be in its state
    evidence: str | None
    gpu_util_percent: float | None
    sm_active_share: float | None
    memory_used_mib: float | None
    memory_used_share: float | None
    power_w: float | None
    temperature_c: float | None
    #: at its power, by its model and host; None where too few GPUs are comparable
    temperature_expected_c: float | None
    last_seen: datetime
    #: behind the newest sample of all GPUs, or behind the pipeline if that sample is from the future
    age_s: float


class _Warmth(NamedTuple):
    """The expected temperature of a GPU, and whether its own is far above it."""

    expected_c: float
    is_hot: bool


class _Context(NamedTuple):
    """What is known of a GPU beside its newest values."""

    now_ms: int
    #: its newest sample of any field; None if that is not of the last minute
    seen_ms: int | None
    #: the power of busy GPUs of its model
    peers_w: float | None
    heat: _Warmth | None


def find_now(reader: TableReader, thresholds: Thresholds, only: Only = ALL) -> list[NowGpu]:
    """The GPUs of the last 24 hours of samples, those that are wasted or in trouble first."""
    extent = reader.extent()
    if extent is None:
        return []
    known = find_gpus(reader, latest(reader))
    gpus = [gpu for gpu in known if only.has(gpu)]
    unlimited = {gpu.model for gpu in gpus if power_limit_w(gpu.model) is None}
    peers = [gpu for gpu in known if gpu.model in unlimited]
    # Peers are those of the whole fleet, whatever the question is about.
    values = _newest_values(reader, extent.end, [gpu.gpu_id for gpu in known])
    peers_w = busy_power_w(thresholds, (_load(gpu, values.get(gpu.gpu_id, {})) for gpu in peers))
    now_ms, seen_ms = newest_ms(reader), last_seen(reader, extent.end)
    heat = _heat(known, values, now_ms, thresholds)
    found = [
        _judged(
            gpu,
            values.get(gpu.gpu_id, {}),
            _Context(now_ms, seen_ms.get(gpu.gpu_id), peers_w.get(gpu.model), heat.get(gpu.gpu_id)),
            thresholds,
        )
        for gpu in gpus
    ]
    return sorted(found, key=lambda one: (STATES.index(one.state), -len(one.findings), one.gpu_id))


def newest_ms(reader: TableReader) -> int:
    """The time of the newest sample, but no later than the last batch began; 0 without samples.

    Why: all other GPUs would be silent for as long as the clock of one host is ahead.
    """
    extent, batches = reader.extent(), reader.extent("batches")
    if extent is None:
        return 0
    return min(each.end for each in (extent, batches) if each is not None) - 1


def last_seen(reader: TableReader, end_ms: int, width_ms: int = _LOOKS_MS[0]) -> dict[str, int]:
    """The time of the newest sample of each GPU, of any field, of those that have one in that time."""
    piece = Piece(SAMPLES, Span(end_ms - width_ms, end_ms))
    seen = Measure("seen", "max", pc.field("at").cast(pa.int64()))
    rows = reader.aggregate(piece, {"gpu_id": pc.field("gpu_id")}, [seen], is_of_gpu())
    return {row["gpu_id"]: row["seen"] // 1000 for row in rows.to_pylist()}


def _heat(
    known: Sequence[Gpu], values: Mapping[str, _Values], now_ms: int, thresholds: Thresholds
) -> dict[str, _Warmth]:
    """The expected temperatures of GPUs that are heard, as far as others tell."""
    measured = [_warmth(values.get(gpu.gpu_id, {}), now_ms - thresholds.stale_s * 1000) for gpu in known]
    power, temperature = np.array(measured, np.float64).reshape(-1, 2).T
    models, hosts = (
        np.unique([getattr(gpu, name) or "" for gpu in known], return_inverse=True)[1]
        for name in ("model", "hostname")
    )
    heat = expected_heat(models, hosts, power, temperature)
    hot = heat.stands_out(thresholds.hot.excess_min_c) & (temperature >= thresholds.hot.excess_from_c)
    return {
        gpu.gpu_id: _Warmth(float(heat.expected[place]), bool(hot[place]))
        for place, gpu in enumerate(known)
        if not np.isnan(heat.expected[place])
    }


def _warmth(values: _Values, since_ms: float) -> tuple[float, float]:
    """Power and temperature; NaN if they are missing or old."""
    power, temperature = (
        values[field][1] if field in values and values[field][0] >= since_ms else np.nan
        for field in (_POWER, _TEMPERATURE)
    )
    return power, temperature


def _load(gpu: Gpu, values: _Values) -> tuple[str | None, float | None, float | None]:
    """The model of a GPU, its utilisation and its power."""
    util, power_w = (values[field][1] if field in values else None for field in (_UTIL, _POWER))
    return gpu.model, util, power_w


def count_states(found: Iterable[NowGpu]) -> dict[str, int]:
    """How many GPUs are in which state; every state is named."""
    counted = Counter(one.state for one in found)
    return {state: counted[state] for state in STATES}


def _newest_values(reader: TableReader, end_ms: int, gpu_ids: list[str]) -> Mapping[str, _Values]:
    """The newest values of each GPU."""
    found: dict[str, dict[int, tuple[int, float]]] = {}
    stop_ms = end_ms
    for width_ms in _LOOKS_MS:
        left = [gpu_id for gpu_id in gpu_ids if gpu_id not in found]
        if not left:
            break
        wanted = pc.field("field").isin(list(_FIELDS))
        if len(left) < len(gpu_ids):
            wanted &= pc.field("gpu_id").isin(left)
        rows = reader.read(
            SAMPLES.table, Span(end_ms - width_ms, stop_ms), ["at", "gpu_id", "field", "value"], wanted
        )
        newest = rows.sort_by("at").group_by(["gpu_id", "field"], use_threads=False)
        newest = newest.aggregate([("value", "last"), ("at", "last")])
        at_ms = pc.divide(newest["at_last"].cast(pa.int64()), 1000).to_pylist()
        for row, at in zip(newest.to_pylist(), at_ms, strict=True):
            found.setdefault(row["gpu_id"], {})[row["field"]] = (at, row["value_last"])
        stop_ms = end_ms - width_ms
    return found


def _judged(gpu: Gpu, values: _Values, context: _Context, thresholds: Thresholds) -> NowGpu:
    def value(*fields: int) -> float | None:
        return next((values[field][1] for field in fields if field in values), None)

    seen_ms = max((at for at, _ in values.values()), default=None)
    seen_ms = seen_ms if context.seen_ms is None else context.seen_ms
    last_seen = gpu.last_seen if seen_ms is None else instant(seen_ms)
    # A closed window says when it ends, which may be after its newest sample.
    age_s = max(0.0, context.now_ms / 1000 - last_seen.timestamp())
    state, evidence = _state(gpu, value, age_s, thresholds, context.peers_w)
    used, free = value(_USED), value(_FREE)
    total = value(_TOTAL) or (None if used is None or free is None else used + free)
    return NowGpu(
        **{name: getattr(gpu, name) for name in ABOUT},
        state=state,
        findings=_findings(value, thresholds, is_hot=context.heat is not None and context.heat.is_hot),
        evidence=evidence,
        gpu_util_percent=value(_UTIL),
        sm_active_share=value(_SM_ACTIVE),
        memory_used_mib=used,
        memory_used_share=None if used is None or not total else used / total,
        power_w=value(_POWER),
        temperature_c=value(_TEMPERATURE),
        temperature_expected_c=None if context.heat is None else context.heat.expected_c,
        last_seen=last_seen,
        age_s=age_s,
    )


def _state(
    gpu: Gpu, value: Any, age_s: float, thresholds: Thresholds, peers_w: float | None
) -> tuple[str, str | None]:
    limit, util = thresholds.idle_occupied, value(_UTIL)
    if age_s >= thresholds.silent.for_s:
        return "silent", f"last sample {age_s:,.0f} s before the newest of the fleet"
    if util is None:
        return "unknown", None
    active, used = value(_SM_ACTIVE), value(_USED) or 0.0
    if util > limit.gpu_util_max_percent or (active or 0.0) > limit.sm_active_max_share:
        limit_w = value(*_LIMITS) or power_limit_w(gpu.model)
        evidence = fake_busy(thresholds, util, active, value(_POWER), limit_w, peers_w)
        return ("busy", None) if evidence is None else ("fake_busy", f"{util:.0f} % utilised; {evidence}")
    held = [f"held by {gpu.workload}"] if gpu.workload else []
    held += [f"{used:,.0f} MiB of memory in use"] if used >= limit.memory_used_min_mib else []
    return ("idle_occupied", ", ".join(held)) if held else ("idle", None)


def _findings(value: Any, thresholds: Thresholds, *, is_hot: bool) -> list[str]:
    reasons, code = int(value(_REASONS) or 0), int(value(_XID) or 0)
    is_too_hot = (value(_TEMPERATURE) or 0.0) >= thresholds.hot.temperature_min_c
    findings = {
        "hot": is_hot or is_too_hot,
        "thermal_throttle": bool(reasons & HEAT_REASONS),
        "power_throttle": bool(reasons & POWER_REASONS),
        f"xid {code}": code != 0,
        "row_remap": bool(value(_REMAP_FAILED) or value(_REMAP_PENDING)),
    }
    return [name for name, is_so in findings.items() if is_so]
