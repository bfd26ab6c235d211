"""The fourth stage of a broker: scrubbing, repairs, and data directories that are full or have failed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.app.cluster import Cluster
from penstock.broker.app.storage import Storage
from penstock.broker.app.upward_port import UpwardPort
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.full_directories import FullDirectories
from penstock.broker.healing.scrubber import Scrubber
from penstock.model.config import BrokerConfig
from penstock.ports import World

__all__ = ["Healing", "compose_healing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Healing:
    """Finds and repairs damage of this broker's replicas."""

    #: the dependencies of every repair
    repairs: RepairEnvironment
    scrubber: Scrubber
    full_directories: FullDirectories


def compose_healing(
    config: BrokerConfig, world: World, storage: Storage, cluster: Cluster, upward: UpwardPort
) -> Healing:
    partitions, metrics = storage.partitions, storage.metrics
    repairs = RepairEnvironment(
        config.node_id,
        config,
        cluster.image,
        world.files,
        world.workers,
        world.clock,
        metrics,
        cluster.node.peers.get,
    )
    return Healing(
        repairs=repairs,
        scrubber=Scrubber(repairs, partitions, upward.review),
        full_directories=FullDirectories(
            partitions, world.workers, metrics, upward.review, upward.heartbeat_due
        ),
    )
