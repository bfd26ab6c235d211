"""The parts of the broker that repairs and comparisons of replicas use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.broker.base.metrics import Metrics
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.net.client import Peer
from penstock.ports import Clock, Files, Workers

__all__ = ["RepairEnvironment"]


@dataclass(frozen=True, slots=True)
class RepairEnvironment:
    """What every repair needs: the metadata, the disk, and the other brokers."""

    node_id: int
    config: BrokerConfig
    image: ClusterImage
    files: Files
    workers: Workers
    clock: Clock
    metrics: Metrics
    #: a connection to a node's internal listener, by node id and purpose; PeerGone if its address is unknown
    peer: Callable[[int, str], Peer]
