"""All rules over one fleet, as one task and the driver run them, and how many simulated faults they find.

    python -m tests.telemetry.pipeline.detecting [HOSTS [SEED...]]

prints recall and precision on seeds that were not used to choose thresholds, and fails below the recall or
precision that is required. `make detectors` runs it. Without arguments it also writes docs/detectors.json,
the result file of a table of docs/pipeline.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.detectors import Alert, FleetDetectors, GpuDetectors, in_order
from penstock.telemetry.pipeline.detectors.features import FEATURES, FEATURES_SCHEMA
from penstock.telemetry.simulate.faults import Fault, FaultClass, Plan, plan_faults
from penstock.telemetry.simulate.fleet import Fleet, build_fleet
from penstock.telemetry.simulate.physics import MEASURED, Physics
from penstock.telemetry.thresholds import Thresholds, load_thresholds

__all__ = ["HELD_OUT", "READ_MS", "START_MS", "Detectors", "Score", "scores"]

START_MS = 1_800_000_000_000
#: when all samples are read
READ_MS = START_MS + 3_600_000
#: not used to choose thresholds
HELD_OUT = (101, 102, 103, 104, 105)
RECALL_MIN, PRECISION_MIN = 0.95, 0.9
_HOSTS = 250
_RESULTS = Path(__file__).parents[3] / "docs" / "detectors.json"
#: from the start of a fault's effect to its last trace
BEFORE_MS, AFTER_MS = 20_000, 130_000
_STEP_S, _HOUR_S = 10, 3600
#: steps of a batch: five minutes
_BATCH_STEPS = 30


class Detectors:
    """Both parts of the detectors; `kept` is what a later object continues from."""

    def __init__(self, thresholds: Thresholds, kept: tuple[Any, Any] = (None, None)) -> None:
        self._gpus = GpuDetectors(thresholds, kept[0])
        self._fleet = FleetDetectors(thresholds, kept[1])

    def advance(self, features: Any, since_ms: int, until_ms: int) -> list[Alert]:
        """Take rows of FEATURES_SCHEMA, as a batch does."""
        judged = self._gpus.advance(features)
        signals = judged.signals.unify_dictionaries()
        return in_order(judged.alerts + self._fleet.advance(signals, judged.alerts, since_ms, until_ms))

    @property
    def kept(self) -> tuple[Any, Any]:
        return self._gpus.memory.to_table(), self._fleet.peers.to_table()


class Score(NamedTuple):
    """Of a class: faults that stand out of the noise and were found, and alerts that a fault explains."""

    found: int = 0
    faults: int = 0
    right: int = 0
    alerts: int = 0

    @property
    def recall(self) -> float:
        return self.found / max(self.faults, 1)

    @property
    def precision(self) -> float:
        return self.right / max(self.alerts, 1)

    def plus(self, *counts: int) -> Score:
        return Score(*(own + more for own, more in zip(self, counts, strict=True)))


def scores(seeds: Iterable[int], hosts: int, without: tuple[int, ...] = ()) -> dict[str, Score]:
    """The score of each fault class, on an hour for each seed. Fields in `without` are missing."""
    found = dict.fromkeys(FaultClass, Score())
    for seed in seeds:
        fleet, faults, alerts = _simulated(seed, hosts, without)
        opened = [alert for alert in alerts if alert.state == "open"]
        for fault in faults:
            if not fault.within_noise:
                hit = any(_explains(fault, alert, fleet) for alert in opened)
                found[fault.fault_class] = found[fault.fault_class].plus(hit, 1, 0, 0)
        for alert in opened:
            right = any(_explains(fault, alert, fleet) for fault in faults)
            rule = FaultClass(alert.rule)
            found[rule] = found[rule].plus(0, 0, right, 1)
    return {each.value: score for each, score in found.items()}


def _simulated(seed: int, hosts: int, without: tuple[int, ...]) -> tuple[Fleet, list[Fault], list[Alert]]:
    """An hour of a fleet, from physics to alerts, in batches of five minutes."""
    fleet = build_fleet(hosts, seed)
    faults = plan_faults(fleet, Plan(seed), 0)
    detectors, alerts = Detectors(load_thresholds()), list[Alert]()
    steps = list(_steps(fleet, faults, seed, without))
    for first in range(0, len(steps), _BATCH_STEPS):
        batch = pa.concat_tables(steps[first : first + _BATCH_STEPS])
        alerts += detectors.advance(batch, READ_MS, READ_MS)
    return fleet, faults, alerts


def _steps(fleet: Fleet, faults: list[Fault], seed: int, without: tuple[int, ...]) -> Iterator[Any]:
    """Rows of FEATURES_SCHEMA, step by step."""
    physics = Physics(fleet, seed)
    measured = [field for field in FEATURES if field in MEASURED and field not in without]
    sources, places = [MEASURED.index(each) for each in measured], [FEATURES.index(each) for each in measured]
    jobs = [job.name if job is not None else None for job in map(fleet.job, range(fleet.gpus))]
    hosts = [fleet.hostnames[gpu // 8] for gpu in range(fleet.gpus)]
    models, pods = ["NVIDIA H200"] * fleet.gpus, [None] * fleet.gpus
    columns = (fleet.uuids, hosts, pods, pods, models, jobs, jobs, pods)
    about = [pa.array(list(each), pa.string()) for each in columns]
    for second in range(0, _HOUR_S, _STEP_S):
        active = [fault for fault in faults if fault.start_s <= second < fault.end_s]
        values = np.full((fleet.gpus, len(FEATURES)), np.nan)
        values[:, places] = physics.step(float(_STEP_S), active)[:, sources]
        heard = np.ones(fleet.gpus, dtype=bool)
        for fault in active:
            if fault.fault_class is FaultClass.SILENT and fault.gpu is not None:
                heard[fault.gpu] = False
        times = [np.full(np.count_nonzero(heard), START_MS + second * 1000)] * 2
        names = [each.filter(pa.array(heard)) for each in about]
        yield pa.table([*times, *names, *values[heard].T], schema=FEATURES_SCHEMA)


def _explains(fault: Fault, alert: Alert, fleet: Fleet) -> bool:
    subject = fleet.hostnames[fault.host] if fault.gpu is None else fleet.uuids[fault.gpu]
    at_ms = alert.at_ms - START_MS
    is_then = fault.start_s * 1000 - BEFORE_MS <= at_ms <= fault.end_s * 1000 + AFTER_MS
    return alert.subject == subject and alert.rule == fault.fault_class.value and is_then


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a class is below what is required."""
    hosts = int(arguments[0]) if arguments else _HOSTS
    seeds = [int(each) for each in arguments[1:]] or HELD_OUT
    found = scores(seeds, hosts)
    print(f"{hosts * 8:,} GPUs, an hour each, seeds {', '.join(map(str, seeds))}")
    print("| class | found | of faults | right | of alerts |\n|---|---|---|---|---|")
    for name, score in found.items():
        print(f"| {name} | {' | '.join(map(str, score))} |")
    if not arguments:
        results = {"gpus": hosts * 8, "seeds": seeds, "classes": found}
        _RESULTS.write_text(json.dumps(results) + "\n", encoding="utf-8")
    low = [
        name
        for name, score in found.items()
        if score.recall < RECALL_MIN or (score.alerts and score.precision < PRECISION_MIN)
    ]
    if low:
        print(f"below a recall of {RECALL_MIN} or a precision of {PRECISION_MIN}: {', '.join(low)}")
    return int(bool(low))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
