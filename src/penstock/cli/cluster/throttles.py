"""Throttles of a reassignment, as in Kafka: a rate of brokers, for replicas that topic configs name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from penstock.cli.alteration import alter_configs, broker_resource, config_entries, topic_resource
from penstock.cli.connection import Cluster
from penstock.metadata.rebalance import Move
from penstock.model.ids import TopicPartition

__all__ = ["remove_throttle", "set_throttle"]

_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_THROTTLES: Final = frozenset({*_RATES, *_REPLICAS})


def set_throttle(cluster: Cluster, moves: Sequence[Move], bytes_per_s: int) -> None:
    """Limit every broker to this many bytes per second for these moves, in each direction."""
    for broker in _brokers(cluster):
        alter_configs(cluster, broker_resource(broker), dict.fromkeys(_RATES, str(bytes_per_s)))
    for topic in sorted({move.partition.topic for move in moves}):
        alter_configs(cluster, topic_resource(topic), dict.fromkeys(_REPLICAS, "*"))


def remove_throttle(
    cluster: Cluster, partitions: Iterable[TopicPartition], moving: Collection[TopicPartition]
) -> None:
    """Remove the throttle that `set_throttle` has set for moves of `partitions`.

    Topics that are still `moving` keep their throttle, and so do the rates that all moves share.
    """
    topics = {partition.topic for partition in partitions} - {partition.topic for partition in moving}
    brokers = [] if moving else _brokers(cluster)
    for resource in (*map(broker_resource, brokers), *map(topic_resource, sorted(topics))):
        entries = config_entries(cluster, resource)
        removed = [
            e["name"] for e in entries if e["name"] in _THROTTLES and e["source"].startswith("DYNAMIC")
        ]
        if removed:
            alter_configs(cluster, resource, {}, removed)


def _brokers(cluster: Cluster) -> list[str]:
    return sorted(str(broker) for broker in cluster.metadata(cluster.admin).brokers)
