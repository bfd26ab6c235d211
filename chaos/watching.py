"""Watches the monitoring ports of all brokers during a run: `/readyz`, `/health` and the counters.

Complaints: a counter that falls while its process lives; a report that calls everything Healthy although
partitions have no leader by the Metadata of the same broker; a cluster that does not become Healthy after
healing; samples of topics that are deleted.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.model.errors import ProtocolError
from penstock.net.client_security import ClientSecurity
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse
from penstock.wire.conversation import Conversation, Response

__all__ = ["HealthWatch", "Late", "Watched", "fallen_counters", "is_false"]

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


class Late(str):
    """A complaint that the cluster was not whole in time. It says nothing about records."""

    __slots__ = ()


class Watched(NamedTuple):
    """The addresses of a broker: for clients, and for monitoring. `security` is None for plaintext."""

    clients: tuple[str, int]
    monitoring: tuple[str, int]
    security: ClientSecurity | None = None


def leaderless(broker: Watched) -> Leaderless:
    """The partitions without a leader by the Metadata of a broker; none if it does not respond."""
    try:
        found = _metadata(broker)
    except (OSError, ProtocolError):
        return frozenset()
    return frozenset(
        (topic.name or "", partition.partition_index, partition.leader_epoch)
        for topic in found.topics
        for partition in topic.partitions
        if partition.leader_id < 0
    )


def _metadata(broker: Watched) -> MetadataResponse:
    """The Metadata of all topics, over a connection of its own."""
    security = broker.security
    conversation = Conversation("watch", login=None if security is None else security.login)
    with socket.create_connection(broker.clients, _TIMEOUT_S) as plain:
        connected = plain
        if security is not None and security.tls is not None:
            connected = security.tls.context().wrap_socket(plain, server_hostname=broker.clients[0])
        with connected:
            while not conversation.is_ready:
                _exchange(connected, conversation, conversation.handshake())
            parts = conversation.request(METADATA, MetadataRequest(topics=None))[1]
            while not (found := _exchange(connected, conversation, parts)):
                parts = []
    response: MetadataResponse = found[0].message
    return response


def _exchange(connected: socket.socket, conversation: Conversation, parts: list[Any]) -> list[Response]:
    connected.sendall(b"".join(parts))
    count = connected.recv_into(conversation.get_buffer())
    if not count:
        raise ConnectionResetError("the broker has closed the connection")
    return conversation.received(count)


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

    def finish(self, patience_s: float, deleted: str = "") -> list[str]:
        """Wait until all brokers are ready and Healthy, and stop; returns the complaints.

        No sample may have a topic whose name begins with `deleted`, if that is given.
        """
        deadline = time.monotonic() + patience_s
        while lacking := [node for node in self._addresses if not self._is_well(node)]:
            if time.monotonic() > deadline:
                found = f"nodes {lacking} are not ready and Healthy after {patience_s:g} s"
                self.complaints.append(Late(f"{found}: {self._reasons(lacking)}"))
                break
            time.sleep(_PAUSE_S)
        while deleted and (showing := [node for node in self._addresses if self._shows(node, deleted)]):
            if time.monotonic() > deadline:
                self.complaints.append(Late(f"nodes {showing} have samples of topics that are deleted"))
                break
            time.sleep(_PAUSE_S)
        self._stopped.set()
        self._thread.join()
        return self.complaints

    def _shows(self, node: int, deleted: str) -> bool:
        """Whether a page has a sample of such a topic, or cannot be read."""
        pages = [self._get(node, path) for path in ("/metrics", "/metrics/kafka")]
        return any(page is None or f'topic="{deleted}' in page for page in pages)

    def _is_well(self, node: int) -> bool:
        ready, health = self._get(node, "/readyz"), self._get(node, "/health")
        return (
            ready == "ready\n"
            and health is not None
            and all(json.loads(health)[part]["status"] == _HEALTHY for part in ("cluster", "topics"))
        )

    def _reasons(self, nodes: list[int]) -> str:
        """What the pages of these nodes say."""
        said = {node: self._get(node, "/readyz") for node in nodes}
        return "; ".join(f"{node} {(page or 'no response').strip()!r}" for node, page in said.items())

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            for node in self._addresses:
                self._look(node)

    def _look(self, node: int) -> None:
        before = leaderless(self._addresses[node])
        report = self._get(node, "/health")
        if report is not None:
            health, after = json.loads(report), leaderless(self._addresses[node])
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
