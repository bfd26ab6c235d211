"""What topics ask of their partitions: how many replicas make a record safe, and what counts more.

A topic's own config decides, then what was altered for all brokers, which are the image's: a controller that
is no broker takes over no altered configs. The minimum ISR of all brokers is always there (`settle_min_isr`),
so leaders and controllers count alike whatever their config files say.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.metadata.image import BROKER, ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "Policy", "min_isr"]

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


class Policy(NamedTuple):
    """What holds where nothing else is set, by the active controller's config file."""

    unclean_leader_election: bool = False
    #: brokers whose clocks are wrong: they lead only where no other in-sync replica can
    clocks_off: Collection[int] = ()

    def unclean(self, image: ClusterImage, topic: str) -> bool:
        """Whether a replica that may lack acknowledged records may lead where no other is left."""
        configured = _altered(image, topic, UNCLEAN)
        return self.unclean_leader_election if configured is None else configured.lower() == "true"


def min_isr(image: ClusterImage, topic: str, replicas: int) -> int:
    """The smallest ISR that lets a partition with that many replicas acknowledge."""
    return min(int(_altered(image, topic, MIN_ISR) or 1), replicas)


def _altered(image: ClusterImage, topic: str, name: str) -> str | None:
    return image.topic_configs(topic).get(name, image.configs.get((BROKER, ""), {}).get(name))
