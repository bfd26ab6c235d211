"""Rules that compare GPUs: with their job, their host, their model or the fleet.

A rule is a function of the newest signals of all GPUs, of the fleet's time and of the thresholds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.telemetry.heat import expected_heat
from penstock.telemetry.pipeline.columns import Floats, Ints
from penstock.telemetry.pipeline.detectors.gpu_rules import (
    BY_ACTIVITY,
    BY_LIMIT,
    GPU_RULES,
    HEAT_BIT,
    HELD_DOWN_BIT,
)
from penstock.telemetry.pipeline.detectors.missing import missing_gpu
from penstock.telemetry.pipeline.detectors.peers import NO_TEXT, Peers
from penstock.telemetry.pipeline.detectors.rules import Finding, Rule, group_median
from penstock.telemetry.thresholds import Thresholds

__all__ = ["FLEET_RULES", "RULES"]

#: a deviation of a normal distribution from the median of absolute deviations
_MAD_TO_SIGMA: Final = 1.4826
#: siblings that agree perfectly still differ by this share before a deviation means anything
_SPREAD_MIN: Final = 0.005
#: fewer busy GPUs of a model say nothing about their power
_BUSY_PEERS_MIN: Final = 8
_BY_PEERS: Final = 2


def _recent(peers: Peers, now_ms: int, thresholds: Thresholds) -> Any:
    return now_ms - peers.seen_ms <= thresholds.stale_s * 1000


def _groups(codes: Ints) -> Ints:
    """Codes as numbers from 0 on without gaps."""
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def fake_busy(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Busy by its utilisation alone.

    Few multiprocessors are active; without that field, it draws little of its power limit; where no limit is
    known, little of what busy GPUs of its model draw.
    """
    limit = thresholds.fake_busy
    util, share, source = peers.measures["util"], peers.measures["busy_share"], peers.flags["busy_source"]
    is_busy = util >= limit.gpu_util_min_percent
    of_peers = peers.measures["power"] / _busy_peers_power(
        peers, is_busy & _recent(peers, now_ms, thresholds)
    )
    share = np.where(np.isnan(share), of_peers, share)
    ways = {
        BY_ACTIVITY: (limit.sm_active_max_share, "SM_ACTIVE is {:.2f}"),
        BY_LIMIT: (limit.power_max_share, "no SM_ACTIVE; power is {:.0%} of the limit"),
        _BY_PEERS: (
            limit.peer_power_max_share,
            "no SM_ACTIVE; power is {:.0%} of the median of busy peers",
        ),
    }
    source = np.where((source != BY_ACTIVITY) & (source != BY_LIMIT), _BY_PEERS, source)
    highest = np.select([source == way for way in ways], [most for most, _ in ways.values()])

    def evidence(gpu: int) -> str:
        return f"{util[gpu]:.0f} % utilised; {ways[int(source[gpu])][1].format(share[gpu])}"

    known = peers.heard & ~np.isnan(util + share)
    return Finding(is_busy & (share <= highest), known, share, evidence=evidence)


def _busy_peers_power(peers: Peers, is_busy: Any) -> Floats:
    """The median power of busy GPUs of the same model; NaN where there are too few."""
    power = peers.measures["power"]
    median = np.full(len(power), np.nan)
    busy = np.flatnonzero(is_busy & ~np.isnan(power))
    if len(busy):
        models = _groups(peers.codes["model"][busy])
        enough = np.bincount(models)[models] >= _BUSY_PEERS_MIN
        median[busy] = np.where(enough, group_median(models, power[busy]), np.nan)
    return median


def hot(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Hotter than its power and its host explain, by more than GPUs of its model usually differ from that."""
    temperature, power = peers.measures["temperature"], peers.measures["power"]
    limit = thresholds.hot
    recent_power = np.where(_recent(peers, now_ms, thresholds), power, np.nan)
    heat = expected_heat(peers.codes["model"], peers.codes["hostname"], recent_power, temperature)
    # Idle GPUs differ by what surrounds them; below the floor no difference harms.
    stands_out = heat.stands_out(limit.excess_min_c) & (temperature >= limit.excess_from_c)
    bad = stands_out | (temperature >= limit.temperature_min_c)

    def evidence(gpu: int) -> str:
        above = f"; {heat.evidence(gpu, power[gpu])}" if stands_out[gpu] else ""
        return f"{temperature[gpu]:.0f} °C{above}"

    # One that is throttled has an alert for that.
    is_throttled = (peers.flags["throttled"] & HEAT_BIT) != 0
    known = peers.heard & ~np.isnan(temperature)
    return Finding(bad & ~is_throttled, known, temperature, evidence=evidence)


def straggler(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Behind the other GPUs of its job by more than they differ among themselves."""
    limit = thresholds.straggler
    clock = peers.measures["clock"]
    deficit = np.full(len(clock), np.nan)
    bad = np.zeros(len(clock), dtype=bool)
    # A job may have many pods; without one its pod's GPUs are its siblings.
    job, workload = peers.codes["job"], peers.codes["workload"]
    others = np.flatnonzero(~np.isnan(clock) & _recent(peers, now_ms, thresholds) & (workload != NO_TEXT))
    if len(others):
        jobs = _groups(np.where(job == NO_TEXT, workload, job)[others])
        middle = group_median(jobs, clock[others])
        behind = middle - clock[others]
        spread = np.maximum(_MAD_TO_SIGMA * group_median(jobs, np.abs(behind)), _SPREAD_MIN * middle)
        deficit[others] = behind / middle
        enough = np.bincount(jobs)[jobs] >= limit.siblings_min
        bad[others] = (
            enough
            & (behind / spread >= limit.robust_z_min)
            & (deficit[others] >= limit.clock_deficit_min_share)
        )
    # A known reason for a low clock has an alert of its own.
    is_held_down = (peers.flags["throttled"] & HELD_DOWN_BIT) != 0
    # One that does not work at all is idle, and its clock says nothing.
    works = peers.measures["util"] >= limit.gpu_util_min_percent
    return Finding(bad & works & ~is_held_down, peers.heard & ~np.isnan(clock), deficit)


def silent(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Judged for all, by the time of those that are not."""
    quiet_s = (now_ms - peers.seen_ms) / 1000.0
    # A GPU whose first step comes later in the batch is not silent before it.
    return Finding(quiet_s >= thresholds.silent.for_s, peers.seen_ms > 0, quiet_s)


def lemon_node(peers: Peers, now_ms: int, thresholds: Thresholds) -> Finding:
    """Judged for hosts; a host's first GPU stands for it."""
    limit = thresholds.lemon_node
    is_faulty = (peers.hardware_ms > 0) & (now_ms - peers.hardware_ms <= limit.within_s * 1000)
    _, first, host = np.unique(peers.codes["hostname"], return_index=True, return_inverse=True)
    count = np.bincount(host, weights=is_faulty, minlength=len(first))
    known = np.zeros(len(is_faulty), dtype=bool)
    known[first] = True
    return Finding(known & (count[host] >= limit.gpus_min), known, count[host].astype(np.float64))


FLEET_RULES: Final[dict[str, Rule]] = {
    "fake_busy": Rule(fake_busy, "warning", "profile the job: it keeps few multiprocessors busy"),
    "hot": Rule(hot, "warning", "check the cooling"),
    "straggler": Rule(straggler, "warning", "take the GPU out of the job"),
    "silent": Rule(
        silent,
        "critical",
        "check the exporter, the host, and whether the GPU is on the bus",
        looks_back=True,
    ),
    "lemon_node": Rule(lemon_node, "critical", "take the host out of service", is_of_host=True),
    "missing_gpu": Rule(
        missing_gpu, "warning", "check the host, and whether all its GPUs are on the bus", is_of_host=True
    ),
}
#: all rules, by name
RULES: Final = {**GPU_RULES, **FLEET_RULES}
