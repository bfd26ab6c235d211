"""The dependencies of all repairs of replicas, and their steps on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.net.client import Peer
from penstock.ports import Clock, File, Files, Workers

__all__ = ["RepairEnvironment", "sync_files"]


@dataclass(frozen=True, slots=True)
class RepairEnvironment:
    """The dependencies of every repair: cluster metadata, disk, and connections to other brokers."""

    node_id: int
    config: BrokerConfig
    image: ClusterImage
    files: Files
    workers: Workers
    clock: Clock
    metrics: Metrics
    #: a connection to a node's internal listener, by node id and purpose; PeerGone if its address is unknown
    peer: Callable[[int, str], Peer]


async def sync_files(env: RepairEnvironment, partition: Partition, files: Iterable[File]) -> None:
    """Sync files in a worker thread; the data directory goes offline if that fails."""
    for file in files:
        try:
            await env.workers.in_thread(file.sync)
        except OSError as e:
            raise partition.health.sync_failed(e, f"cannot sync {file.path}") from e
