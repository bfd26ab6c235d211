"""What topics ask of their partitions: how many replicas make a record safe, and what counts more.

A topic's own config decides, then what was altered for all brokers, then the config file, as the shell passes
it in. The first two are the image's: a controller that is no broker takes over no altered configs.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.metadata.image import BROKER, ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "Policy"]

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class Policy(NamedTuple):
    """What holds where nothing else is set."""

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False

    def min_isr(self, image: ClusterImage, topic: str, replicas: int) -> int:
        """The smallest ISR that lets a partition with that many replicas acknowledge."""
        configured = _altered(image, topic, MIN_ISR)
        return min(self.min_insync_replicas if configured is None else int(configured), replicas)

    def unclean(self, image: ClusterImage, topic: str) -> bool:
        """Whether a replica that may lack acknowledged records may lead where no other is left."""
        configured = _altered(image, topic, UNCLEAN)
        return self.unclean_leader_election if configured is None else configured.lower() == "true"


def _altered(image: ClusterImage, topic: str, name: str) -> str | None:
    return image.topic_configs(topic).get(name, image.configs.get((BROKER, ""), {}).get(name))
