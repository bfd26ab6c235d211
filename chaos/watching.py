"""Watches the monitoring ports of all brokers during a run: `/readyz`, `/health` and the counters.

Complaints: a counter that falls while its process lives; a report that calls the cluster Healthy although a
broker has been away for longer than its session; a cluster that does not become Healthy after healing.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from chaos.nemesis import Fault

__all__ = ["HealthWatch", "Report", "fallen_counters", "false_reports"]

_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = 2.0
#: a broker that is away for longer than this is fenced: its session, an election, and the next report
_DETECTED_S: Final = 5.0
#: faults that take brokers away from the others, and how many of the two
_TAKES_AWAY: Final = {"kill": 1, "pause": 1, "isolate": 1, "kill-two": 2}
_COUNTER: Final = re.compile(r"^(\w+_(?:total|count|bucket)(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)
_STARTED: Final = re.compile(r"^penstock_start_time_seconds (\S+)$", re.MULTILINE)
_HEALTHY: Final = "Healthy"


class Report(NamedTuple):
    """A health report of a node at a time."""

    at_s: float
    node: int
    cluster: str
    status: str


def false_reports(reports: Sequence[Report], faults: Sequence[Fault], began_s: float) -> list[str]:
    """Reports that call the cluster Healthy while a broker is away."""
    found = []
    for fault in faults:
        away = fault.nodes[: _TAKES_AWAY.get(fault.kind, 0)]
        first, last = began_s + fault.at_s + _DETECTED_S, began_s + fault.until_s
        for report in reports:
            if away and report.node not in away and first < report.at_s < last and report.cluster == _HEALTHY:
                found.append(f"node {report.node} calls the cluster Healthy during {fault}")
                break
    return found


def fallen_counters(before: str, after: str) -> list[str]:
    """Counters of two pages of one process that fell."""
    if _STARTED.findall(before) != _STARTED.findall(after):
        return []
    earlier = dict(_COUNTER.findall(before))
    return [
        f"{name} fell from {earlier[name]} to {value}"
        for name, value in _COUNTER.findall(after)
        if name in earlier and float(value) < float(earlier[name])
    ]


class HealthWatch:
    """Polls from `start` to `finish`, in a thread of its own."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._addresses = addresses
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._pages: dict[int, str] = {}
        self.reports: list[Report] = []
        self.complaints: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def finish(self, patience_s: float) -> list[str]:
        """Wait until all brokers are ready and Healthy, and stop; returns the complaints."""
        deadline = time.monotonic() + patience_s
        while lacking := [node for node in self._addresses if not self._is_well(node)]:
            if time.monotonic() > deadline:
                self.complaints.append(f"nodes {lacking} are not ready and Healthy after {patience_s:g} s")
                break
            time.sleep(_PAUSE_S)
        self._stopped.set()
        self._thread.join()
        return self.complaints

    def _is_well(self, node: int) -> bool:
        ready, health = self._get(node, "/readyz"), self._get(node, "/health")
        # The disk of the machine may be nearly full, which is none of the run's faults.
        return (
            ready == "ready\n"
            and health is not None
            and all(json.loads(health)[part]["status"] == _HEALTHY for part in ("cluster", "topics"))
        )

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            for node in self._addresses:
                self._look(node)

    def _look(self, node: int) -> None:
        report = self._get(node, "/health")
        if report is not None:
            found: dict[str, Any] = json.loads(report)
            self.reports.append(Report(time.monotonic(), node, found["cluster"]["status"], found["status"]))
        page = self._get(node, "/metrics")
        if page is not None:
            self.complaints += fallen_counters(self._pages.get(node, ""), page)[:1]
            self._pages[node] = page

    def _get(self, node: int, path: str) -> str | None:
        connection = http.client.HTTPConnection(*self._addresses[node], timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
