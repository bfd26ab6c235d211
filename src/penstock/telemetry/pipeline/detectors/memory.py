"""The state of the rules that look at one GPU: last values, smoothed values and rates, and open alerts.

One row of every array is one GPU, in the order of their first samples. Values that were never
measured are NaN. Times are milliseconds of the samples' own time, 0 for never.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import COUNTERS, FEATURES, LAST_CODES, column_of
from penstock.telemetry.thresholds import Thresholds

__all__ = ["BAD", "GOOD", "OPEN", "Memory", "forget_silence", "held_of", "lists", "rules_metadata"]

#: of `held`: bad since, good since while an alert is open, and open since
BAD, GOOD, OPEN = range(3)

_SBE: Final = column_of(310)
_FEATURES_KEY, _RULES_KEY = b"features", b"rules"
_TEXTS: Final = ("hostname", "device", "pci_bus_id", "model", "workload", "job", "pod")


class Memory:
    """Arrays over the GPUs of a task. `hear` changes them, and is the only one to do so besides incidents."""

    __slots__ = (
        "corrected",
        "devices",
        "gained",
        "gpu_ids",
        "heard",
        "held",
        "hostnames",
        "jobs",
        "last",
        "models",
        "number_of",
        "pci_bus_ids",
        "pods",
        "rules",
        "seen_ms",
        "smooth",
        "workloads",
    )

    def __init__(self, rules: tuple[str, ...]) -> None:
        self.rules = rules
        self.gpu_ids: list[str] = []
        self.number_of: dict[str, int] = {}
        self.hostnames: list[str] = []
        self.devices: list[str | None] = []
        self.pci_bus_ids: list[str | None] = []
        self.models: list[str | None] = []
        self.workloads: list[str | None] = []
        self.jobs: list[str | None] = []
        self.pods: list[str | None] = []
        self.seen_ms = np.zeros(0, dtype=np.int64)
        self.last = np.zeros((0, len(FEATURES)))
        #: gauges as they are and counters as rates per second, smoothed
        self.smooth = np.zeros((0, len(FEATURES)))
        #: in this step: what counters have gained, and 1 for a last code that has changed to another
        self.gained = np.zeros((0, len(FEATURES)))
        #: corrected memory errors per second, smoothed over their own time
        self.corrected = np.zeros(0)
        #: whether a GPU has a sample in this step
        self.heard = np.zeros(0, dtype=bool)
        #: by rule: BAD, GOOD and OPEN since; 0 where it is not so
        self.held = np.zeros((0, len(rules), 3), dtype=np.int64)

    def hear(self, step_ms: int, about: dict[str, list[Any]], values: Any, thresholds: Thresholds) -> Ints:
        """Take one step's rows, except those that are older than their GPU's last; the GPU of each row."""
        smoothing_s, corrected_s = thresholds.smoothing_s, thresholds.ecc.corrected_smoothing_s
        whose = self._number(about)
        is_news = self.seen_ms[whose] <= step_ms
        numbers, values = whose[is_news], values[is_news]
        self.gained[:] = 0.0
        self.heard[:] = False
        self.heard[numbers] = True
        before_ms = self.seen_ms[numbers]
        elapsed_s = np.where(before_ms > 0, (step_ms - before_ms) / 1000.0, np.nan)[:, None]
        forget_silence(self.held, numbers[elapsed_s[:, 0] > thresholds.stale_s])
        last = self.last[numbers]
        # One that falls was reset, or came out of order: then it is not known what it has gained.
        gained = np.maximum(values - last, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The rest of a step that came in two parts has no length of its own.
            rate = np.where(elapsed_s > 0, gained / elapsed_s, np.nan)
        has_changed = (values != last) & (values != 0) & ~np.isnan(values + last)
        self.gained[numbers] = np.where(
            COUNTERS, np.nan_to_num(gained), np.where(LAST_CODES, has_changed, 0.0)
        )
        now = np.where(COUNTERS, rate, values)
        self.smooth[numbers] = _eased(self.smooth[numbers], now, elapsed_s, smoothing_s)
        corrected = now[:, _SBE]
        # From zero, so that one error of a new GPU does not count as many.
        self.corrected[numbers] = _eased(self.corrected[numbers], corrected, elapsed_s[:, 0], corrected_s)
        self.last[numbers] = np.where(np.isnan(values), last, values)
        self.seen_ms[numbers] = np.maximum(before_ms, step_ms)
        return whose

    def _number(self, about: dict[str, list[Any]]) -> Ints:
        numbers = np.empty(len(about["gpu_id"]), dtype=np.int64)
        for row, gpu_id in enumerate(about["gpu_id"]):
            number = self.number_of.setdefault(gpu_id, len(self.gpu_ids))
            if number == len(self.gpu_ids):
                self.gpu_ids.append(gpu_id)
                self.hostnames.append("")
                for texts in (self.devices, self.pci_bus_ids, self.models):
                    texts.append(None)
                for texts in (self.workloads, self.jobs, self.pods):
                    texts.append(None)
            self.hostnames[number] = about["hostname"][row] or ""
            self.devices[number] = about["device"][row] or self.devices[number]
            self.pci_bus_ids[number] = about["pci_bus_id"][row] or self.pci_bus_ids[number]
            self.models[number] = about["model"][row] or self.models[number]
            self.workloads[number] = about["workload"][row]
            self.jobs[number] = about["job"][row]
            self.pods[number] = about["pod"][row]
            numbers[row] = number
        self._grow(len(self.gpu_ids))
        return numbers

    def _grow(self, size: int) -> None:
        more = size - len(self.seen_ms)
        if more:
            unknown = np.full((more, len(FEATURES)), np.nan)
            self.seen_ms = np.append(self.seen_ms, np.zeros(more, dtype=np.int64))
            self.last = np.concatenate([self.last, unknown])
            self.smooth = np.concatenate([self.smooth, unknown])
            self.gained = np.concatenate([self.gained, np.zeros_like(unknown)])
            self.heard = np.append(self.heard, np.zeros(more, dtype=bool))
            self.corrected = np.append(self.corrected, np.zeros(more))
            self.held = np.concatenate([self.held, np.zeros((more, len(self.rules), 3), dtype=np.int64)])

    def to_table(self) -> Any:
        """The state to store. `gained` and `heard` belong to one step and are not stored."""
        columns = {
            "gpu_id": pa.array(self.gpu_ids, pa.string()),
            **{name: pa.array(getattr(self, f"{name}s"), pa.string()) for name in _TEXTS},
            "seen_ms": pa.array(self.seen_ms),
            "last": lists(self.last),
            "smooth": lists(self.smooth),
            "corrected": pa.array(self.corrected),
            "held": lists(self.held),
        }
        metadata = {_FEATURES_KEY: json.dumps(FEATURES), **rules_metadata(self.rules)}
        return pa.table(columns, metadata=metadata)

    @classmethod
    def from_table(cls, table: Any, rules: tuple[str, ...]) -> Memory:
        """The stored state. A field or a rule that the state does not have is as if never seen."""
        memory = cls(rules)
        memory.gpu_ids = table["gpu_id"].to_pylist()
        memory.number_of = {gpu_id: number for number, gpu_id in enumerate(memory.gpu_ids)}
        for name in _TEXTS:
            is_kept = name in table.column_names  # the state of an older version may lack some
            setattr(memory, f"{name}s", table[name].to_pylist() if is_kept else [None] * len(table))
        memory._grow(len(memory.gpu_ids))
        kept = json.loads(table.schema.metadata[_FEATURES_KEY])
        for name in ("last", "smooth"):
            found, stored = getattr(memory, name), _matrix(table[name], len(memory.gpu_ids), len(kept))
            for place, field in enumerate(kept):
                if field in FEATURES:
                    found[:, column_of(field)] = stored[:, place]
        memory.seen_ms = table["seen_ms"].to_numpy().copy()
        memory.corrected = table["corrected"].to_numpy().copy()
        memory.held = held_of(table, rules)
        return memory


def forget_silence(held: Any, gpus: Ints) -> None:
    """Nothing is known of GPUs that are heard again: what was not yet an alert begins anew."""
    waits = held[gpus, :, OPEN] == 0
    held[gpus, :, BAD] = np.where(waits, 0, held[gpus, :, BAD])


def rules_metadata(rules: tuple[str, ...]) -> dict[bytes, str]:
    """The names of rules, for `held_of`."""
    return {_RULES_KEY: json.dumps(rules)}


def held_of(table: Any, rules: tuple[str, ...]) -> Any:
    """The column `held` for these rules; a rule that it does not have holds nothing."""
    kept = json.loads(table.schema.metadata[_RULES_KEY])
    stored = _matrix(table["held"], len(table), 3 * len(kept)).reshape(len(table), len(kept), 3)
    held = np.zeros((len(table), len(rules), 3), dtype=np.int64)
    for place, name in enumerate(kept):
        if name in rules:
            held[:, rules.index(name)] = stored[:, place]
    return held


def lists(matrix: Any) -> Any:
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(matrix.shape[1:])))


def _matrix(column: Any, rows: int, columns: int) -> Any:
    flat = column.combine_chunks().flatten() if rows else pa.array([], column.type.value_type)
    return flat.to_numpy(zero_copy_only=False).reshape(rows, columns)


def _eased(before: Any, now: Any, elapsed_s: Any, over_s: float) -> Any:
    """An exponential average; what is not measured does not change it, and the first value counts in full."""
    weight = 1.0 - np.exp(-np.nan_to_num(elapsed_s, nan=np.inf) / over_s)
    eased = np.where(np.isnan(before), now, before + weight * (now - before))
    return np.where(np.isnan(now), before, eased)
