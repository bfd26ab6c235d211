"""The rules of the detectors, evaluated for the whole fleet at once.

A rule is a function of the fleet, of the GPUs with samples in this step, and of its thresholds. It returns
the bad subjects with a measure; a GPU without the fields of the rule is not bad. `incidents` decides whether
a bad state has lasted long enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.telemetry.models import power_limit_w
from penstock.telemetry.pipeline.columns import Floats, Ints
from penstock.telemetry.pipeline.detectors.features import column_of
from penstock.telemetry.pipeline.detectors.fleet import Fleet
from penstock.telemetry.thresholds import Thresholds

__all__ = ["RULES", "Finding", "Rule", "group_median", "xid_action"]

_CLOCK, _REASONS, _TEMP, _POWER, _UTIL = (column_of(each) for each in (100, 112, 150, 155, 203))
_XID, _POWER_NS, _THERMAL_NS = (column_of(each) for each in (230, 240, 241))
_DBE, _REMAPPED, _REMAP_FAILED, _REMAP_PENDING = (column_of(each) for each in (311, 393, 395, 396))
_SM_ACTIVE, _LIMIT_SET, _LIMIT_ENFORCED, _MEMORY = (column_of(each) for each in (1002, 160, 164, 252))
_NS_PER_S: Final = 1e9
#: the reasons for low clocks that are the power limit or the power supply, and those that are heat
_REASON_BITS: Final = {_POWER_NS: 0x04 | 0x80, _THERMAL_NS: 0x20 | 0x40}
#: a deviation of a normal distribution from the median of absolute deviations
_MAD_TO_SIGMA: Final = 1.4826
#: siblings that agree perfectly still differ by this share before a deviation means anything
_SPREAD_MIN: Final = 0.005
#: watts; GPUs whose power is within one such band are expected to be equally warm
_POWER_BAND_W: Final = 25.0
_BAND_MEMBERS_MIN: Final = 8

#: What NVIDIA's catalogue of XIDs recommends, by code.
_XID_ACTIONS: Final = {
    **dict.fromkeys((13, 31, 43, 45, 68, 69), "restart the application"),
    **dict.fromkeys((48, 94, 95, 63, 64, 92, 119, 120, 140), "drain and reset the GPU"),
    **dict.fromkeys((74, 79, 62, 109, 110), "drain and reboot the host; then test the hardware"),
}
_OTHER_XID: Final = "look it up in NVIDIA's catalogue of XIDs"
_APPLICATION: Final = [code for code, action in _XID_ACTIONS.items() if action.endswith("application")]


class Finding(NamedTuple):
    """For each GPU of the fleet: whether it is bad, whether that could be judged, and a measure of it."""

    bad: Any
    known: Any
    measure: Floats
    #: something new has happened to one that is bad already
    again: Any = None
    #: what a GPU was judged by, in words
    evidence: Callable[[int], str] | None = None


class Rule(NamedTuple):
    judge: Callable[[Fleet, Ints, int, Thresholds], Finding]
    severity: str
    action: str
    #: counts towards a lemon node
    is_hardware: bool = False


def xid_action(code: float) -> str:
    return _XID_ACTIONS.get(int(code), _OTHER_XID)


def is_application_xid(codes: Floats) -> Any:
    return np.isin(codes, _APPLICATION)


def group_median(groups: Ints, values: Floats) -> Floats:
    """For each value the median of its group."""
    order = np.lexsort((values, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups[order][:1] - 1)) if len(order) else order
    size = np.diff(np.append(first, len(order)))
    ordered = values[order]
    median = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2
    out = np.empty(len(values))
    out[order] = np.repeat(median, size)
    return out


def _has_workload(fleet: Fleet) -> Any:
    return np.array([bool(workload) for workload in fleet.workloads], dtype=bool)


def _only(heard: Ints, fleet: Fleet, known: Any) -> Any:
    """Of `known`, those with a sample in this step."""
    mask = np.zeros(len(fleet.gpu_ids), dtype=bool)
    mask[heard] = True
    return mask & known


def _recent(fleet: Fleet, step_ms: int, told: Thresholds) -> Any:
    return step_ms - fleet.seen_ms <= told.stale_s * 1000


def idle_occupied(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Nothing runs on it, and a workload holds it or its memory is in use."""
    util, active, used_mib = fleet.last[:, _UTIL], fleet.last[:, _SM_ACTIVE], fleet.last[:, _MEMORY]
    limit = told.idle_occupied
    # Without profiling metrics utilisation alone must do.
    bad = (util <= limit.gpu_util_max_percent) & (np.nan_to_num(active) <= limit.sm_active_max_share)
    fills = np.nan_to_num(used_mib) >= limit.memory_used_min_mib

    def evidence(gpu: int) -> str:
        holders = [f"held by {fleet.workloads[gpu]}"] if fleet.workloads[gpu] else []
        memory = [f"{used_mib[gpu]:,.0f} MiB of memory in use"] if fills[gpu] else []
        return f"{util[gpu]:.0f} % utilised, {' with '.join(holders + memory)}"

    known = _only(heard, fleet, ~np.isnan(util))
    return Finding(bad & (_has_workload(fleet) | fills), known, util, evidence=evidence)


def fake_busy(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Busy by its utilisation alone.

    Few multiprocessors are active; without that field, it draws little of its power limit; where no limit is
    known, little of what busy GPUs of its model draw.
    """
    limit = told.fake_busy
    util, active, power = (fleet.smooth[:, column] for column in (_UTIL, _SM_ACTIVE, _POWER))
    of_limit = power / _power_limits(fleet)
    is_busy = util >= limit.gpu_util_min_percent
    of_peers = power / _busy_peers_power(fleet, is_busy & _recent(fleet, step_ms, told))
    shares = (
        (active, limit.sm_active_max_share, "SM_ACTIVE is {:.2f}"),
        (of_limit, limit.power_max_share, "no SM_ACTIVE; power is {:.0%} of the limit"),
        (of_peers, limit.peer_power_max_share, "no SM_ACTIVE; power is {:.0%} of the median of busy peers"),
    )
    share, bad = np.full(len(util), np.nan), np.zeros(len(util), dtype=bool)
    source = np.full(len(util), -1)
    for number, (own, highest, _) in enumerate(shares):
        first = np.isnan(share) & ~np.isnan(own)
        share[first], source[first], bad[first] = own[first], number, own[first] <= highest

    def evidence(gpu: int) -> str:
        return f"{util[gpu]:.0f} % utilised; {shares[source[gpu]][2].format(share[gpu])}"

    known = _only(heard, fleet, ~np.isnan(util + share))
    return Finding(is_busy & bad, known, share, evidence=evidence)


def _power_limits(fleet: Fleet) -> Floats:
    """The power limit of each GPU, its own or its model's; NaN if neither is known."""
    own = np.where(
        np.isnan(fleet.last[:, _LIMIT_ENFORCED]), fleet.last[:, _LIMIT_SET], fleet.last[:, _LIMIT_ENFORCED]
    )
    by_model = {model: power_limit_w(model) or np.nan for model in set(fleet.models)}
    models = np.array([by_model[model] for model in fleet.models], dtype=np.float64)
    return np.where(own > 0, own, models)


def _busy_peers_power(fleet: Fleet, is_busy: Any) -> Floats:
    """The median power of busy GPUs of the same model; NaN where there are too few."""
    median = np.full(len(fleet.gpu_ids), np.nan)
    power = fleet.smooth[:, _POWER]
    peers = np.flatnonzero(is_busy & ~np.isnan(power))
    if len(peers):
        models = np.unique([fleet.models[each] or "" for each in peers], return_inverse=True)[1].astype(
            np.int64
        )
        enough = np.bincount(models)[models] >= _BAND_MEMBERS_MIN
        median[peers] = np.where(enough, group_median(models, power[peers]), np.nan)
    return median


def _throttled_share(fleet: Fleet, column: int) -> Floats:
    """The share of the time in which clocks are held down; without counters, 0 or 1 by the reasons."""
    share = fleet.smooth[:, column] / _NS_PER_S
    reasons = fleet.last[:, _REASONS]
    is_named = (np.nan_to_num(reasons).astype(np.int64) & _REASON_BITS[column]) != 0
    return np.where(np.isnan(share), np.where(np.isnan(reasons), np.nan, is_named), share)


def thermal_throttle(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    share = _throttled_share(fleet, _THERMAL_NS)
    bad = share >= told.thermal_throttle.throttled_min_share
    return Finding(bad, _only(heard, fleet, ~np.isnan(share)), share)


def power_throttle(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    share = _throttled_share(fleet, _POWER_NS)
    bad = share >= told.power_throttle.throttled_min_share
    return Finding(bad, _only(heard, fleet, ~np.isnan(share)), share)


def hot(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Hotter than GPUs at the same power are, and than its host makes the others."""
    temperature, power = fleet.smooth[:, _TEMP], fleet.smooth[:, _POWER]
    excess = np.full(len(temperature), np.nan)
    peers = np.flatnonzero(~np.isnan(temperature + power) & _recent(fleet, step_ms, told))
    if len(peers):
        band = (power[peers] // _POWER_BAND_W).astype(np.int64)
        above = temperature[peers] - group_median(band, temperature[peers])
        hosts = np.unique([fleet.hostnames[number] for number in peers], return_inverse=True)[1].astype(
            np.int64
        )
        above -= group_median(hosts, above)
        has_peers = np.bincount(band)[band] >= _BAND_MEMBERS_MIN
        excess[peers] = np.where(has_peers, above, np.nan)
    throttled = (
        np.nan_to_num(_throttled_share(fleet, _THERMAL_NS)) >= told.thermal_throttle.throttled_min_share
    )
    # Idle GPUs differ by what surrounds them; below the floor no difference harms.
    stands_out = (excess >= told.hot.excess_min_c) & (temperature >= told.hot.excess_from_c)
    bad = stands_out | (temperature >= told.hot.temperature_min_c)

    def evidence(gpu: int) -> str:
        above = f", {excess[gpu]:.0f} °C above GPUs at the same power" if stands_out[gpu] else ""
        return f"{temperature[gpu]:.0f} °C{above}"

    # One that is throttled has an alert for that.
    known = _only(heard, fleet, ~np.isnan(temperature))
    return Finding(bad & ~throttled, known, temperature, evidence=evidence)


def straggler(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Behind the other GPUs of its job by more than they differ among themselves."""
    limit = told.straggler
    # One that has just come back to work is not behind, whatever its past.
    clock = np.maximum(fleet.smooth[:, _CLOCK], fleet.last[:, _CLOCK])
    deficit = np.full(len(clock), np.nan)
    bad = np.zeros(len(clock), dtype=bool)
    peers = np.flatnonzero(~np.isnan(clock) & _recent(fleet, step_ms, told) & _has_workload(fleet))
    if len(peers):
        # A job may have many pods; without one its pod's GPUs are its siblings.
        names = [fleet.jobs[number] or fleet.workloads[number] or "" for number in peers]
        jobs = np.unique(names, return_inverse=True)[1].astype(np.int64)
        middle = group_median(jobs, clock[peers])
        behind = middle - clock[peers]
        spread = np.maximum(_MAD_TO_SIGMA * group_median(jobs, np.abs(behind)), _SPREAD_MIN * middle)
        deficit[peers] = behind / middle
        enough = np.bincount(jobs)[jobs] >= limit.siblings_min
        bad[peers] = (
            enough
            & (behind / spread >= limit.robust_z_min)
            & (deficit[peers] >= limit.clock_deficit_min_share)
        )
    throttled = np.zeros(len(clock), dtype=bool)
    for column, part in ((_THERMAL_NS, told.thermal_throttle), (_POWER_NS, told.power_throttle)):
        # What holds the clock down is known, and has an alert of its own.
        throttled |= np.nan_to_num(_throttled_share(fleet, column)) >= part.throttled_min_share / 2
    # One that does not work at all is idle, and its clock says nothing.
    works = fleet.smooth[:, _UTIL] >= limit.gpu_util_min_percent
    return Finding(bad & works & ~throttled, _only(heard, fleet, ~np.isnan(clock)), deficit)


def ecc(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    per_minute = fleet.corrected * 60.0
    bad = (per_minute >= told.ecc.corrected_min_per_minute) | (fleet.gained[:, _DBE] > 0)
    return Finding(bad, _only(heard, fleet, np.ones(len(bad), dtype=bool)), per_minute)


def xid(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """The driver keeps the last code, so the code in a GPU's first sample does not indicate a new event."""
    code, has_changed = fleet.last[:, _XID], fleet.gained[:, _XID] > 0
    is_open = fleet.held[:, fleet.rules.index("xid"), 2] > 0
    bad = (np.nan_to_num(code) != 0) & (has_changed | is_open)
    return Finding(bad, _only(heard, fleet, ~np.isnan(code)), code, has_changed)


def row_remap(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    flags = np.nan_to_num(fleet.last[:, [_REMAP_FAILED, _REMAP_PENDING]])
    bad = (fleet.gained[:, _REMAPPED] > 0) | (flags > 0).any(axis=1)
    return Finding(bad, _only(heard, fleet, np.ones(len(bad), dtype=bool)), fleet.last[:, _REMAPPED])


def silent(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Judged for all, by the time of those that are not."""
    quiet_s = (step_ms - fleet.seen_ms) / 1000.0
    return Finding(quiet_s >= told.silent.for_s, np.ones(len(quiet_s), dtype=bool), quiet_s)


def lemon_node(fleet: Fleet, heard: Ints, step_ms: int, told: Thresholds) -> Finding:
    """Judged for hosts; a host's first GPU stands for it."""
    limit = told.lemon_node
    faulty = (fleet.hardware_ms > 0) & (step_ms - fleet.hardware_ms <= limit.within_s * 1000)
    _, first, host = np.unique(fleet.hostnames, return_index=True, return_inverse=True)
    count = np.bincount(host, weights=faulty, minlength=len(first))
    known = np.zeros(len(faulty), dtype=bool)
    known[first] = True
    return Finding(known & (count[host] >= limit.gpus_min), known, count[host].astype(np.float64))


RULES: Final[dict[str, Rule]] = {
    "idle_occupied": Rule(idle_occupied, "warning", "free the GPU, or contact the owner of its workload"),
    "fake_busy": Rule(fake_busy, "warning", "profile the job: it keeps few multiprocessors busy"),
    "thermal_throttle": Rule(thermal_throttle, "critical", "check the cooling"),
    "power_throttle": Rule(power_throttle, "warning", "check the power limit and the supply"),
    "hot": Rule(hot, "warning", "check the cooling"),
    "ecc": Rule(ecc, "critical", "drain and reset the GPU; replace it if the error recurs", is_hardware=True),
    "xid": Rule(xid, "critical", "", is_hardware=True),
    "row_remap": Rule(
        row_remap, "critical", "reset the GPU; replace it if remapping failed", is_hardware=True
    ),
    "straggler": Rule(straggler, "warning", "take the GPU out of the job"),
    "silent": Rule(silent, "critical", "check the exporter, the host, and whether the GPU is on the bus"),
    # Last, because it looks at what the others have opened.
    "lemon_node": Rule(lemon_node, "critical", "take the host out of service"),
}
