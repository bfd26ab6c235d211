"""Throttles of a reassignment: Kafka's, that is a rate of brokers for replicas that topics name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.cli.alteration import alter_configs, broker_resource, config_entries, topic_resource
from penstock.cli.connection import Cluster
from penstock.metadata.rebalance import Move

__all__ = ["remove_throttle", "set_throttle"]

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_THROTTLES: Final = frozenset({*_RATES, *_REPLICAS})


def set_throttle(cluster: Cluster, moves: Sequence[Move], bytes_per_s: int) -> None:
    """Let every broker spend so many bytes a second on these moves, each way."""
    for broker in _brokers(cluster):
        alter_configs(cluster, broker_resource(broker), dict.fromkeys(_RATES, str(bytes_per_s)))
    for topic in _topics(moves):
        alter_configs(cluster, topic_resource(topic), dict.fromkeys(_REPLICAS, "*"))


def remove_throttle(cluster: Cluster, moves: Sequence[Move]) -> None:
    """Lift what `set_throttle` has set, if anything."""
    resources = [*map(topic_resource, _topics(moves)), *map(broker_resource, _brokers(cluster))]
    for resource in resources:
        entries = config_entries(cluster, resource)
        removed = [
            e["name"] for e in entries if e["name"] in _THROTTLES and e["source"].startswith("DYNAMIC")
        ]
        if removed:
            alter_configs(cluster, resource, {}, removed)


def _topics(moves: Iterable[Move]) -> list[str]:
    return sorted({move.partition.topic for move in moves})


def _brokers(cluster: Cluster) -> list[str]:
    return sorted(str(broker) for broker in cluster.metadata(cluster.admin).brokers)
