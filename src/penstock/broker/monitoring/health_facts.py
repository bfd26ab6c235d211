"""Reads the facts of the health report from a broker's parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.broker.monitoring.sources import Snapshot, Sources
from penstock.metadata.image import TopicImage
from penstock.metadata.policy import min_isr
from penstock.net.server import Server
from penstock.observability.health import (
    BrokerFacts,
    ClientFacts,
    ClusterFacts,
    Health,
    TopicFacts,
    topic_health,
)
from penstock.observability.recent import Recent

__all__ = ["HealthFacts"]


class HealthFacts:
    """Facts of one broker. `sample` is called at intervals, for the counts of the last minute."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._recent = Recent()
        #: set once clients are accepted, and when the broker begins to stop
        self.serving = False
        self.stopping = False

    def sample(self) -> None:
        sources, clients = self._sources, self._sources.servers[0].counts
        failed = sum(
            n for (_, result), n in sources.securities.authentications.items() if result == "failure"
        )
        self._recent.add(
            sources.clock.monotonic(), clients.accepted, clients.refused, clients.rejected + failed
        )

    def broker(self, snapshot: Snapshot | None, loop_lag_s: float) -> BrokerFacts:
        """Without a snapshot the free space is not known, and not a fact."""
        sources = self._sources
        state, partitions, metrics = sources.node.quorum.state, sources.partitions, sources.metrics
        space = {} if snapshot is None else snapshot.space
        unhealthy = [d.path for d in partitions.directories if d.health.offline is not None]
        return BrokerFacts(
            is_broker=sources.is_broker,
            registered=sources.registered(),
            fenced=sources.fenced(),
            stopping=self.stopping,
            metadata_lag=max(0, state.high_watermark - sources.node.loader.applied),
            directories_offline=[*unhealthy, *partitions.data.missing],
            directories_full=[d.path for d in partitions.directories if d.health.full is not None],
            free_space={path: free / total for path, (total, free) in space.items() if total > 0},
            loop_lag_s=loop_lag_s,
            damaged_ranges=max(0, metrics.corruption_found - metrics.corruption_repaired),
        )

    def cluster(self, under_replicated: int) -> ClusterFacts:
        image = self._sources.image
        brokers = image.brokers.values()
        return ClusterFacts(
            has_controller=self._sources.node.quorum.state.leader_id >= 0,
            fenced=sorted(broker.id for broker in brokers if broker.fenced),
            stopping=sorted(b.id for b in brokers if b.in_controlled_shutdown and not b.fenced),
            missing=sorted(self._sources.node.peers.missing() & {b.id for b in brokers if not b.fenced}),
            offline_partitions=len(image.leaderless),
            under_replicated=under_replicated,
        )

    def topics(self, found: dict[str, Health], totals: list[int]) -> Iterator[None]:
        """Fill `found` with unhealthy topics, and `totals` with their partitions that lack replicas."""
        image = self._sources.image
        for topic in list(image.topics.values()):
            facts = self._topic(topic)
            if any(facts):
                found[topic.name] = topic_health(facts)
                totals.append(facts.under_replicated)
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
            serving=self.serving,
            connections=len(server.connections),
            opened=opened,
            refused=refused,
            failed=failed,
        )

    def details(self, loop_lag_s: float) -> dict[str, dict[str, Any]]:
        """More for a reader: when the broker last ran, how fast it responds, its errors and partitions."""
        sources = self._sources
        apis = sources.metrics.apis.values()
        return {
            "broker": {
                "id": sources.node_id,
                "last_seen_ms": sources.clock.now_ms(),
                "response_time_ms": round(loop_lag_s * 1000, 3),
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
