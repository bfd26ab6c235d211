"""Reads the facts of the health report from a broker's parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.monitoring.sources import Sources
from penstock.metadata.image import TopicImage
from penstock.metadata.policy import min_isr
from penstock.net.server import Server
from penstock.observability.health import (
    ORDER,
    BrokerFacts,
    ClientFacts,
    ClusterFacts,
    Finding,
    Health,
    TopicFacts,
    broker_health,
    client_health,
    cluster_health,
    topic_health,
)
from penstock.observability.health_merge import TOPICS_MAX
from penstock.observability.recent import Recent
from penstock.ports import Space

__all__ = ["HealthFacts", "Phase"]

#: partitions of one slice: a tenth of a millisecond
_PARTITIONS_AT_ONCE: Final = 1000


@dataclass(slots=True)
class Phase:
    """Whether clients are accepted, and whether the broker stops."""

    serving: bool = False
    stopping: bool = False


class HealthFacts:
    """Facts of one broker, and its findings. `sample` is called at intervals."""

    def __init__(self, sources: Sources, phase: Phase) -> None:
        self._sources = sources
        self._phase = phase
        self._recent = Recent()
        #: returns the longest delay of a timer in the last seconds
        self.loop_lag_s: Callable[[], float] = lambda: 0.0
        #: damaged ranges that no replica has repaired, as last counted
        self._damaged = 0
        #: by data directory as last measured
        self.space: Mapping[str, Space] = {}

    def findings(self, space: Mapping[str, Space]) -> Generator[None, None, list[Finding]]:
        """Compute all findings of this broker, in slices: about itself, the cluster, topics and clients."""
        self.space = space
        topics: dict[str, Health] = {}
        totals = [0, 0]
        yield from self._topics(topics, totals)
        missing = yield from self._missing()
        self._damaged = yield from self._damaged_ranges()
        found = [
            *broker_health(self.broker()).findings,
            *cluster_health(self.cluster(totals, missing)).findings,
        ]
        found += client_health(self.clients()).findings
        listed = sorted(topics.items(), key=lambda each: (-ORDER.index(each[1].level), each[0]))[:TOPICS_MAX]
        return found + [finding for _, health in listed for finding in health.findings]

    def sample(self) -> None:
        sources, clients = self._sources, self._sources.servers[0].counts
        failed = sum(
            n for (_, result), n in sources.securities.authentications.items() if result == "failure"
        )
        self._recent.add(
            sources.clock.monotonic(), clients.accepted, clients.refused, clients.rejected + failed
        )

    def broker(self) -> BrokerFacts:
        sources = self._sources
        state, partitions = sources.node.quorum.state, sources.partitions
        unhealthy = [d.path for d in partitions.directories if d.health.offline is not None]
        doubt = sources.node.clock_watch.doubt
        volumes = {path: space for path, space in self.space.items() if space.capacity > 0}
        return BrokerFacts(
            is_broker=sources.is_broker,
            registered=sources.registered(),
            fenced=sources.fenced(),
            stopping=self._phase.stopping,
            metadata_lag=max(0, state.high_watermark - sources.node.loader.applied),
            directories_offline=[*unhealthy, *partitions.data.missing],
            directories_full=[d.path for d in partitions.directories if d.health.full is not None],
            free_space={path: space.usable / space.capacity for path, space in volumes.items()},
            free_space_min={path: sources.free_share_min(each.capacity) for path, each in volumes.items()},
            loop_lag_s=self.loop_lag_s(),
            damaged_ranges=self._damaged,
            clock_doubt=doubt.reason if doubt is not None and doubt.is_alarming else "",
            metadata_diverged=sources.node.image_check.diverged or "",
        )

    def cluster(self, totals: Sequence[int], missing: Mapping[int, int]) -> ClusterFacts:
        """`totals` are those of `_topics`, `missing` is that of `_missing`."""
        image = self._sources.image
        brokers = image.brokers.values()
        return ClusterFacts(
            has_controller=self._sources.node.quorum.state.leader_id >= 0,
            fenced=sorted(broker.id for broker in brokers if broker.fenced),
            stopping=sorted(b.id for b in brokers if b.in_controlled_shutdown and not b.fenced),
            missing=missing,
            offline_partitions=len(image.leaderless),
            under_min_isr=totals[1],
            under_replicated=totals[0],
        )

    def _missing(self) -> Generator[None, None, dict[int, int]]:
        """Brokers that do not respond and are not fenced, with the number of partitions that each leads.

        Metadata responses show these partitions without a leader.
        """
        image, peers = self._sources.image, self._sources.node.peers
        silent = sorted(peers.missing() & {b.id for b in image.brokers.values() if not b.fenced})
        found = dict.fromkeys(silent, 0)
        for broker in silent:
            for number, partition in enumerate(list(image.partitions_on(broker)), 1):
                found[broker] += partition.leader == broker
                if not number % _PARTITIONS_AT_ONCE:
                    yield
        return found

    def _damaged_ranges(self) -> Generator[None, None, int]:
        """Count the damage of open logs. Why no counters: a range also ends with its topic."""
        found = 0
        for number, partition in enumerate(list(self._sources.partitions), 1):
            found += len(partition.log.recovery.corruption)
            if not number % _PARTITIONS_AT_ONCE:
                yield
        return found

    def replicas_behind(self) -> Generator[None, None, int]:
        """Count the replicas of this broker that are not in sync. One that is being added does not count."""
        found, own = 0, self._sources.node_id
        for number, partition in enumerate(list(self._sources.image.partitions_on(own)), 1):
            found += own not in partition.isr and own not in partition.adding
            if not number % _PARTITIONS_AT_ONCE:
                yield
        return found

    def _topics(self, found: dict[str, Health], totals: list[int]) -> Iterator[None]:
        """Fill `found` with unhealthy topics, and `totals`: partitions that lack replicas, below minimum."""
        image = self._sources.image
        for topic in list(image.topics.values()):
            facts = self._topic(topic)
            if any(facts):
                found[topic.name] = topic_health(topic.name, facts)
                totals[0] += facts.under_replicated
                totals[1] += facts.under_min_isr
            yield

    def _topic(self, topic: TopicImage) -> TopicFacts:
        offline = lacking = below = 0
        image = self._sources.image
        for partition in topic.partitions.values():
            offline += partition.leader < 0
            wanted = len(partition.replicas) - len(partition.adding)
            if len(partition.isr) < wanted:
                lacking += 1
                minimum = min_isr(image, topic.name, len(partition.replicas))
                below += len(partition.isr) < minimum and partition.leader >= 0
        return TopicFacts(offline, below, lacking)

    def clients(self) -> ClientFacts:
        server: Server = self._sources.servers[0]
        opened, refused, failed = self._recent.growth() or (0, 0, 0)
        return ClientFacts(
            serving=self._phase.serving,
            connections=len(server.connections),
            opened=opened,
            refused=refused,
            failed=failed,
        )

    def details(self) -> dict[str, dict[str, Any]]:
        """More for a reader: when the broker last ran, how fast it responds, its errors and partitions."""
        sources = self._sources
        apis = sources.metrics.apis.values()
        return {
            "broker": {
                "id": sources.node_id,
                "last_seen_ms": sources.clock.now_ms(),
                "response_time_ms": round(self.loop_lag_s() * 1000, 3),
                "error_count": sum(sum(stats.errors.values()) + stats.failures for stats in apis),
                "partitions": sum(1 for _ in sources.partitions),
            },
            "cluster": {
                "controller": sources.node.quorum.state.leader_id,
                "brokers": {
                    str(broker.id): "fenced" if broker.fenced else "active"
                    for broker in sources.image.brokers.values()
                },
            },
            "topics": {"count": len(sources.image.topics)},
            "clients": {"connections": len(sources.servers[0].connections)},
        }
