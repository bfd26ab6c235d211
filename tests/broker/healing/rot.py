"""Damage in the files of a log."""

from __future__ import annotations

from penstock.storage.segment_files import LOG
from tests.broker.nodes import Cluster
from tests.broker.replication import (
    replica,
)


def damage(nodes: Cluster, node: int) -> None:
    """Flip a bit in the middle of a sealed segment."""
    segment = replica(nodes[node]).log.segments.first
    flip(nodes, node, segment.path(LOG), segment.size // 2)


def flip(nodes: Cluster, node: int, path: str, position: int) -> None:
    file = nodes.disks[node].open(path)
    (byte,) = file.pread(1, position)
    file.pwrite(bytes([byte ^ 4]), position)
