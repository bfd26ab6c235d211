"""The part of the detectors that runs on the driver: rules that compare GPUs across hosts, jobs or the fleet.

It takes signals from tasks, one row per GPU and step, and is numbers only: texts are codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from penstock.telemetry.pipeline.columns import Ints
from penstock.telemetry.pipeline.detectors.features import STEP_MS
from penstock.telemetry.pipeline.detectors.fleet_rules import FLEET_RULES, RULES
from penstock.telemetry.pipeline.detectors.incidents import Alert, Subject, changes
from penstock.telemetry.pipeline.detectors.peers import Peers
from penstock.telemetry.pipeline.detectors.rules import is_application_xid
from penstock.telemetry.thresholds import Thresholds

__all__ = ["FleetDetectors"]


#: in the order of a Subject
_OF_SUBJECT: Final = ("hostname", "device", "pci_bus_id", "workload", "job", "pod")


class FleetDetectors:
    """The rules that compare GPUs. `peers` is all that they remember."""

    __slots__ = ("_thresholds", "peers")

    def __init__(self, thresholds: Thresholds, remembered: Any | None = None) -> None:
        """`remembered` is the table of another object's peers, or these peers themselves."""
        self._thresholds = thresholds
        rules = tuple(FLEET_RULES)
        if isinstance(remembered, Peers):
            self.peers = remembered
        else:
            self.peers = Peers(rules) if remembered is None else Peers.from_table(remembered, rules)

    def advance(self, signals: Any, alerts: Iterable[Alert], since_ms: int, until_ms: int) -> list[Alert]:
        """Take rows of SIGNALS, and the alerts of single GPUs in the same batch; the alerts that change.

        The batches before have reached `since_ms`, this one reaches `until_ms`. A step is judged at its own
        time within those: by a clock that is fast, or by the batch's end, all others would be silent.
        """
        faults = _hardware_faults(alerts)
        steps = signals["step"].to_numpy()
        order = np.argsort(steps, kind="stable")
        numbers = self.peers.number(signals)
        columns = self.peers.columns_of(signals)
        now_ms = min(self.peers.newest_ms, since_ms // STEP_MS * STEP_MS)
        found: list[Alert] = []
        for rows in np.split(order, np.flatnonzero(np.diff(steps[order])) + 1) if len(order) else ():
            step_ms = int(steps[rows[0]])
            heard = self.peers.take(step_ms, numbers[rows], {k: each[rows] for k, each in columns.items()})
            for gpu_id in faults.get(step_ms, ()):
                self.peers.hardware_ms[self.peers.number_of[gpu_id]] = step_ms
            now_ms = max(now_ms, min(step_ms, until_ms // STEP_MS * STEP_MS))
            found += self._judge(now_ms, heard)
        return found

    def _judge(self, now_ms: int, heard: Ints) -> list[Alert]:
        peers, alerts = self.peers, []
        peers.heard[:] = False
        peers.heard[heard] = True
        peers.count_companions(now_ms, self._thresholds.missing_gpu.absent_s)
        for number, (name, rule) in enumerate(FLEET_RULES.items()):
            finding = rule.judge(peers, now_ms, self._thresholds)
            subject_of = self._host if rule.is_of_host else self._gpu
            alerts += changes(name, peers.held[:, number], finding, now_ms, self._thresholds, subject_of)
        return alerts

    def _gpu(self, gpu: int) -> Subject:
        peers = self.peers
        hostname, *rest = (peers.text(name, gpu) for name in _OF_SUBJECT)
        return Subject(peers.gpu_ids[gpu], hostname or "", *rest)

    def _host(self, gpu: int) -> Subject:
        hostname = self.peers.text("hostname", gpu) or ""
        return Subject(hostname, hostname)


def _hardware_faults(alerts: Iterable[Alert]) -> dict[int, list[str]]:
    """By step, the GPUs with a new alert about their hardware."""
    faults: dict[int, list[str]] = {}
    for alert in alerts:
        is_application = alert.rule == "xid" and is_application_xid(alert.measure)
        if alert.state == "open" and RULES[alert.rule].is_hardware and not is_application:
            faults.setdefault(alert.at_ms - STEP_MS, []).append(alert.subject)
    return faults
