"""The one definition of health: facts in, findings with levels and reasons out.

Every broker judges itself, the cluster, its topics and its clients by these functions. All views of health
show these findings: `/health`, `/readyz`, the metrics, `penstock health`, `penstock cluster status` and the
console. `penstock.observability.health_merge` merges the reports of several brokers.

A level that is not Healthy always has a finding that names the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.model.config.storage_keys import DISK_FREE_MIN

__all__ = [
    "BrokerFacts",
    "ClientFacts",
    "ClusterFacts",
    "Finding",
    "Health",
    "Level",
    "Part",
    "TopicFacts",
    "broker_health",
    "client_health",
    "cluster_health",
    "counted",
    "free_share_min",
    "public_reasons",
    "readiness",
    "topic_health",
    "worst",
]

#: more failed connections than this share of all is a problem
CONNECTION_ERRORS_MAX: Final = 0.01
#: fewer connections than this say nothing about their share
CONNECTIONS_MIN: Final = 20
#: a loop that runs timers this late hardly serves requests
LOOP_LAG_MAX_S: Final = 1.0
#: metadata records that a node may still have to apply
METADATA_LAG_MAX: Final = 1000


class Level(StrEnum):
    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


#: from the best to the worst
ORDER: Final = (Level.HEALTHY, Level.DEGRADED, Level.UNKNOWN, Level.UNHEALTHY)


class Part(StrEnum):
    """What a finding is about."""

    BROKER = "broker"
    CLUSTER = "cluster"
    TOPICS = "topics"
    CLIENTS = "clients"


class Finding(NamedTuple):
    """One reason for a level below Healthy."""

    part: Part
    level: Level
    #: a stable name of the cause: the label of the metric, and for scripts
    code: str
    #: the cause in words, with paths and names
    reason: str
    #: the broker or topic that it is about, if it is one of many
    subject: str = ""
    #: as `reason`, without names and paths; empty if `reason` has none
    public: str = ""


class Health(NamedTuple):
    level: Level
    findings: tuple[Finding, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(finding.reason for finding in self.findings)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Health:
        """The level is that of the worst finding, which comes first."""
        found = tuple(sorted(findings, key=lambda each: -ORDER.index(each.level)))
        return cls(found[0].level if found else Level.HEALTHY, found)


def worst(levels: Iterable[Level]) -> Level:
    return max(levels, key=ORDER.index, default=Level.HEALTHY)


def counted(number: int, one: str, many: str) -> str:
    """`counted(1, "partition has", "partitions have")` is "1 partition has"."""
    return f"{number} {one if number == 1 else many}"


class _Findings:
    """Collects the findings of one part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._found: list[Finding] = []

    def add(
        self, level: Level, applies: object, code: str, reason: str, subject: object = "", public: str = ""
    ) -> None:
        if applies:
            self._found.append(Finding(self._part, level, code, reason, str(subject), public))

    def health(self) -> Health:
        return Health.of(self._found)


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
    #: the free share below which each is low on space; `DISK_FREE_MIN` for others
    free_space_min: Mapping[str, float] = field(default_factory=dict)
    #: the longest delay of a timer in the last seconds
    loop_lag_s: float = 0.0
    damaged_ranges: int = 0
    #: why nothing is deleted by time; empty while the clock is believed, and if an operator need not know
    clock_doubt: str = ""
    #: how the broker's metadata differs from the other nodes'; empty if it does not
    metadata_diverged: str = ""


def broker_health(facts: BrokerFacts) -> Health:
    found = _Findings(Part.BROKER)
    bad, worse = Level.DEGRADED, Level.UNHEALTHY
    for path in facts.directories_offline:
        public = counted(len(facts.directories_offline), "data directory is", "data directories are")
        found.add(
            worse, True, "directory_offline", f"data directory {path} is offline", path, f"{public} offline"
        )
    for path in facts.directories_full:
        public = counted(len(facts.directories_full), "data directory is", "data directories are")
        found.add(worse, True, "directory_full", f"data directory {path} is full", path, f"{public} full")
    if facts.is_broker:
        found.add(worse, not facts.registered, "not_registered", "the broker is not registered")
        found.add(worse, facts.registered and facts.fenced, "fenced", "the broker is fenced")
    found.add(bad, facts.stopping, "stopping", "the broker is shutting down")
    lag, damaged, late = facts.metadata_lag, facts.damaged_ranges, facts.loop_lag_s
    found.add(bad, lag > METADATA_LAG_MAX, "metadata_behind", f"{lag} metadata records are not applied")
    diverged = facts.metadata_diverged
    found.add(bad, diverged, "metadata_diverged", f"the metadata differs from the other brokers': {diverged}")
    _add_low_space(found, facts)
    blocked = f"the event loop was blocked for {late:.1f} s"
    found.add(bad, late > LOOP_LAG_MAX_S, "loop_blocked", blocked)
    unrepaired = counted(damaged, "damaged range is", "damaged ranges are")
    found.add(bad, damaged, "damaged", f"{unrepaired} not repaired")
    found.add(bad, facts.clock_doubt, "clock_doubted", f"nothing is deleted by time: {facts.clock_doubt}")
    return found.health()


def free_share_min(capacity: int, ratio: float, enough_bytes: int) -> float:
    """The free share below which a volume of this capacity is low on space.

    `ratio` and `enough_bytes` are `penstock.disk.free.min.ratio` and `penstock.disk.free.min.bytes`.
    """
    return min(ratio, enough_bytes / capacity)


def _add_low_space(found: _Findings, facts: BrokerFacts) -> None:
    least = {path: facts.free_space_min.get(path, DISK_FREE_MIN) for path in facts.free_space}
    low = {
        path: free
        for path, free in facts.free_space.items()
        if free < least[path] and path not in facts.directories_full
    }
    limit = max((least[path] for path in low), default=0.0)
    public = counted(len(low), "volume has", "volumes have") + f" less than {_percent(limit)} free"
    for path, free in low.items():
        reason = f"the volume of {path} has {_percent(free)} free, less than {_percent(least[path])}"
        found.add(Level.DEGRADED, True, "disk_low", reason, path, public)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share * 100:.2g}%"


#: findings with which a broker should get no traffic. None depends on a broker other than the controller.
_NOT_READY: Final = frozenset(
    {"directory_offline", "not_registered", "fenced", "stopping", "metadata_behind"}
)


def readiness(health: Health) -> list[str]:
    """Why a broker should get no traffic, of its own findings; empty if it should.

    Names no path and no topic: probes need no token.
    """
    return [reason for _, reason in public_reasons(f for f in health.findings if f.code in _NOT_READY)]


def public_reasons(findings: Iterable[Finding]) -> list[tuple[Level, str]]:
    """Each level and reason once, without names and paths."""
    return list(dict.fromkeys((finding.level, finding.public or finding.reason) for finding in findings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The cluster as one node knows it."""

    has_controller: bool
    fenced: Sequence[int] = ()
    stopping: Sequence[int] = ()
    #: brokers that do not respond to this node, and are not fenced yet; with the number of partitions that
    #: each leads
    missing: Mapping[int, int] = field(default_factory=dict)
    offline_partitions: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0


def cluster_health(facts: ClusterFacts) -> Health:
    found = _Findings(Part.CLUSTER)
    found.add(Level.UNKNOWN, not facts.has_controller, "no_controller", "there is no active controller")
    _add_partitions(found, facts.offline_partitions, facts.under_min_isr, facts.under_replicated)
    for broker in facts.fenced:
        found.add(Level.DEGRADED, True, "broker_fenced", f"broker {broker} is fenced", broker)
    for broker, led in facts.missing.items():
        # Metadata responses show these without a leader until the controller elects another one.
        are = counted(led, "partition is", "partitions are")
        reason = f"{are} led by broker {broker}, which does not respond"
        found.add(Level.UNHEALTHY, led, "leader_silent", reason, broker)
        found.add(Level.DEGRADED, True, "broker_silent", f"broker {broker} does not respond", broker)
    for broker in facts.stopping:
        found.add(Level.DEGRADED, True, "broker_stopping", f"broker {broker} is shutting down", broker)
    return found.health()


def _add_partitions(found: _Findings, offline: int, below: int, lacking: int, subject: str = "") -> None:
    prefix = f"{subject}: " if subject else ""
    without = counted(offline, "partition has", "partitions have")
    found.add(Level.UNHEALTHY, offline, "offline_partitions", f"{prefix}{without} no leader", subject)
    under = counted(below, "partition is", "partitions are")
    reason = f"{prefix}{under} below min.insync.replicas"
    found.add(Level.UNHEALTHY, below, "below_min_isr", reason, subject)
    lack = counted(lacking, "partition lacks", "partitions lack")
    found.add(Level.DEGRADED, lacking, "under_replicated", f"{prefix}{lack} in-sync replicas", subject)


class TopicFacts(NamedTuple):
    """Partitions of a topic with problems."""

    offline: int = 0
    under_min_isr: int = 0
    under_replicated: int = 0


def topic_health(name: str, facts: TopicFacts) -> Health:
    found = _Findings(Part.TOPICS)
    _add_partitions(found, *facts, subject=name)
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
    found = _Findings(Part.CLIENTS)
    found.add(Level.UNKNOWN, not facts.serving, "not_serving", "the broker does not accept clients yet")
    refused, tried = facts.refused, facts.opened + facts.refused
    were = counted(refused, "connection was", "connections were")
    found.add(Level.DEGRADED, refused, "connections_refused", f"{were} refused in the last minute")
    share = facts.failed / max(tried, 1)
    found.add(
        Level.DEGRADED,
        tried >= CONNECTIONS_MIN and share > CONNECTION_ERRORS_MAX,
        "connections_failed",
        f"{share:.1%} of the connections of the last minute have failed",
    )
    return found.health()
