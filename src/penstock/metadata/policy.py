"""What topics ask of their partitions: how many replicas make a record safe, and what counts more.

A topic's own config decides, then the cluster's default, which the shell passes in (it knows every source).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.metadata.image import ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "Policy"]

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class Policy(NamedTuple):
    """The cluster's defaults."""

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False

    def min_isr(self, image: ClusterImage, topic: str, replicas: int) -> int:
        """The smallest ISR that lets a partition with that many replicas acknowledge."""
        configured = image.topic_configs(topic).get(MIN_ISR)
        return min(self.min_insync_replicas if configured is None else int(configured), replicas)

    def unclean(self, image: ClusterImage, topic: str) -> bool:
        """Whether a replica that may lack acknowledged records may lead where no other is left."""
        configured = image.topic_configs(topic).get(UNCLEAN)
        return self.unclean_leader_election if configured is None else configured.lower() == "true"
