"""The part of the detectors that runs in tasks: rules of single GPUs, and signals for all other rules."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import ABOUT, FEATURES, column_of
from penstock.telemetry.pipeline.detectors.gpu_rules import (
    GPU_RULES,
    busy_share,
    straggler_clock,
    throttled_bits,
)
from penstock.telemetry.pipeline.detectors.incidents import Alert, Subject, changes
from penstock.telemetry.pipeline.detectors.memory import Memory
from penstock.telemetry.pipeline.tables import TEXT
from penstock.telemetry.thresholds import Thresholds

__all__ = ["SIGNALS", "GpuDetectors", "Signalled"]

_TEMP, _POWER, _UTIL = (column_of(each) for each in (150, 155, 203))
_NAMES: Final = ("gpu_id", *ABOUT)
_MEASURES: Final = ("temperature", "power", "clock", "util", "busy_share")
#: The row of one GPU and step that rules across GPUs get from the executors.
SIGNALS: Final = pa.schema(
    [
        ("step", pa.int64()),
        ("at", pa.int64()),
        *((name, TEXT) for name in _NAMES),
        *((name, pa.float64()) for name in _MEASURES),
        # what `busy_share` is a share of, and bits for throttled GPUs: see `gpu_rules`
        ("busy_source", pa.int8()),
        ("throttled", pa.int8()),
    ]
)


class Signalled(NamedTuple):
    """Alerts of single GPUs, and signals for the fleet."""

    alerts: list[Alert]
    signals: Any


class GpuDetectors:
    """The rules of single GPUs over the GPUs of a task. `memory` is all that they remember.

    A GPU is judged at the time of its own samples.
    """

    __slots__ = ("_thresholds", "memory")

    def __init__(self, thresholds: Thresholds, remembered: Any | None = None) -> None:
        self._thresholds = thresholds
        rules = tuple(GPU_RULES)
        self.memory = Memory(rules) if remembered is None else Memory.from_table(remembered, rules)

    def advance(self, features: Any) -> Signalled:
        """Take rows of FEATURES_SCHEMA, step by step."""
        if not len(features):
            return Signalled([], SIGNALS.empty_table())
        features = features.sort_by([("step", "ascending")])
        steps = features["step"].to_numpy()
        matrix = np.column_stack([features[str(each)].to_numpy() for each in FEATURES])
        about = {name: features[name].to_pylist() for name in _NAMES}
        alerts, measured = [], []
        for rows in np.split(np.arange(len(steps)), np.flatnonzero(np.diff(steps)) + 1):
            step_ms = int(steps[rows[0]])
            named = {name: column[rows[0] : rows[-1] + 1] for name, column in about.items()}
            whose = self.memory.hear(step_ms, named, matrix[rows], self._thresholds)
            alerts += self._judge(step_ms)
            measured.append(self._signals(whose))
        columns = [np.concatenate(parts) for parts in zip(*measured, strict=True)]
        texts = [features[name].combine_chunks().dictionary_encode() for name in _NAMES]
        times = [features["step"], features["at"]]
        return Signalled(alerts, pa.table([*times, *texts, *columns], schema=SIGNALS))

    def _judge(self, step_ms: int) -> list[Alert]:
        memory, alerts = self.memory, []
        for number, (name, rule) in enumerate(GPU_RULES.items()):
            finding = rule.judge(memory, self._thresholds)
            alerts += changes(name, memory.held[:, number], finding, step_ms, self._thresholds, self._subject)
        return alerts

    def _subject(self, gpu: int) -> Subject:
        memory = self.memory
        return Subject(
            memory.gpu_ids[gpu],
            memory.hostnames[gpu],
            memory.devices[gpu],
            memory.pci_bus_ids[gpu],
            memory.workloads[gpu],
            memory.jobs[gpu],
            memory.pods[gpu],
        )

    def _signals(self, whose: Ints) -> list[Any]:
        """The columns of SIGNALS after the texts, for these GPUs."""
        smooth = self.memory.smooth
        share, source = busy_share(self.memory)
        measures = (
            smooth[:, _TEMP],
            smooth[:, _POWER],
            straggler_clock(self.memory),
            smooth[:, _UTIL],
            share,
        )
        columns = [*measures, source, throttled_bits(self.memory, self._thresholds)]
        return [column[whose] for column in columns]
