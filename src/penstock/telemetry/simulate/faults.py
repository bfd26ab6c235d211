"""The faults of a simulated fleet, with time and size: the ground truth.

Faults are drawn per period, within which they begin and end, so that a run without an end has an endless
supply of them. In one period a GPU has at most one fault; a lemon node is a host whose GPUs have many
together. Sizes vary from obvious to the variation of a healthy GPU; the latter have `within_noise`, because
no detector can find them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from penstock.telemetry.message import format_timestamp
from penstock.telemetry.simulate.fleet import GPUS_PER_HOST, Fleet, JobKind

__all__ = ["Fault", "FaultClass", "Plan", "as_label", "plan_faults"]


class FaultClass(StrEnum):
    """A kind of fault. The comment has the unit of `size`."""

    STRAGGLER = "straggler"  # share of its clock that a GPU of a training job has lost
    THERMAL_THROTTLE = "thermal_throttle"  # share of the time that clocks are held down
    POWER_THROTTLE = "power_throttle"  # likewise
    HOT = "hot"  # degrees Celsius above what its load explains, at least
    XID = "xid"  # 1; `detail` has the code
    ECC = "ecc"  # errors per minute; `detail` says which
    ROW_REMAP = "row_remap"  # rows that were remapped
    SILENT = "silent"  # seconds without a sample
    FAKE_BUSY = "fake_busy"  # share of its multiprocessors that a GPU at 100 % leaves unused
    IDLE_OCCUPIED = "idle_occupied"  # seconds in which a job holds a GPU and does nothing with it
    LEMON_NODE = "lemon_node"  # faults of the host's GPUs
    MISSING_GPU = "missing_gpu"  # GPUs of the host that are gone


#: Smaller faults do not stand out from the noise of healthy GPUs.
NOISE: Final = {
    FaultClass.STRAGGLER: 0.05,
    FaultClass.THERMAL_THROTTLE: 0.05,
    FaultClass.POWER_THROTTLE: 0.05,
    FaultClass.HOT: 10.0,
    FaultClass.ECC: 2.0,
    FaultClass.FAKE_BUSY: 0.8,
}
_BUSY: Final = (JobKind.TRAINING,)
_JOBS: Final = (JobKind.TRAINING, JobKind.INFERENCE, JobKind.NOTEBOOK)
_ANY: Final = tuple(JobKind)
#: which GPUs can have it: a straggler needs other GPUs of its job, and only a busy GPU is throttled
_ELIGIBLE: Final = {
    FaultClass.STRAGGLER: _BUSY,
    FaultClass.THERMAL_THROTTLE: _BUSY,
    FaultClass.POWER_THROTTLE: _BUSY,
    FaultClass.HOT: _ANY,
    FaultClass.XID: _ANY,
    FaultClass.ECC: _ANY,
    FaultClass.ROW_REMAP: _ANY,
    FaultClass.SILENT: _ANY,
    FaultClass.FAKE_BUSY: _JOBS,
    FaultClass.IDLE_OCCUPIED: _JOBS,
}
#: the range from which a size is drawn, evenly on a logarithmic scale
_SIZES: Final = {
    FaultClass.STRAGGLER: (0.03, 0.5),
    FaultClass.THERMAL_THROTTLE: (0.03, 0.9),
    FaultClass.POWER_THROTTLE: (0.03, 0.9),
    FaultClass.HOT: (6.0, 25.0),
    FaultClass.ECC: (1.0, 60.0),
    FaultClass.ROW_REMAP: (1.0, 8.0),
    FaultClass.FAKE_BUSY: (0.7, 0.98),
}
#: application's fault, memory, row remapper, NVLink, fallen off the bus, contained and uncontained errors
_XIDS: Final = (13, 31, 48, 63, 64, 74, 79, 94, 95, 119)
_LEMON_XIDS: Final = (48, 74, 79, 94, 119)
#: one host in this many is a lemon
_HOSTS_PER_LEMON: Final = 64
_LEMON_EVENTS: Final = (4, 8)
#: one host in this many disappears
_HOSTS_PER_VANISHED: Final = 64
_VANISHED_FROM_HOSTS: Final = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault from `start_s` until `end_s` of a run; without a `gpu` it affects the whole host."""

    fault_class: FaultClass
    gpu: int | None
    host: int
    start_s: float
    end_s: float
    size: float
    detail: dict[str, int | str] = field(default_factory=dict)

    @property
    def within_noise(self) -> bool:
        return self.size < NOISE.get(self.fault_class, 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many faults to draw, and over how long."""

    seed: int
    period_s: float = 3600.0
    #: GPUs of each class and period, as a share of the fleet; at least one if the share is above 0
    share: float = 0.005

    def faults(self, fleet: Fleet) -> Iterator[list[Fault]]:
        """The faults of one period after the other, without end."""
        number = 0
        while True:
            yield plan_faults(fleet, self, number)
            number += 1


def plan_faults(fleet: Fleet, plan: Plan, number: int) -> list[Fault]:
    """The faults of period `number`, in the order in which they start."""
    if plan.share <= 0:
        return []
    rng = np.random.default_rng([plan.seed, 1, number])
    begin = number * plan.period_s
    faults: list[Fault] = []
    lemons = _lemons(fleet, rng)
    for host in lemons:
        faults += _lemon_faults(fleet, host, begin, plan.period_s, rng)
    vanished = _vanished(fleet, lemons, rng)
    for host in vanished:
        faults += _vanish(host, begin, plan.period_s, rng)
    spared = {gpu for host in (*lemons, *vanished) for gpu in _gpus_of(host)}
    waiting: set[int] = set()
    # In a small fleet the classes that few GPUs can have come first.
    for fault_class, kinds in _ELIGIBLE.items():
        # GPUs that wait for a straggler must not be detected as another fault by their load.
        taken = spared if kinds is _ANY else spared | waiting
        free = [int(g) for g in np.flatnonzero(np.isin(fleet.kind_of, kinds)) if int(g) not in taken]
        count = min(len(free), max(1, round(plan.share * fleet.gpus)))
        for gpu in rng.choice(free, count, replace=False) if count else ():
            faults.append(_draw(fault_class, int(gpu), begin, plan.period_s, rng))
            spared.add(int(gpu))
            if fault_class is FaultClass.STRAGGLER:
                waiting.update(_siblings(fleet, int(gpu)))
    faults += _missing(faults)
    return sorted(faults, key=lambda fault: (fault.start_s, fault.host, fault.gpu or 0))


def _gpus_of(host: int) -> range:
    return range(host * GPUS_PER_HOST, (host + 1) * GPUS_PER_HOST)


def _vanished(fleet: Fleet, lemons: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Hosts that disappear with all their GPUs; none in small fleets."""
    count = round(fleet.hosts / _HOSTS_PER_VANISHED) or (1 if fleet.hosts >= _VANISHED_FROM_HOSTS else 0)
    free = [host for host in range(1, fleet.hosts) if host not in lemons]
    return sorted(int(host) for host in rng.choice(free, count, replace=False)) if count else []


def _vanish(host: int, begin: float, period_s: float, rng: np.random.Generator) -> list[Fault]:
    start = begin + period_s * float(rng.uniform(0.1, 0.4))
    length = period_s * float(rng.uniform(0.2, 0.5))
    return [
        Fault(FaultClass.SILENT, gpu, host, start, start + length, round(length, 4)) for gpu in _gpus_of(host)
    ]


def _missing(faults: Sequence[Fault]) -> list[Fault]:
    """A host lacks its GPUs while they are silent: one fault of the host from the first to the last."""
    by_host: dict[int, list[Fault]] = {}
    for fault in faults:
        if fault.fault_class is FaultClass.SILENT:
            by_host.setdefault(fault.host, []).append(fault)
    return [
        Fault(
            FaultClass.MISSING_GPU,
            None,
            host,
            min(fault.start_s for fault in own),
            max(fault.end_s for fault in own),
            float(len(own)),
        )
        for host, own in by_host.items()
    ]


def _siblings(fleet: Fleet, gpu: int) -> Sequence[int]:
    job = fleet.job(gpu)
    return () if job is None else job.gpus[: 2 * GPUS_PER_HOST]


def _draw(
    fault_class: FaultClass, gpu: int, begin: float, period_s: float, rng: np.random.Generator
) -> Fault:
    start = begin + period_s * float(rng.uniform(0.1, 0.4))
    length = period_s * float(np.exp(rng.uniform(np.log(0.2), np.log(0.5))))
    size = 1.0
    detail: dict[str, int | str] = {}
    if fault_class in (FaultClass.SILENT, FaultClass.IDLE_OCCUPIED):
        size = length
    elif fault_class in _SIZES:
        low, high = _SIZES[fault_class]
        size = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    if fault_class is FaultClass.XID:
        detail = {"xid": int(rng.choice(_XIDS))}
    elif fault_class is FaultClass.ECC:
        uncorrectable = bool(rng.random() < 0.3)
        detail = {"errors": "uncorrectable" if uncorrectable else "corrected"}
        size = max(size, NOISE[FaultClass.ECC]) if uncorrectable else size
    elif fault_class is FaultClass.ROW_REMAP:
        size = float(round(size))
        detail = {"failure": int(rng.random() < 0.3)}
    return Fault(fault_class, gpu, gpu // GPUS_PER_HOST, start, start + length, round(size, 4), detail)


def _lemons(fleet: Fleet, rng: np.random.Generator) -> list[int]:
    """A few hosts; none where there are so few that one would be the whole fleet."""
    count = round(fleet.hosts / _HOSTS_PER_LEMON) or (1 if fleet.hosts >= 4 else 0)
    # Never the first host: the smallest fleets need it for the other classes.
    return (
        sorted(int(host) for host in rng.choice(np.arange(1, fleet.hosts), count, replace=False))
        if count
        else []
    )


def _lemon_faults(
    fleet: Fleet, host: int, begin: float, period_s: float, rng: np.random.Generator
) -> list[Fault]:
    """A lemon fails again and again, now this GPU and now that: one fault for itself, and one for each."""
    count = int(rng.integers(*_LEMON_EVENTS, endpoint=True))
    gpus = rng.choice(GPUS_PER_HOST, count, replace=False) + host * GPUS_PER_HOST
    codes = rng.choice(_LEMON_XIDS, count)
    starts = begin + period_s * np.sort(rng.uniform(0.1, 0.6, count))
    end = begin + period_s * 0.9
    events = [
        Fault(FaultClass.XID, int(gpu), host, float(start), end, 1.0, {"xid": int(code), "lemon": 1})
        for gpu, code, start in zip(gpus, codes, starts, strict=True)
    ]
    return [Fault(FaultClass.LEMON_NODE, None, host, float(starts[0]), end, float(count)), *events]


def as_label(fault: Fault, fleet: Fleet, start_ms: int) -> dict[str, object]:
    """A fault as the file of ground truth has it."""
    job = None if fault.gpu is None else fleet.job(fault.gpu)
    return {
        "fault": fault.fault_class.value,
        "gpu_id": None if fault.gpu is None else fleet.uuids[fault.gpu],
        "hostname": fleet.hostnames[fault.host],
        "job": None if job is None else job.name,
        "start": format_timestamp(start_ms + round(fault.start_s * 1000)),
        "end": format_timestamp(start_ms + round(fault.end_s * 1000)),
        "size": fault.size,
        "within_noise": fault.within_noise,
        "detail": fault.detail,
    }


def label_lines(faults: Iterable[Fault], fleet: Fleet, start_ms: int) -> str:
    """JSON lines, one for each fault."""
    return "".join(json.dumps(as_label(fault, fleet, start_ms)) + "\n" for fault in faults)
