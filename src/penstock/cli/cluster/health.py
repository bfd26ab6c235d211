"""Probes every broker of a cluster: a TCP connection, then a request that any broker answers at once.

No connection within 5 s is Unhealthy, no answer within 2 s is Degraded. A monitor that probes repeatedly
counts errors and remembers when each broker last answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.cli.direct import HELLO, DirectLine, address_of
from penstock.observability.health import (
    ClusterFacts,
    Health,
    Level,
    TopicFacts,
    cluster_health,
    topic_health,
    worst,
)
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest

__all__ = ["CONNECT_S", "PING_S", "BrokerProbe", "HealthMonitor"]

CONNECT_S: Final = 5.0
PING_S: Final = 2.0


@dataclass(slots=True)
class BrokerProbe:
    """The known state of one broker."""

    address: str
    level: Level = Level.UNKNOWN
    #: seconds since 1970; None if it has never answered
    last_seen_s: float | None = None
    response_time_s: float | None = None
    error_count: int = 0
    reason: str = ""

    def connected(self, seconds: float | None) -> None:
        """The TCP connection took that long; None if there was none in time."""
        self.response_time_s = seconds
        if seconds is None:
            self.failed(Level.UNHEALTHY, f"no TCP connection within {CONNECT_S:g} s")

    def answered(self, now_s: float) -> None:
        self.level, self.reason, self.last_seen_s = Level.HEALTHY, "", now_s

    def failed(self, level: Level, reason: str) -> None:
        self.level, self.reason = level, reason
        self.error_count += 1


class HealthMonitor:
    """Probes the brokers of a cluster, and remembers the outcomes from one look to the next."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._now = wall_clock
        self.brokers: dict[int, BrokerProbe] = {}

    def look(self, line: DirectLine, ping: DirectLine) -> dict[str, Any]:
        """Probe all brokers that the cluster knows. `ping` has the timeout of the second step."""
        cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
        for broker in cluster.brokers:
            address = address_of(broker.host, broker.port)
            known = self.brokers.get(broker.broker_id)
            if known is None or known.address != address:
                self.brokers[broker.broker_id] = BrokerProbe(address)
        self.probe(asyncio.run(connect_times([probe.address for probe in self.brokers.values()])), ping)
        fenced = sorted(broker.broker_id for broker in cluster.brokers if broker.is_fenced)
        topics = _topics(line)
        facts = ClusterFacts(
            has_controller=cluster.controller_id >= 0,
            fenced=fenced,
            offline_partitions=sum(each.offline for each in topics.values()),
            under_replicated=sum(each.under_replicated for each in topics.values()),
        )
        return self._document(cluster_health(facts), {n: topic_health(each) for n, each in topics.items()})

    def probe(self, times: Mapping[str, float | None], ping: DirectLine) -> None:
        """Apply the times of the connections, and ping the brokers that accept them."""
        for probe in self.brokers.values():
            probe.connected(times.get(probe.address))
        reached = [probe for probe in self.brokers.values() if probe.response_time_s is not None]
        answers = ping.send_each([probe.address for probe in reached], API_VERSIONS, HELLO)
        for probe in reached:
            if answers[probe.address] is None:
                probe.failed(Level.DEGRADED, f"no answer within {PING_S:g} s")
            else:
                probe.answered(self._now())

    def _document(self, cluster: Health, topics: Mapping[str, Health]) -> dict[str, Any]:
        levels = [probe.level for probe in self.brokers.values()]
        unhealthy = {name: health for name, health in topics.items() if health.level is not Level.HEALTHY}
        return {
            "status": worst([cluster.level, *levels, *(health.level for health in unhealthy.values())]),
            "cluster": {"status": cluster.level, "reasons": list(cluster.reasons)},
            "topics": [
                {"topic": name, "status": health.level, "reasons": list(health.reasons)}
                for name, health in sorted(unhealthy.items())
            ],
            "brokers": [
                {
                    "broker": broker,
                    "address": probe.address,
                    "status": probe.level,
                    "last_seen": _time(probe.last_seen_s),
                    "response_time_ms": None
                    if probe.response_time_s is None
                    else round(probe.response_time_s * 1000, 2),
                    "error_count": probe.error_count,
                    "reason": probe.reason,
                }
                for broker, probe in sorted(self.brokers.items())
            ],
        }


def _topics(line: DirectLine) -> dict[str, TopicFacts]:
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return {
        topic.name or "": TopicFacts(
            offline=sum(partition.leader_id < 0 for partition in topic.partitions),
            under_replicated=sum(len(p.isr_nodes) < len(p.replica_nodes) for p in topic.partitions),
        )
        for topic in metadata.topics
    }


async def connect_times(addresses: list[str], timeout_s: float = CONNECT_S) -> dict[str, float | None]:
    """How long a TCP connection to each address took; None if there was none in time."""

    async def connect(address: str) -> float | None:
        host, _, port = address.rpartition(":")
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError):
            return None
        took = time.monotonic() - began
        writer.close()
        return took

    return dict(zip(addresses, await asyncio.gather(*map(connect, addresses)), strict=True))


def _time(seconds: float | None) -> str | None:
    from datetime import UTC, datetime

    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
