"""When something wrong opens an alert, and when the alert resolves.

Time is that of the newest samples, in steps of ten seconds, and never goes back: the rest of a step may come
a batch after the next one. So the same batches give the same alerts whenever they are read again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import ABOUT, FEATURES, STEP_MS
from penstock.telemetry.pipeline.detectors.fleet import Fleet
from penstock.telemetry.pipeline.detectors.rules import RULES, Finding, is_application_xid, xid_action
from penstock.telemetry.thresholds import Thresholds

__all__ = ["Alert", "Detectors"]

_BAD, _GOOD, _OPEN = range(3)


class Alert(NamedTuple):
    """A change of state: `subject` (a GPU, or a host) has begun or ceased to be what `rule` says."""

    at_ms: int
    rule: str
    subject: str
    state: str
    severity: str
    since_ms: int
    hostname: str
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


class Detectors:
    """All rules over one fleet. `fleet` is all that they remember."""

    __slots__ = ("_thresholds", "fleet")

    def __init__(self, thresholds: Thresholds, remembered: Any | None = None) -> None:
        self._thresholds = thresholds
        rules = tuple(RULES)
        self.fleet = Fleet(rules) if remembered is None else Fleet.from_table(remembered, rules)

    def advance(self, features: Any, since_ms: int, until_ms: int) -> list[Alert]:
        """Take rows of FEATURES_SCHEMA, step by step, and say what has changed.

        The batches before have reached `since_ms`, this one reaches `until_ms`. A step is judged at its own
        time within those: by a clock that is fast, or by the batch's end, all others would be silent.
        """
        alerts: list[Alert] = []
        steps = features["step"].to_numpy()
        matrix = np.column_stack([features[str(each)].to_numpy() for each in FEATURES])
        about = {name: features[name].to_pylist() for name in ("gpu_id", *ABOUT)}
        order = np.argsort(steps, kind="stable")
        bounds = np.flatnonzero(np.diff(steps[order])) + 1
        now_ms = min(self.fleet.newest_ms, since_ms // STEP_MS * STEP_MS)
        for rows in np.split(order, bounds) if len(order) else ():
            told = self._thresholds
            heard = self.fleet.heard(
                int(steps[rows[0]]),
                {name: [column[row] for row in rows] for name, column in about.items()},
                matrix[rows],
                told.smoothing_s,
                told.ecc.corrected_smoothing_s,
            )
            now_ms = max(now_ms, min(int(steps[rows[0]]), until_ms // STEP_MS * STEP_MS))
            alerts += self._judge(now_ms, heard)
        return alerts

    def _judge(self, step_ms: int, heard: Ints) -> list[Alert]:
        alerts = []
        for number, (name, rule) in enumerate(RULES.items()):
            part = getattr(self._thresholds, name)
            finding = rule.judge(self.fleet, heard, step_ms, self._thresholds)
            # A rule that looks back by itself has waited already.
            for_ms = 0 if name == "silent" else int(part.for_s * 1000)
            opened, resolved = _hold(
                self.fleet.held[:, number], finding, step_ms, for_ms, int(part.clear_s * 1000)
            )
            if rule.is_hardware and len(opened):
                is_hardware = name != "xid" or ~is_application_xid(finding.measure[opened])
                self.fleet.hardware_ms[opened[is_hardware] if name == "xid" else opened] = step_ms
            alerts += [self._alert(name, each, "open", step_ms, finding) for each in opened]
            alerts += [self._alert(name, each, "resolved", step_ms, finding) for each in resolved]
            self.fleet.held[resolved, number] = 0
        return alerts

    def _alert(self, name: str, gpu: int, state: str, step_ms: int, finding: Finding) -> Alert:
        fleet, rule = self.fleet, RULES[name]
        is_host = name == "lemon_node"
        measure = float(finding.measure[gpu])
        return Alert(
            # A step's samples may be from any moment in it.
            at_ms=step_ms + STEP_MS,
            rule=name,
            subject=fleet.hostnames[gpu] if is_host else fleet.gpu_ids[gpu],
            state=state,
            severity=rule.severity,
            since_ms=int(fleet.held[gpu, tuple(RULES).index(name), _OPEN]),
            hostname=fleet.hostnames[gpu],
            workload=None if is_host else fleet.workloads[gpu],
            job=None if is_host else fleet.jobs[gpu],
            pod=None if is_host else fleet.pods[gpu],
            measure=0.0 if np.isnan(measure) else measure,
            evidence=finding.evidence(gpu) if finding.evidence is not None and state == "open" else None,
            action=xid_action(measure) if name == "xid" else rule.action,
        )


def _hold(held: Any, finding: Finding, step_ms: int, for_ms: int, clear_ms: int) -> tuple[Ints, Ints]:
    """Record the bad and the good subjects.

    Returns alerts that open or are renewed, and those that resolve.
    """
    bad, good = finding.bad & finding.known, ~finding.bad & finding.known
    is_open = held[:, _OPEN] > 0
    held[bad & (held[:, _BAD] == 0), _BAD] = step_ms
    held[bad, _GOOD] = 0
    held[good & ~is_open, _BAD] = 0
    held[good & is_open & (held[:, _GOOD] == 0), _GOOD] = step_ms
    opens = bad & ~is_open & (step_ms - held[:, _BAD] >= for_ms)
    held[opens, _OPEN] = held[opens, _BAD]
    resolves = good & is_open & (step_ms - held[:, _GOOD] >= clear_ms)
    renewed = bad & is_open & finding.again if finding.again is not None else np.zeros_like(bad)
    return np.flatnonzero(opens | renewed), np.flatnonzero(resolves)
