"""The state of the detectors for every GPU: last values, smoothed values and rates, and open alerts.

One row of every array is one GPU, in the order of their first samples. Values that were never
measured are NaN. Times are milliseconds of the samples' own time, 0 for never.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.detectors.features import COUNTERS, FEATURES, LAST_CODES, column_of

__all__ = ["Fleet"]

_SBE: Final = column_of(310)
_FEATURES_KEY: Final = b"features"
#: those of state that does not name them
_FIRST_FEATURES: Final = json.dumps(FEATURES[:14])


class Fleet:
    """Arrays over all GPUs. `heard` changes them, and is the only one to do so besides incidents."""

    __slots__ = (
        "corrected",
        "gained",
        "gpu_ids",
        "hardware_ms",
        "held",
        "hostnames",
        "jobs",
        "last",
        "models",
        "number_of",
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
        #: when the last alert about its hardware opened
        self.hardware_ms = np.zeros(0, dtype=np.int64)
        #: by rule: bad since, good since while open, and open since; 0 where it is not so
        self.held = np.zeros((0, len(rules), 3), dtype=np.int64)

    @property
    def newest_ms(self) -> int:
        """The newest step with a sample of any GPU; 0 if there is none."""
        return int(self.seen_ms.max(initial=0))

    def heard(
        self, step_ms: int, about: dict[str, list[Any]], values: Any, smoothing_s: float, corrected_s: float
    ) -> Any:
        """Take one step's rows, except those that are older than their GPU's last, and say whose they are."""
        numbers = self._number(about)
        is_news = self.seen_ms[numbers] <= step_ms
        numbers, values = numbers[is_news], values[is_news]
        self.gained[:] = 0.0
        before_ms = self.seen_ms[numbers]
        elapsed_s = np.where(before_ms > 0, (step_ms - before_ms) / 1000.0, np.nan)[:, None]
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
        return numbers

    def _number(self, about: dict[str, list[Any]]) -> Any:
        numbers = np.empty(len(about["gpu_id"]), dtype=np.int64)
        for row, gpu_id in enumerate(about["gpu_id"]):
            number = self.number_of.setdefault(gpu_id, len(self.gpu_ids))
            if number == len(self.gpu_ids):
                self.gpu_ids.append(gpu_id)
                self.hostnames.append("")
                for texts in (self.models, self.workloads, self.jobs, self.pods):
                    texts.append(None)
            self.hostnames[number] = about["hostname"][row] or ""
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
            self.hardware_ms = np.append(self.hardware_ms, np.zeros(more, dtype=np.int64))
            self.corrected = np.append(self.corrected, np.zeros(more))
            self.held = np.concatenate([self.held, np.zeros((more, len(self.rules), 3), dtype=np.int64)])

    def to_table(self) -> Any:
        """The state to store. `gained` belongs to one step and is not stored."""
        size = len(self.gpu_ids)

        def lists(matrix: Any) -> Any:
            flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(matrix.shape[1:])))

        columns = {
            "gpu_id": pa.array(self.gpu_ids, pa.string()),
            "hostname": pa.array(self.hostnames, pa.string()),
            "model": pa.array(self.models, pa.string()),
            "workload": pa.array(self.workloads, pa.string()),
            "job": pa.array(self.jobs, pa.string()),
            "pod": pa.array(self.pods, pa.string()),
            "seen_ms": pa.array(self.seen_ms),
            "last": lists(self.last),
            "smooth": lists(self.smooth),
            "corrected": pa.array(self.corrected),
            "hardware_ms": pa.array(self.hardware_ms),
            "held": lists(self.held),
        }
        assert all(len(column) == size for column in columns.values())
        return pa.table(columns, metadata={_FEATURES_KEY: json.dumps(FEATURES)})

    @classmethod
    def from_table(cls, table: Any, rules: tuple[str, ...]) -> Fleet:
        fleet = cls(rules)
        fleet.gpu_ids = table["gpu_id"].to_pylist()
        fleet.number_of = {gpu_id: number for number, gpu_id in enumerate(fleet.gpu_ids)}
        fleet.hostnames = table["hostname"].to_pylist()

        def texts(name: str) -> list[str | None]:
            known: list[str | None] = table[name].to_pylist() if name in table.column_names else []
            return known or [None] * len(fleet.gpu_ids)

        fleet.models, fleet.workloads, fleet.jobs, fleet.pods = map(
            texts, ("model", "workload", "job", "pod")
        )
        fleet._grow(len(fleet.gpu_ids))
        kept = json.loads((table.schema.metadata or {}).get(_FEATURES_KEY, _FIRST_FEATURES))

        def flat(name: str) -> Any:
            return table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)

        def matrix(name: str, like: Any) -> Any:
            """By field: one that was not kept is not known."""
            found = np.full(like.shape, np.nan)
            for place, field in enumerate(kept):
                if field in FEATURES:
                    found[:, column_of(field)] = flat(name).reshape(len(like), len(kept))[:, place]
            return found

        fleet.seen_ms = table["seen_ms"].to_numpy().copy()
        fleet.last, fleet.smooth = matrix("last", fleet.last), matrix("smooth", fleet.smooth)
        fleet.corrected = table["corrected"].to_numpy().copy()
        fleet.hardware_ms = table["hardware_ms"].to_numpy().copy()
        fleet.held = flat("held").reshape(fleet.held.shape).copy()
        return fleet


def _eased(before: Any, now: Any, elapsed_s: Any, over_s: float) -> Any:
    """An exponential average; what is not measured does not change it, and the first value counts in full."""
    weight = 1.0 - np.exp(-np.nan_to_num(elapsed_s, nan=np.inf) / over_s)
    eased = np.where(np.isnan(before), now, before + weight * (now - before))
    return np.where(np.isnan(now), before, eased)
