"""Watches the monitoring ports of all brokers during a run: `/readyz`, `/health` and the counters.

Complaints: a counter that falls while its process lives; a report that calls everything Healthy although
partitions have no leader by the Metadata of the same broker; a cluster that does not become Healthy after
healing.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lab.server import call
from penstock.model.errors import ProtocolError
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.messages import decode_response, encode_request

__all__ = ["HealthWatch", "Watched", "fallen_counters", "is_false"]

_PAUSE_S: Final = 0.5
_TIMEOUT_S: Final = 2.0
_COUNTER: Final = re.compile(r"^(\w+_(?:total|count|bucket)(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)
_STARTED: Final = re.compile(r"^penstock_start_time_seconds (\S+)$", re.MULTILINE)
_HEALTHY: Final = "Healthy"


#: partitions without a leader as (topic, partition, leader epoch): an election raises the epoch
Leaderless = frozenset[tuple[str, int, int]]


def is_false(before: Leaderless, health: Mapping[str, Any], after: Leaderless) -> bool:
    """Whether a report calls cluster and topics Healthy, although a partition had no leader all the time.

    `before` and `after` are those of the broker's Metadata before and after the report.
    """
    levels = {health[part]["status"] for part in ("cluster", "topics")}
    return bool(before & after) and levels == {_HEALTHY}


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


class Watched(NamedTuple):
    """The addresses of a broker: for clients without security, and for monitoring."""

    clients: tuple[str, int]
    monitoring: tuple[str, int]


def leaderless(address: tuple[str, int]) -> Leaderless:
    """The partitions without a leader by the Metadata of a broker; none if it does not respond."""
    request = encode_request(METADATA, 12, 1, "watch", MetadataRequest(topics=None))
    try:
        answer = call(address, b"".join(map(bytes, request))[4:], _TIMEOUT_S)  # type: ignore[arg-type]
        found = decode_response(METADATA, 12, memoryview(answer))
    except (OSError, ProtocolError):
        return frozenset()
    return frozenset(
        (topic.name or "", partition.partition_index, partition.leader_epoch)
        for topic in found.topics
        for partition in topic.partitions
        if partition.leader_id < 0
    )


class HealthWatch:
    """Polls from `start` to `finish`, in a thread of its own."""

    def __init__(self, addresses: Mapping[int, Watched]) -> None:
        self._addresses = addresses
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._pages: dict[int, str] = {}
        #: health reports that were read, and those with a partition without a leader around them
        self.reports = 0
        self.judged = 0
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
        before = leaderless(self._addresses[node].clients)
        report = self._get(node, "/health")
        if report is not None:
            health, after = json.loads(report), leaderless(self._addresses[node].clients)
            self.reports += 1
            self.judged += bool(before & after)
            if is_false(before, health, after):
                lacking = sorted(before & after)
                self.complaints.append(f"node {node} calls everything Healthy without leaders of {lacking}")
        page = self._get(node, "/metrics")
        if page is not None:
            self.complaints += fallen_counters(self._pages.get(node, ""), page)[:1]
            self._pages[node] = page

    def _get(self, node: int, path: str) -> str | None:
        connection = http.client.HTTPConnection(*self._addresses[node].monitoring, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
