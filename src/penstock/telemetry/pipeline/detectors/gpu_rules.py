"""Rules that look at one GPU at a time, evaluated for all GPUs of a task at once.

A rule is a function of the state of the GPUs and of the thresholds. It judges the GPUs with samples in this
step.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.telemetry.fields import HEAT_REASONS, POWER_REASONS
from penstock.telemetry.models import power_limit_w
from penstock.telemetry.pipeline.columns import Floats
from penstock.telemetry.pipeline.detectors.features import column_of
from penstock.telemetry.pipeline.detectors.memory import OPEN, Memory
from penstock.telemetry.pipeline.detectors.rules import Finding, Rule, xid_action
from penstock.telemetry.thresholds import Thresholds

__all__ = [
    "BY_ACTIVITY",
    "BY_LIMIT",
    "BY_NOTHING",
    "GPU_RULES",
    "HEAT_BIT",
    "HELD_DOWN_BIT",
    "busy_share",
    "straggler_clock",
    "throttled_bits",
]

_CLOCK, _REASONS, _POWER, _UTIL = (column_of(each) for each in (100, 112, 155, 203))
_XID, _POWER_NS, _THERMAL_NS = (column_of(each) for each in (230, 240, 241))
_DBE, _REMAPPED, _REMAP_FAILED, _REMAP_PENDING = (column_of(each) for each in (311, 393, 395, 396))
_SM_ACTIVE, _LIMIT_SET, _LIMIT_ENFORCED, _MEMORY = (column_of(each) for each in (1002, 160, 164, 252))
_NS_PER_S: Final = 1e9
_REASON_BITS: Final = {_POWER_NS: POWER_REASONS, _THERMAL_NS: HEAT_REASONS}
#: bits of a signal: throttled by heat as `hot` counts it, and by anything as `straggler` does
HEAT_BIT, HELD_DOWN_BIT = 1, 2
#: what a busy share is a share of
BY_ACTIVITY, BY_LIMIT, BY_NOTHING = 0, 1, -1


def _has_workload(memory: Memory) -> Any:
    return np.array([bool(workload) for workload in memory.workloads], dtype=bool)


def idle_occupied(memory: Memory, thresholds: Thresholds) -> Finding:
    """Nothing runs on it, and a workload holds it or its memory is in use."""
    util, active, used_mib = memory.last[:, _UTIL], memory.last[:, _SM_ACTIVE], memory.last[:, _MEMORY]
    limit = thresholds.idle_occupied
    # Without profiling metrics utilisation alone must do.
    bad = (util <= limit.gpu_util_max_percent) & (np.nan_to_num(active) <= limit.sm_active_max_share)
    fills = np.nan_to_num(used_mib) >= limit.memory_used_min_mib

    def evidence(gpu: int) -> str:
        holders = [f"held by {memory.workloads[gpu]}"] if memory.workloads[gpu] else []
        filled = [f"{used_mib[gpu]:,.0f} MiB of memory in use"] if fills[gpu] else []
        return f"{util[gpu]:.0f} % utilised, {' with '.join(holders + filled)}"

    known = memory.heard & ~np.isnan(util)
    return Finding(bad & (_has_workload(memory) | fills), known, util, evidence=evidence)


def _power_limits(memory: Memory) -> Floats:
    """The power limit of each GPU, its own or its model's; NaN if neither is known."""
    own = np.where(
        np.isnan(memory.last[:, _LIMIT_ENFORCED]), memory.last[:, _LIMIT_SET], memory.last[:, _LIMIT_ENFORCED]
    )
    by_model = {model: power_limit_w(model) or np.nan for model in set(memory.models)}
    models = np.array([by_model[model] for model in memory.models], dtype=np.float64)
    return np.where(own > 0, own, models)


def _throttled_share(memory: Memory, column: int) -> Floats:
    """The share of the time in which clocks are held down; without counters, 0 or 1 by the reasons."""
    share = memory.smooth[:, column] / _NS_PER_S
    reasons = memory.last[:, _REASONS]
    is_named = (np.nan_to_num(reasons).astype(np.int64) & _REASON_BITS[column]) != 0
    return np.where(np.isnan(share), np.where(np.isnan(reasons), np.nan, is_named), share)


def thermal_throttle(memory: Memory, thresholds: Thresholds) -> Finding:
    share = _throttled_share(memory, _THERMAL_NS)
    bad = share >= thresholds.thermal_throttle.throttled_min_share
    return Finding(bad, memory.heard & ~np.isnan(share), share)


def power_throttle(memory: Memory, thresholds: Thresholds) -> Finding:
    share = _throttled_share(memory, _POWER_NS)
    bad = share >= thresholds.power_throttle.throttled_min_share
    return Finding(bad, memory.heard & ~np.isnan(share), share)


def ecc(memory: Memory, thresholds: Thresholds) -> Finding:
    per_minute = memory.corrected * 60.0
    bad = (per_minute >= thresholds.ecc.corrected_min_per_minute) | (memory.gained[:, _DBE] > 0)
    return Finding(bad, memory.heard, per_minute)


def xid(memory: Memory, thresholds: Thresholds) -> Finding:
    """The driver keeps the last code, so the code in a GPU's first sample does not indicate a new event."""
    code, has_changed = memory.last[:, _XID], memory.gained[:, _XID] > 0
    is_open = memory.held[:, memory.rules.index("xid"), OPEN] > 0
    bad = (np.nan_to_num(code) != 0) & (has_changed | is_open)
    return Finding(bad, memory.heard & ~np.isnan(code), code, has_changed)


def row_remap(memory: Memory, thresholds: Thresholds) -> Finding:
    flags = np.nan_to_num(memory.last[:, [_REMAP_FAILED, _REMAP_PENDING]])
    bad = (memory.gained[:, _REMAPPED] > 0) | (flags > 0).any(axis=1)
    return Finding(bad, memory.heard, memory.last[:, _REMAPPED])


def busy_share(memory: Memory) -> tuple[Floats, Any]:
    """For each GPU the share that shows whether it works, and what it is a share of.

    The share of active multiprocessors; without that field, of the power limit; NaN without either.
    """
    active, of_limit = memory.smooth[:, _SM_ACTIVE], memory.smooth[:, _POWER] / _power_limits(memory)
    share = np.where(np.isnan(active), of_limit, active)
    source = np.where(np.isnan(active), BY_LIMIT, BY_ACTIVITY)
    return share, np.where(np.isnan(share), BY_NOTHING, source).astype(np.int8)


def straggler_clock(memory: Memory) -> Floats:
    """The clock by which GPUs are compared: one that has just come back to work is not behind."""
    clock: Floats = np.maximum(memory.smooth[:, _CLOCK], memory.last[:, _CLOCK])
    return clock


def throttled_bits(memory: Memory, thresholds: Thresholds) -> Any:
    """HEAT_BIT and HELD_DOWN_BIT of each GPU."""
    heat = np.nan_to_num(_throttled_share(memory, _THERMAL_NS))
    power = np.nan_to_num(_throttled_share(memory, _POWER_NS))
    by_heat, by_power = (
        thresholds.thermal_throttle.throttled_min_share,
        thresholds.power_throttle.throttled_min_share,
    )
    held_down = (heat >= by_heat / 2) | (power >= by_power / 2)
    return (np.where(heat >= by_heat, HEAT_BIT, 0) | np.where(held_down, HELD_DOWN_BIT, 0)).astype(np.int8)


GPU_RULES: Final[dict[str, Rule]] = {
    "idle_occupied": Rule(idle_occupied, "warning", "free the GPU, or contact the owner of its workload"),
    "thermal_throttle": Rule(thermal_throttle, "critical", "check the cooling"),
    "power_throttle": Rule(power_throttle, "warning", "check the power limit and the supply"),
    "ecc": Rule(ecc, "critical", "drain and reset the GPU; replace it if the error recurs", is_hardware=True),
    "xid": Rule(xid, "critical", xid_action, is_hardware=True),
    "row_remap": Rule(
        row_remap, "critical", "reset the GPU; replace it if remapping failed", is_hardware=True
    ),
}
