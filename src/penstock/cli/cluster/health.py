"""Probes every broker of a cluster, and merges what the brokers report about their health.

A probe is a TCP connection, then a request that any broker answers at once. No connection within 5 s is
Unhealthy, no answer within 2 s is Degraded. A monitor that probes repeatedly counts errors and remembers when
each broker last answered. The levels and reasons are those of `penstock.observability.health_merge`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.cli.direct import HELLO, DirectLine
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text, parse_address
from penstock.net.peer_errors import is_refusal
from penstock.observability.health import ClusterFacts, Health, Level, TopicFacts, worst
from penstock.observability.health_merge import MergedHealth, merged
from penstock.observability.health_observed import Silence, observed_reports
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest

__all__ = ["CONNECT_S", "EXIT_CODES", "PING_S", "BrokerProbe", "HealthMonitor", "health_view"]

CONNECT_S: Final = 5.0
PING_S: Final = 2.0
#: of `penstock health`, as monitoring plugins have them
EXIT_CODES: Final = {Level.HEALTHY: 0, Level.DEGRADED: 1, Level.UNHEALTHY: 2, Level.UNKNOWN: 3}


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

    def connected(self, outcome: float | str) -> None:
        """The TCP connection took that many seconds, or failed for that reason."""
        if isinstance(outcome, str):
            self.response_time_s = None
            self.failed(Level.UNHEALTHY, outcome)
        else:
            self.response_time_s = outcome

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
        try:
            cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
            topics = topic_facts(line)
        except Failure as error:
            return self._without_cluster(line, error)
        for broker in cluster.brokers:
            address = address_text(broker.host, broker.port)
            known = self.brokers.get(broker.broker_id)
            if known is None or known.address != address:
                self.brokers[broker.broker_id] = BrokerProbe(address)
        self.probe(asyncio.run(connect_times([probe.address for probe in self.brokers.values()])), ping)
        return self._document(
            merged(observed_reports(self._answers(ping), facts_of(cluster, topics), topics))
        )

    def _answers(self, ping: DirectLine) -> dict[int, DescribeLogDirsResponse | Silence]:
        awake = [probe.address for probe in self.brokers.values() if probe.level is Level.HEALTHY]
        request = DescribeLogDirsRequest(topics=[], include_health=True)
        found = ping.send_each(awake, DESCRIBE_LOG_DIRS, request)
        return {
            broker: found.get(probe.address) or Silence(probe.reason or f"no answer within {PING_S:g} s")
            for broker, probe in self.brokers.items()
        }

    def _without_cluster(self, line: DirectLine, error: Failure) -> dict[str, Any]:
        """No broker has described the cluster: what connections to the bootstrap addresses tell."""
        outcomes = asyncio.run(connect_times(line.addresses))
        failed = {address: each for address, each in outcomes.items() if isinstance(each, str)}
        level = Level.UNHEALTHY if len(failed) == len(outcomes) else Level.UNKNOWN
        reasons = [f"{address}: {reason}" for address, reason in failed.items()]
        rows: list[dict[str, Any]] = [
            {"broker": broker, **_row(probe, Health(probe.level))} for broker, probe in self.brokers.items()
        ]
        return {
            "status": level,
            "reasons": reasons if level is Level.UNHEALTHY else [str(error), *reasons],
            "codes": ["no_broker_responds"],
            "topics": [],
            "brokers": rows,
        }

    def probe(self, times: Mapping[str, float | str], ping: DirectLine) -> None:
        """Apply the outcomes of the connections, and ping the brokers that accept them."""
        for probe in self.brokers.values():
            probe.connected(times.get(probe.address, "no connection was attempted"))
        reached = [probe for probe in self.brokers.values() if probe.response_time_s is not None]
        answers = ping.send_each([probe.address for probe in reached], API_VERSIONS, HELLO)
        for probe in reached:
            if answers[probe.address] is None:
                probe.failed(Level.DEGRADED, f"no answer within {PING_S:g} s")
            else:
                probe.answered(self._now())

    def _document(self, found: MergedHealth) -> dict[str, Any]:
        return {
            **health_view(found),
            "topics": [
                {"topic": name, "status": health.level, "reasons": list(health.reasons)}
                for name, health in found.topics.items()
            ],
            "brokers": [
                {"broker": broker, **_row(probe, found.brokers[broker])}
                for broker, probe in sorted(self.brokers.items())
            ],
        }


def health_view(found: MergedHealth) -> dict[str, Any]:
    """The level and the reasons of a cluster, as all commands show them."""
    return {
        "status": found.level,
        "reasons": found.reasons,
        "codes": [finding.code for finding in found.findings],
    }


def _row(probe: BrokerProbe, health: Health) -> dict[str, Any]:
    """A broker that does not answer in time, and accepts connections, is Degraded."""
    level = probe.level if probe.reason else worst([probe.level, health.level])
    took_s = probe.response_time_s
    return {
        "address": probe.address,
        "status": level,
        "last_seen": _time(probe.last_seen_s),
        "response_time_ms": None if took_s is None else round(took_s * 1000, 2),
        "error_count": probe.error_count,
        "reasons": [probe.reason] if probe.reason else list(health.reasons),
    }


def facts_of(cluster: DescribeClusterResponse, topics: Mapping[str, TopicFacts]) -> ClusterFacts:
    """The cluster as a client sees it."""
    return ClusterFacts(
        has_controller=cluster.controller_id >= 0,
        fenced=sorted(broker.broker_id for broker in cluster.brokers if broker.is_fenced),
        offline_partitions=sum(each.offline for each in topics.values()),
        under_replicated=sum(each.under_replicated for each in topics.values()),
    )


def topic_facts(line: DirectLine) -> dict[str, TopicFacts]:
    """The partitions of topics with problems, as a client sees them: their minimum ISR is not known."""
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return {
        topic.name or "": TopicFacts(
            offline=sum(partition.leader_id < 0 for partition in topic.partitions),
            under_replicated=sum(len(p.isr_nodes) < len(p.replica_nodes) for p in topic.partitions),
        )
        for topic in metadata.topics
    }


async def connect_times(addresses: list[str], timeout_s: float = CONNECT_S) -> dict[str, float | str]:
    """How many seconds a TCP connection to each address took, or the reason why there was none."""

    async def connect(address: str) -> float | str:
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(*parse_address(address))
        except TimeoutError:
            return f"no TCP connection within {timeout_s:g} s"
        except OSError as error:
            return "connection refused" if is_refusal(error) else f"no TCP connection: {error}"
        took = time.monotonic() - began
        writer.close()
        return took

    return dict(zip(addresses, await asyncio.gather(*map(connect, addresses)), strict=True))


def _time(seconds: float | None) -> str | None:
    from datetime import UTC, datetime

    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
