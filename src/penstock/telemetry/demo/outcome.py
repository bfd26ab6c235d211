"""The outcome of the demo: every message accounted for, and alerts against the simulator's ground truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.telemetry.message import parse_timestamp
from penstock.telemetry.pipeline.detectors.features import STEP_MS
from penstock.telemetry.pipeline.names import VERDICTS
from penstock.telemetry.pipeline.tables import Tables

__all__ = ["Outcome", "Score", "read_outcome", "score"]

#: An alert may begin this long after the end of its fault. Why: the time of an alert is the end of a step,
#: the fault may have ended within the step, and smoothed metrics lag behind.
_AFTER_MS: Final = 3 * STEP_MS


class Score(NamedTuple):
    """Of one class of faults: how many were found, and how many of its alerts were right."""

    found: int = 0
    faults: int = 0
    right: int = 0
    alerts: int = 0

    @property
    def recall(self) -> float | None:
        """None where there was nothing to find."""
        return self.found / self.faults if self.faults else None

    @property
    def precision(self) -> float | None:
        """None where nothing was said."""
        return self.right / self.alerts if self.alerts else None


class Outcome(NamedTuple):
    """`rows` are the counts of messages by outcome, as batches have counted them."""

    produced: int
    rows: Mapping[str, int]
    #: rows in the table of samples
    stored: int
    scores: Mapping[str, Score]

    @property
    def unread(self) -> int:
        return self.produced - sum(self.rows.values())

    @property
    def is_complete(self) -> bool:
        """Whether all that was produced was read, and all that is valid is in the table."""
        return self.unread == 0 and self.stored == self.rows["valid"]


def read_outcome(produced: Mapping[str, Any], tables: str, labels: Path) -> Outcome:
    """The outcome, from the simulator's summary, the tables, and the file of faults."""
    opened = Tables(tables)
    batches = opened.open("batches").to_pyarrow_table(columns=list(VERDICTS))
    samples = opened.open("samples").to_pyarrow_table(columns=["at"])
    alerts = opened.open("alerts").to_pyarrow_table(columns=["at", "rule", "subject", "state"]).to_pylist()
    faults = [json.loads(line) for line in labels.read_text().splitlines()]
    newest = max(samples["at"].to_pylist(), default=None)
    return Outcome(
        int(produced["acknowledged"]),
        {verdict: sum(batches[verdict].to_pylist()) for verdict in VERDICTS},
        samples.num_rows,
        score(faults, alerts, 0 if newest is None else int(newest.timestamp() * 1000)),
    )


def score(
    faults: Iterable[Mapping[str, Any]], alerts: Iterable[Mapping[str, Any]], until_ms: int
) -> dict[str, Score]:
    """By class, for faults that stand out of the noise and had a whole step by `until_ms`."""
    spans = [(fault, parse_timestamp(fault["start"]), parse_timestamp(fault["end"])) for fault in faults]
    opened = [
        (alert["rule"], alert["subject"], int(alert["at"].timestamp() * 1000))
        for alert in alerts
        if alert["state"] == "open"
    ]

    def explains(fault: Mapping[str, Any], start_ms: int, end_ms: int, alert: tuple[str, str, int]) -> bool:
        subject = fault["gpu_id"] or fault["hostname"]
        return alert[:2] == (fault["fault"], subject) and start_ms <= alert[2] <= end_ms + _AFTER_MS

    scores = dict.fromkeys(
        sorted({fault["fault"] for fault, _, _ in spans} | {each[0] for each in opened}), Score()
    )
    for fault, start_ms, end_ms in spans:
        if fault["within_noise"] or min(end_ms, until_ms) - start_ms < 2 * STEP_MS:
            continue
        hit = any(explains(fault, start_ms, end_ms, alert) for alert in opened)
        before = scores[fault["fault"]]
        scores[fault["fault"]] = before._replace(found=before.found + hit, faults=before.faults + 1)
    for alert in opened:
        true = any(explains(*span, alert) for span in spans)
        before = scores[alert[0]]
        scores[alert[0]] = before._replace(right=before.right + true, alerts=before.alerts + 1)
    return scores
