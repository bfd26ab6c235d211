"""Computes the metrics of all GPUs of a simulated fleet, tick by tick.

Load comes first; clocks, power, temperature, memory and counters follow from it. The figures are those of an
H200 as we captured one: about 75 W and 36 °C idle, 700 W and 62 °C at full load, 345 to 1980 MHz.

The load of all GPUs of a job varies together: they differ by about one percent, GPUs of different jobs by
much more. A straggler is visible because of this, and so the noise has one part per job and one per GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.simulate.faults import Fault, FaultClass
from penstock.telemetry.simulate.fleet import GPUS_PER_HOST, NO_JOB, Fleet, Floats, JobKind

__all__ = ["MEASURED", "Physics"]

#: the numbers of the fields that are measured, in the order of a tick's columns
MEASURED: Final = (
    *(100, 101, 112, 113, 140, 150, 155, 156, 157, 158, 164, 190, 202, 203, 204, 207, 230, 240, 241),
    *(250, 251, 252, 253, 310, 311, 312, 313, 393, 394, 395, 396, 449),
    *(1001, 1002, 1003, 1004, 1005, 1007, 1009, 1010),
)
assert all(number in FIELDS for number in MEASURED)

_CLOCK_IDLE, _CLOCK_MAX = 345.0, 1980.0
_POWER_FULL, _POWER_LIMIT = 680.0, 700.0
#: of single GPUs: they idle at different powers, and do the same work with more or less of it
_POWER_IDLE_SPREAD, _EFFICIENCY_SPREAD = (60.0, 110.0), 0.03
#: degrees at no power above the host's air, and per watt
_TEMP_BASE, _TEMP_PER_WATT = 32.0, 0.045
#: of hosts: their air, in degrees and at most so many, and their fans; of GPUs: their place in the host
_AIR_SPREAD, _AIR_MOST, _FANS_SPREAD, _PLACE_SPREAD = 2.5, 5.0, 0.05, 0.7
#: a GPU that is too hot is at least so hot: at less it does not matter
_TEMP_FAULTY = 62.0
_TEMP_SLOWDOWN = 87.0
#: seconds in which a temperature covers two thirds of its way
_TEMP_LAG_S = 20.0
_MEMORY_MIB, _RESERVED_MIB = 143_771.0, 615.0
_REASON_IDLE, _REASON_POWER_CAP, _REASON_THERMAL = 0x1, 0x4, 0x20
#: a notebook works in bursts; pauses of up to two minutes are healthy
_BURST_S, _PAUSE_S, _PAUSE_MAX_S = 60.0, 40.0, 120.0
#: corrected errors of a healthy GPU: one in ten days
_SBE_PER_S = 1.0 / 864_000
#: time constant of the load in seconds: two thirds of a deviation are gone after it
_NOISE_LAG_S = 120.0

_Active: TypeAlias = dict[FaultClass, list[tuple[int, Fault]]]


@dataclass(slots=True)
class _Now:
    """One tick in the making, by GPU."""

    #: how busy it looks, 0 to 1
    busy: Floats
    #: the share of its multiprocessors that work
    working: Floats
    clock: Floats
    power: Floats
    #: the share of the time in which power, or heat, holds its clock down
    capped: Floats
    slowed: Floats


class Physics:
    """The state of all GPUs; `step` advances it and returns the metrics."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        rng = self._rng = np.random.default_rng([seed, 2])
        self._fleet = fleet
        n = fleet.gpus
        self._job_noise: Floats = rng.normal(0, 1, len(fleet.jobs) + 1)
        self._own_noise: Floats = rng.normal(0, 1, n)
        air = rng.normal(0, _AIR_SPREAD, fleet.hosts).clip(-_AIR_MOST, _AIR_MOST)
        self._air: Floats = np.repeat(air, GPUS_PER_HOST) + rng.normal(0, _PLACE_SPREAD, n)
        fans = rng.normal(1, _FANS_SPREAD, fleet.hosts)
        self._per_watt: Floats = _TEMP_PER_WATT * np.repeat(fans, GPUS_PER_HOST)
        self._idle_w: Floats = rng.uniform(*_POWER_IDLE_SPREAD, n)
        self._per_work: Floats = rng.normal(1, _EFFICIENCY_SPREAD, n)
        #: jobs keep different shares of multiprocessors busy; the last one is for GPUs without a job
        self._training_work: Floats = rng.uniform(0.55, 0.92, len(fleet.jobs) + 1)
        self._inference_work: Floats = rng.uniform(0.45, 0.75, len(fleet.jobs) + 1)
        #: how much of its memory each GPU's job holds
        self._held: Floats = np.where(fleet.job_of == NO_JOB, 0.0, rng.uniform(0.35, 0.95, n))
        #: notebooks: seconds until the burst or the pause ends; pauses count from below zero
        self._burst: Floats = rng.uniform(1.0, _BURST_S, n)
        self._temperature: Floats = np.full(n, 36.0) + self._air
        self._energy: Floats = np.floor(rng.uniform(1e9, 4e12, n))
        self._power_violation: Floats = np.floor(rng.uniform(0, 1e12, n))
        self._thermal_violation: Floats = np.zeros(n)
        self._replays: Floats = rng.poisson(2.0, n).astype(np.float64)
        self._sbe: Floats = rng.poisson(0.5, n).astype(np.float64)
        self._sbe_before: Floats = rng.poisson(3.0, n).astype(np.float64)
        self._dbe: Floats = np.zeros(n)
        self._dbe_before: Floats = np.zeros(n)
        self._rows: Floats = np.zeros(n)
        #: GPUs with an XID at the last tick
        self._failing: frozenset[int] = frozenset()

    def step(self, dt_s: float, faults: Sequence[Fault]) -> Floats:
        """`dt_s` later, while `faults` are on: one row per GPU, one column per field of MEASURED."""
        active = _by_class(faults)
        failing = frozenset(gpu for gpu, _ in active.get(FaultClass.XID, ()))
        self._reset(self._failing - failing)
        self._failing = failing
        now = self._load(dt_s, active)
        self._hold_up(now, active)
        self._power(now, active)
        self._heat(dt_s, now, active)
        self._count(dt_s, now, active)
        columns = self._activity(now) | self._health(now, active)
        return np.column_stack([columns[number] for number in MEASURED])

    def _reset(self, gpus: Iterable[int]) -> None:
        """Reset a failed GPU at the end of its fault: counters since the driver's start begin again at 0."""
        for gpu in gpus:
            self._sbe_before[gpu] += self._sbe[gpu]
            self._dbe_before[gpu] += self._dbe[gpu]
            for counter in (self._energy, self._power_violation, self._thermal_violation, self._replays):
                counter[gpu] = 0.0
            self._sbe[gpu] = self._dbe[gpu] = 0.0

    def _load(self, dt_s: float, active: _Active) -> _Now:
        rng, fleet, n = self._rng, self._fleet, self._fleet.gpus
        fade = float(np.exp(-dt_s / _NOISE_LAG_S))
        fresh = float(np.sqrt(1 - fade**2))
        self._job_noise = fade * self._job_noise + fresh * rng.normal(0, 1, len(self._job_noise))
        self._own_noise = fade * self._own_noise + fresh * rng.normal(0, 1, n)
        shared, own = self._job_noise[fleet.job_of], self._own_noise
        self._burst -= dt_s
        over = self._burst < -(_PAUSE_S * (1.5 + own)).clip(10.0, _PAUSE_MAX_S)
        self._burst = np.where(over, _BURST_S * (1.2 + 0.3 * own).clip(0.5), self._burst)
        kind = fleet.kind_of
        training, inference = kind == JobKind.TRAINING, kind == JobKind.INFERENCE
        bursting = (kind == JobKind.NOTEBOOK) & (self._burst > 0)
        busy = np.zeros(n)
        busy = np.where(training, (0.97 + 0.015 * shared + 0.004 * own).clip(0.85, 1.0), busy)
        busy = np.where(inference, (0.55 + 0.12 * shared + 0.06 * own).clip(0.2, 0.95), busy)
        busy = np.where(bursting, (0.6 + 0.15 * own).clip(0.3, 1.0), busy)
        trained, inferred = self._training_work[fleet.job_of], self._inference_work[fleet.job_of]
        working = busy * np.where(training, trained, np.where(inference, inferred, 0.5))
        for gpu, _ in active.get(FaultClass.IDLE_OCCUPIED, ()):
            busy[gpu] = working[gpu] = 0.0
        for gpu, fault in active.get(FaultClass.FAKE_BUSY, ()):
            busy[gpu], working[gpu] = 1.0, 1.0 - fault.size
        clock = np.where(busy > 0, _CLOCK_MAX - 15.0 * np.abs(own).clip(0, 3), _CLOCK_IDLE)
        return _Now(busy, working, clock, np.zeros(n), np.zeros(n), np.zeros(n))

    def _hold_up(self, now: _Now, active: _Active) -> None:
        """A straggler works on at a lower clock, while its siblings look busy and wait for it."""
        pace = np.ones(len(now.busy))
        stragglers = active.get(FaultClass.STRAGGLER, ())
        for gpu, fault in stragglers:
            job = self._fleet.job(gpu)
            assert job is not None, "only a GPU with siblings can fall behind them"
            members = list(job.gpus)
            pace[members] = np.minimum(pace[members], 1.0 - fault.size)
        for gpu, fault in stragglers:
            pace[gpu] = 1.0
            now.clock[gpu] *= 1.0 - fault.size
        now.working *= pace

    def _power(self, now: _Now, active: _Active) -> None:
        own = self._own_noise
        spent = (_POWER_FULL - self._idle_w) * now.working * now.clock / _CLOCK_MAX * self._per_work
        now.power = self._idle_w + spent + 4.0 * own
        # Peaks touch the limit now and then on any GPU that works hard.
        now.capped = np.where(now.working > 0.8, (0.004 * (1.5 + own)).clip(0.0, 0.02), 0.0)
        for gpu, fault in active.get(FaultClass.POWER_THROTTLE, ()):
            now.capped[gpu] = fault.size
            now.power[gpu] = _POWER_LIMIT - 2.0
        now.power = now.power.clip(60.0, _POWER_LIMIT + 5.0)
        now.clock = now.clock * (1.0 - 0.4 * now.capped)

    def _heat(self, dt_s: float, now: _Now, active: _Active) -> None:
        goal = _TEMP_BASE + self._per_watt * now.power + self._air
        for gpu, fault in active.get(FaultClass.HOT, ()):
            hotter = max(float(goal[gpu]), _TEMP_FAULTY) + fault.size
            goal[gpu] = min(hotter, _TEMP_SLOWDOWN - 2.0)
        for gpu, fault in active.get(FaultClass.THERMAL_THROTTLE, ()):
            goal[gpu] = _TEMP_SLOWDOWN + 3.0 * fault.size
            now.slowed[gpu] = fault.size
        self._temperature += (goal - self._temperature) * (1.0 - float(np.exp(-dt_s / _TEMP_LAG_S)))
        now.clock = now.clock * (1.0 - 0.5 * now.slowed)

    def _count(self, dt_s: float, now: _Now, active: _Active) -> None:
        rng, n = self._rng, self._fleet.gpus
        self._energy += np.floor(now.power * dt_s * 1000.0)
        self._power_violation += np.floor(now.capped * dt_s * 1e9)
        self._thermal_violation += np.floor(now.slowed * dt_s * 1e9)
        self._replays += rng.random(n) < dt_s / 86_400
        self._sbe += rng.random(n) < _SBE_PER_S * dt_s
        for gpu, fault in active.get(FaultClass.ECC, ()):
            errors = float(rng.poisson(fault.size * dt_s / 60.0))
            if fault.detail["errors"] == "uncorrectable":
                self._dbe[gpu] += errors if self._dbe[gpu] else max(errors, 1.0)
            else:
                self._sbe[gpu] += errors
        for gpu, fault in active.get(FaultClass.ROW_REMAP, ()):
            self._rows[gpu] = max(float(self._rows[gpu]), fault.size)

    def _activity(self, now: _Now) -> dict[int, Floats]:
        """Clocks, utilisation, memory and traffic."""
        working, full = now.working, np.ones(self._fleet.gpus)
        training = self._fleet.kind_of == JobKind.TRAINING
        used = np.floor(self._held * (_MEMORY_MIB - _RESERVED_MIB))
        dram = 0.65 * working
        return {
            100: np.round(now.clock / 15.0) * 15.0,
            101: 3201.0 * full,
            113: _CLOCK_MAX * full,
            190: 0.0 * full,
            203: np.round(100.0 * now.busy),
            204: np.round(100.0 * dram),
            207: 0.0 * full,
            250: _MEMORY_MIB * full,
            251: _MEMORY_MIB - _RESERVED_MIB - used,
            252: used,
            253: _RESERVED_MIB * full,
            449: np.round(400_000.0 * np.where(training, working, 0.05 * working)),
            1001: np.round(now.busy, 4),
            1002: np.round(working, 4),
            1003: np.round(0.45 * working, 4),
            1004: np.round(np.where(training, 0.7, 0.1) * working, 4),
            1005: np.round(dram, 4),
            1007: np.round(0.2 * working, 4),
            1009: np.round(2e9 * working),
            1010: np.round(5e9 * working),
        }

    def _health(self, now: _Now, active: _Active) -> dict[int, Floats]:
        """Power, temperature, and error counters."""
        n = self._fleet.gpus
        full, xid, pending, failure = np.ones(n), np.zeros(n), np.zeros(n), np.zeros(n)
        for gpu, fault in active.get(FaultClass.XID, ()):
            xid[gpu] = float(fault.detail["xid"])
        for gpu, fault in active.get(FaultClass.ROW_REMAP, ()):
            pending[gpu], failure[gpu] = 1.0, float(fault.detail["failure"])
        reasons = (
            np.where(now.busy == 0, _REASON_IDLE, 0)
            | np.where(now.capped > 0.02, _REASON_POWER_CAP, 0)
            | np.where(now.slowed > 0, _REASON_THERMAL, 0)
        )
        return {
            112: reasons.astype(np.float64),
            140: np.round(0.7 * self._temperature + 11.0),
            150: np.round(self._temperature),
            155: np.round(now.power, 2),
            156: self._energy,
            157: np.round(now.power * (1.0 + 0.01 * self._own_noise), 2),
            158: _TEMP_SLOWDOWN * full,
            164: _POWER_LIMIT * full,
            202: self._replays,
            230: xid,
            240: self._power_violation,
            241: self._thermal_violation,
            310: self._sbe,
            311: self._dbe,
            312: self._sbe_before + self._sbe,
            313: self._dbe_before + self._dbe,
            393: self._rows,
            394: 0.0 * full,
            395: failure,
            396: pending,
        }


def _by_class(faults: Sequence[Fault]) -> _Active:
    grouped: _Active = {}
    for fault in faults:
        if fault.gpu is not None:  # a lemon's own fault is those of its GPUs
            grouped.setdefault(fault.fault_class, []).append((fault.gpu, fault))
    return grouped
