"""When something wrong opens an alert, and when the alert resolves.

Time is that of samples, in steps of ten seconds, and never goes back for a GPU. So the same batches give the
same alerts whenever they are read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import STEP_MS
from penstock.telemetry.pipeline.detectors.fleet_rules import RULES
from penstock.telemetry.pipeline.detectors.memory import BAD, GOOD, OPEN
from penstock.telemetry.pipeline.detectors.rules import Finding
from penstock.telemetry.thresholds import Thresholds

__all__ = ["Alert", "Subject", "changes", "in_order"]


class Alert(NamedTuple):
    """A change of state: `subject` (a GPU, or a host) has begun or ceased to be what `rule` says."""

    at_ms: int
    rule: str
    subject: str
    state: str
    severity: str
    since_ms: int
    hostname: str
    #: the place of a GPU in its host
    device: str | None
    pci_bus_id: str | None
    workload: str | None
    job: str | None
    pod: str | None
    measure: float
    #: what the rule has judged by, for people
    evidence: str | None
    action: str

    @property
    def key(self) -> str:
        return f"{self.rule}/{self.subject}"


class Subject(NamedTuple):
    """The subject of an alert."""

    subject: str
    hostname: str
    device: str | None = None
    pci_bus_id: str | None = None
    workload: str | None = None
    job: str | None = None
    pod: str | None = None


def in_order(alerts: list[Alert]) -> list[Alert]:
    """Alerts in an order that does not depend on how GPUs are divided among tasks."""
    rank = {name: number for number, name in enumerate(RULES)}
    return sorted(alerts, key=lambda alert: (alert.at_ms, rank[alert.rule], alert.subject, alert.state))


def changes(
    name: str,
    held: Any,
    finding: Finding,
    step_ms: int,
    thresholds: Thresholds,
    subject_of: Callable[[int], Subject],
) -> list[Alert]:
    """Record a rule's finding in its columns of `held`; the alerts that open, are renewed or resolve."""
    part = getattr(thresholds, name)
    rule = RULES[name]
    for_ms = 0 if rule.looks_back else int(part.for_s * 1000)
    opened, resolved = _hold(held, finding, step_ms, for_ms, int(part.clear_s * 1000))
    alerts = []
    for state, gpus in (("open", opened), ("resolved", resolved)):
        for gpu in gpus.tolist():
            measure = float(finding.measure[gpu])
            has_evidence = finding.evidence is not None and state == "open"
            alerts.append(
                Alert(
                    # A step's samples may be from any moment in it.
                    step_ms + STEP_MS,
                    name,
                    subject_of(gpu).subject,
                    state,
                    rule.severity,
                    int(held[gpu, OPEN]),
                    *subject_of(gpu)[1:],
                    measure=0.0 if np.isnan(measure) else measure,
                    evidence=finding.evidence(gpu) if has_evidence and finding.evidence else None,
                    action=rule.action_for(measure),
                )
            )
    held[resolved] = 0
    return alerts


def _hold(held: Any, finding: Finding, step_ms: int, for_ms: int, clear_ms: int) -> tuple[Ints, Ints]:
    """Record the bad and the good subjects.

    Returns alerts that open or are renewed, and those that resolve.
    """
    bad, good = finding.bad & finding.known, ~finding.bad & finding.known
    is_open = held[:, OPEN] > 0
    held[bad & (held[:, BAD] == 0), BAD] = step_ms
    held[bad, GOOD] = 0
    held[good & ~is_open, BAD] = 0
    held[good & is_open & (held[:, GOOD] == 0), GOOD] = step_ms
    opens = bad & ~is_open & (step_ms - held[:, BAD] >= for_ms)
    held[opens, OPEN] = held[opens, BAD]
    resolves = good & is_open & (step_ms - held[:, GOOD] >= clear_ms)
    renewed = bad & is_open & finding.again if finding.again is not None else np.zeros_like(bad)
    return np.flatnonzero(opens | renewed), np.flatnonzero(resolves)
