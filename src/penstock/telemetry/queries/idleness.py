"""GPUs that something holds and does not use: idle, or busy in name only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple

from penstock.telemetry.inventory import NO_HOSTS, RACK, Inventory
from penstock.telemetry.models import power_limit_w
from penstock.telemetry.queries.fleet import GROUPS, by_field, mean_of, totals, used_energy
from penstock.telemetry.queries.gpus import ALL, Attributes, Only
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import DAY_MS, ROLLUPS, Span
from penstock.telemetry.thresholds import Thresholds

__all__ = [
    "NO_PRICES",
    "Idle",
    "IdleGroup",
    "Idleness",
    "Prices",
    "busy_power_w",
    "fake_busy",
    "find_idle",
    "group_idle",
]

_UTIL, _SM_ACTIVE, _POWER, _POWER_INSTANT, _MEMORY = 203, 1002, 155, 157, 252
_LIMITS: Final = (164, 160)
#: as in the pipeline's rule
_PEERS_MIN: Final = 8
_KEYS: Final = ("gpu_id", "hostname", "device", "pci_bus_id", "model", "workload", "pod", "job", "namespace")


class Prices(NamedTuple):
    """The price of an hour of a GPU, and of a kilowatt-hour, in one currency; None does not count."""

    per_gpu_hour: float | None = None
    per_kwh: float | None = None

    def of(self, gpu_hours: float, kwh: float | None) -> float | None:
        """The cost; None without prices, or where the energy has a price and was not measured."""
        if self == NO_PRICES or (self.per_kwh is not None and kwh is None):
            return None
        return gpu_hours * (self.per_gpu_hour or 0.0) + (kwh or 0.0) * (self.per_kwh or 0.0)


NO_PRICES: Final = Prices()


@dataclass(frozen=True, slots=True)
class Idle(Attributes):
    """A GPU that a workload holds, or whose memory is in use, and that does too little."""

    observed_s: float
    idle_s: float
    gpu_util_percent: float | None
    sm_active_share: float | None
    memory_used_mib: float | None
    fake_busy: bool
    #: the evidence that it only seems to be busy
    evidence: str | None
    #: the idle time, or the whole time of a GPU that is busy in name only
    wasted_s: float
    #: the energy of that time; of idle time at the lowest power that was measured
    wasted_wh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class IdleGroup:
    """The unused GPU time of a group."""

    group: str | None
    gpus: int
    idle_gpu_hours: float
    fake_busy_gpus: int
    memory_used_mib: float | None
    wasted_gpu_hours: float
    wasted_wh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class Idleness:
    """All of them, the longest idle first; `is_known` where any utilisation was measured."""

    gpus: list[Idle]
    is_known: bool

    @property
    def gpu_hours(self) -> float | None:
        return sum(one.idle_s for one in self.gpus) / 3600 if self.is_known else None

    @property
    def wasted_gpu_hours(self) -> float | None:
        return sum(one.wasted_s for one in self.gpus) / 3600 if self.is_known else None

    @property
    def wasted_kwh(self) -> float | None:
        wasted_wh = _sum(one.wasted_wh for one in self.gpus)
        return None if wasted_wh is None else wasted_wh / 1000

    @property
    def wasted_cost(self) -> float | None:
        return _sum(one.cost for one in self.gpus)


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def busy_power_w(
    thresholds: Thresholds, measured: Iterable[tuple[str | None, float | None, float | None]]
) -> dict[str | None, float]:
    """By model, the median power of busy GPUs, from (model, utilisation, power); none where there are few."""
    powers: dict[str | None, list[float]] = {}
    for model, util, power_w in measured:
        if util is not None and power_w is not None and util >= thresholds.fake_busy.gpu_util_min_percent:
            powers.setdefault(model, []).append(power_w)
    return {model: median(own) for model, own in powers.items() if len(own) >= _PEERS_MIN}


def fake_busy(
    thresholds: Thresholds,
    util: float,
    active: float | None,
    power_w: float | None,
    limit_w: float | None,
    peers_w: float | None = None,
) -> str | None:
    """The evidence that a GPU is busy in name only, from its means or newest values.

    `peers_w` is the power of busy GPUs of its model, for a GPU without a known limit. None without evidence.
    """
    limit = thresholds.fake_busy
    if util < limit.gpu_util_min_percent:
        return None
    if active is not None:
        return f"SM_ACTIVE is {active:.2f}" if active <= limit.sm_active_max_share else None
    if power_w is None:
        return None
    if limit_w:
        is_little, of, what = power_w <= limit.power_max_share * limit_w, limit_w, "the limit"
    elif peers_w:
        is_little, of = power_w <= limit.peer_power_max_share * peers_w, peers_w
        what = "the median of busy peers"
    else:
        return None
    return f"no SM_ACTIVE; power is {power_w / of:.0%} of {what}" if is_little else None


def find_idle(
    reader: TableReader, span: Span, thresholds: Thresholds, only: Only = ALL, prices: Prices = NO_PRICES
) -> Idleness:
    """GPUs that are held and wasted.

    A window is idle if nothing in it exceeded the threshold, so windows are of a minute at most, except in
    spans of more than a day, where those would be too many.
    """
    levels = ROLLUPS if span.width > DAY_MS else ROLLUPS[1:]
    rows = totals(reader, span, thresholds.idle_occupied.gpu_util_max_percent, levels, only)
    peers_w: dict[str | None, float] = {}
    if any(power_limit_w(model) is None for model in rows["model"].unique().to_pylist()):
        # Peers are those of the whole fleet, whatever the question is about.
        peers_w = _peers_w(rows if only == ALL else totals(reader, span, levels=levels), thresholds)
    found, is_known = [], False
    for about, fields in by_field(rows, *_KEYS).items():
        gpu = dict(zip(_KEYS, about, strict=True))
        used, busy = fields.get(_UTIL), mean_of(fields.get(_UTIL))
        if used is None or busy is None:
            continue
        is_known = True
        one = _judged(gpu, fields, used, busy, thresholds, peers_w.get(gpu["model"]), prices)
        if one is not None:
            found.append(one)
    return Idleness(sorted(found, key=lambda one: (-one.idle_s, one.gpu_id, one.workload or "")), is_known)


def _peers_w(rows: Any, thresholds: Thresholds) -> dict[str | None, float]:
    """By model, the power of its busy GPUs, from totals."""
    by_gpu = by_field(rows, "gpu_id", "model").items()
    return busy_power_w(
        thresholds, ((model, mean_of(own.get(_UTIL)), mean_of(own.get(_POWER))) for (_, model), own in by_gpu)
    )


def _judged(
    about: dict[str, Any],
    fields: dict[int, dict[str, Any]],
    used: dict[str, Any],
    busy: float,
    thresholds: Thresholds,
    peers_w: float | None,
    prices: Prices,
) -> Idle | None:
    active, memory = mean_of(fields.get(_SM_ACTIVE)), mean_of(fields.get(_MEMORY))
    limits = [limit for limit in (mean_of(fields.get(field)) for field in _LIMITS) if limit]
    limit_w = next(iter(limits), None) or power_limit_w(about["model"])
    evidence = fake_busy(thresholds, busy, active, mean_of(fields.get(_POWER)), limit_w, peers_w)
    is_held = about["workload"] or (memory or 0.0) >= thresholds.idle_occupied.memory_used_min_mib
    if not is_held or not (used["idle_s"] or evidence):
        return None
    wasted_s = used["idle_s"] if evidence is None else used["observed_s"]
    used_wh = _sum(wh for wh, _, _ in used_energy(fields))
    wasted_wh = _idle_wh(fields, wasted_s) if evidence is None else used_wh
    return Idle(
        **about,
        observed_s=used["observed_s"],
        idle_s=used["idle_s"],
        gpu_util_percent=busy,
        sm_active_share=active,
        memory_used_mib=memory,
        fake_busy=evidence is not None,
        evidence=evidence,
        wasted_s=wasted_s,
        wasted_wh=wasted_wh,
        cost=prices.of(wasted_s / 3600, None if wasted_wh is None else wasted_wh / 1000),
    )


def _idle_wh(fields: dict[int, dict[str, Any]], idle_s: float) -> float | None:
    """The energy of idle time: at the lowest power of any window, because windows of work need more."""
    lowest = next((fields[field]["lowest"] for field in (_POWER, _POWER_INSTANT) if field in fields), None)
    return None if lowest is None else float(lowest) * idle_s / 3600


def group_idle(gpus: Iterable[Idle], by: str, inventory: Inventory = NO_HOSTS) -> list[IdleGroup]:
    """The same by host, workload and so on; the group that wastes most first."""
    groups: dict[str | None, list[Idle]] = {}
    for one in gpus:
        group = inventory.of(one.hostname).rack if by == RACK else getattr(one, GROUPS[by])
        groups.setdefault(group, []).append(one)
    found = []
    for group, own in groups.items():
        found.append(
            IdleGroup(
                group,
                len({one.gpu_id for one in own}),
                sum(one.idle_s for one in own) / 3600,
                len({one.gpu_id for one in own if one.fake_busy}),
                _sum(one.memory_used_mib for one in own),
                sum(one.wasted_s for one in own) / 3600,
                _sum(one.wasted_wh for one in own),
                _sum(one.cost for one in own),
            )
        )
    return sorted(found, key=lambda one: (-one.idle_gpu_hours, -one.fake_busy_gpus, one.group or ""))
