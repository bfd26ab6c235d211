"""Health levels with reasons, of a broker, the cluster, its topics and its clients.

Facts in, levels out. A level that is not Healthy always has a reason that names the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "BrokerFacts",
    "ClientFacts",
    "ClusterFacts",
    "Health",
    "Level",
    "TopicFacts",
    "broker_health",
    "client_health",
    "cluster_health",
    "readiness",
    "report",
    "topic_health",
]

#: a volume with less free space than this is low on space
DISK_FREE_MIN: Final = 0.2
#: more failed connections than this share of all is a problem
CONNECTION_ERRORS_MAX: Final = 0.01
#: fewer connections than this say nothing about their share
CONNECTIONS_MIN: Final = 20
#: a loop that runs timers this late hardly serves requests
LOOP_LAG_MAX_S: Final = 1.0
#: metadata records that a node may still have to apply
METADATA_LAG_MAX: Final = 1000
#: topics that a report names one by one
TOPICS_MAX: Final = 100


class Level(StrEnum):
    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


#: from the best to the worst
_ORDER: Final = (Level.HEALTHY, Level.DEGRADED, Level.UNKNOWN, Level.UNHEALTHY)


class Health(NamedTuple):
    level: Level
    reasons: tuple[str, ...] = ()


class _Findings:
    """Collects reasons; the level is the worst of theirs."""

    def __init__(self) -> None:
        self._found: list[tuple[Level, str]] = []

    def add(self, level: Level, applies: object, reason: str) -> None:
        if applies:
            self._found.append((level, reason))

    def health(self) -> Health:
        found = sorted(self._found, key=lambda each: -_ORDER.index(each[0]))
        return Health(found[0][0] if found else Level.HEALTHY, tuple(reason for _, reason in found))


def worst(levels: Iterable[Level]) -> Level:
    return max(levels, key=_ORDER.index, default=Level.HEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker's knowledge of itself."""

    is_broker: bool = True
    registered: bool = True
    fenced: bool = False
    stopping: bool = False
    metadata_lag: int = 0
    directories_offline: Sequence[str] = ()
    directories_full: Sequence[str] = ()
    #: free share of each volume by data directory
    free_space: Mapping[str, float] = field(default_factory=dict)
    #: the longest delay of a timer in the last seconds
    loop_lag_s: float = 0.0
    damaged_ranges: int = 0


def broker_health(facts: BrokerFacts) -> Health:
    found = _Findings()
    bad, worse = Level.DEGRADED, Level.UNHEALTHY
    for path in facts.directories_offline:
        found.add(worse, True, f"data directory {path} is offline")
    for path in facts.directories_full:
        found.add(worse, True, f"data directory {path} is full")
    if facts.is_broker:
        found.add(worse, not facts.registered, "the broker is not registered")
        found.add(worse, facts.registered and facts.fenced, "the broker is fenced")
    found.add(bad, facts.stopping, "the broker is shutting down")
    lag = facts.metadata_lag
    found.add(bad, lag > METADATA_LAG_MAX, f"{lag} metadata records are not applied")
    for path, free in facts.free_space.items():
        low = free < DISK_FREE_MIN and path not in facts.directories_full
        found.add(bad, low, f"the volume of {path} has {free:.0%} free, less than {DISK_FREE_MIN:.0%}")
    late = facts.loop_lag_s
    found.add(bad, late > LOOP_LAG_MAX_S, f"the event loop was blocked for {late:.1f} s")
    found.add(bad, facts.damaged_ranges, f"{facts.damaged_ranges} damaged ranges are not repaired")
    return found.health()


def readiness(facts: BrokerFacts) -> list[str]:
    """Why a broker should get no traffic; empty if it should.

    Depends on no other broker but the controller.
    """
    reasons = [f"data directory {path} is offline" for path in facts.directories_offline]
    if facts.is_broker:
        if not facts.registered:
            reasons.append("the broker is not registered")
        elif facts.fenced:
            reasons.append("the broker is fenced")
    if facts.stopping:
        reasons.append("the broker is shutting down")
    if facts.metadata_lag > METADATA_LAG_MAX:
        reasons.append(f"{facts.metadata_lag} metadata records are not applied")
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The cluster as one node knows it."""

    has_controller: bool
    fenced: Sequence[int] = ()
    stopping: Sequence[int] = ()
    #: brokers that do not respond to this node, and are not fenced yet
    missing: Sequence[int] = ()
    offline_partitions: int = 0
    under_replicated: int = 0


def cluster_health(facts: ClusterFacts) -> Health:
    found = _Findings()
    found.add(Level.UNKNOWN, not facts.has_controller, "there is no active controller")
    offline = facts.offline_partitions
    found.add(Level.UNHEALTHY, offline, f"{offline} partitions have no leader")
    for broker in facts.fenced:
        found.add(Level.DEGRADED, True, f"broker {broker} is fenced")
    for broker in facts.missing:
        found.add(Level.DEGRADED, True, f"broker {broker} does not respond")
    for broker in facts.stopping:
        found.add(Level.DEGRADED, True, f"broker {broker} is shutting down")
    lacking = facts.under_replicated
    found.add(Level.DEGRADED, lacking, f"{lacking} partitions lack in-sync replicas")
    return found.health()


class TopicFacts(NamedTuple):
    """Partitions of a topic with problems."""

    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0


def topic_health(facts: TopicFacts) -> Health:
    found = _Findings()
    found.add(Level.UNHEALTHY, facts.offline, f"{facts.offline} partitions have no leader")
    below = facts.under_min_isr
    found.add(Level.UNHEALTHY, below, f"{below} partitions are below min.insync.replicas")
    lacking = facts.under_replicated
    found.add(Level.DEGRADED, lacking, f"{lacking} partitions lack in-sync replicas")
    return found.health()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """Connections of clients, and the counts of the last minute."""

    serving: bool = True
    connections: int = 0
    opened: int = 0
    refused: int = 0
    #: failed authentications and handshakes, and invalid bytes
    failed: int = 0


def client_health(facts: ClientFacts) -> Health:
    found = _Findings()
    found.add(Level.UNKNOWN, not facts.serving, "the broker does not accept clients yet")
    refused, tried = facts.refused, facts.opened + facts.refused
    found.add(Level.DEGRADED, refused, f"{refused} connections were refused in the last minute")
    share = facts.failed / max(tried, 1)
    found.add(
        Level.DEGRADED,
        tried >= CONNECTIONS_MIN and share > CONNECTION_ERRORS_MAX,
        f"{share:.1%} of the connections of the last minute have failed",
    )
    return found.health()


def report(
    broker: Health,
    cluster: Health,
    topics: Mapping[str, Health],
    clients: Health,
    details: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The document of `/health`. Of the topics, only unhealthy ones are listed, and at most `TOPICS_MAX`."""
    of_topics = Health(worst(health.level for health in topics.values()))
    parts = {"broker": broker, "cluster": cluster, "topics": of_topics, "clients": clients}
    document: dict[str, Any] = {"status": worst(part.level for part in parts.values())}
    for name, part in parts.items():
        document[name] = {"status": part.level, "reasons": list(part.reasons), **details.get(name, {})}
    listed = sorted(topics.items(), key=lambda each: (-_ORDER.index(each[1].level), each[0]))[:TOPICS_MAX]
    document["topics"]["reasons"] = [f"{name}: {why}" for name, health in listed for why in health.reasons]
    return document
