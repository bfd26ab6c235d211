"""The policy of a topic: its minimum ISR, and its strategy of unclean recovery.

A topic's own config decides, then what was altered for all brokers, which are the image's: a controller that
is no broker takes over no altered configs. The minimum ISR of all brokers is always there (`settle_min_isr`),
so leaders and controllers count alike whatever their config files say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from penstock.metadata.image import BROKER, ClusterImage

__all__ = ["MIN_ISR", "UNCLEAN", "UNCLEAN_RECOVERY", "Policy", "Strategy", "min_isr"]

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
UNCLEAN_RECOVERY = "unclean.recovery.strategy"


class Strategy(Enum):
    """When a replica that may lack acknowledged records is elected (`unclean.recovery.strategy`)."""

    NONE = "none"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


class Policy(NamedTuple):
    """The defaults, from the active controller's config file."""

    unclean_leader_election: bool = False
    unclean_recovery: Strategy = Strategy.BALANCED
    #: brokers whose clocks are wrong: they lead only where no other in-sync replica can
    clocks_off: Collection[int] = ()

    def unclean(self, image: ClusterImage, topic: str) -> bool:
        """Whether the topic would rather lose acknowledged records than wait for a leader."""
        return self._strategy(image, topic) is Strategy.AGGRESSIVE

    def strategy(self, image: ClusterImage, topic: str) -> Strategy:
        """How a leader is found where neither ISR nor ELR has one."""
        return Strategy.AGGRESSIVE if self.unclean(image, topic) else self._strategy(image, topic)

    def _strategy(self, image: ClusterImage, topic: str) -> Strategy:
        """The topic's own configs decide, then those of all brokers, then the config file.

        On each level `unclean.leader.election.enable=true` means aggressive.
        """
        levels: tuple[Mapping[str, str], ...] = (
            image.topic_configs(topic),
            image.configs.get((BROKER, ""), {}),
            {UNCLEAN: str(self.unclean_leader_election), UNCLEAN_RECOVERY: self.unclean_recovery.value},
        )
        forbidden = False
        for values in levels:
            enabled = values.get(UNCLEAN, "").lower()
            if enabled == "true" and not forbidden:
                return Strategy.AGGRESSIVE
            if UNCLEAN_RECOVERY in values:
                return Strategy(values[UNCLEAN_RECOVERY].lower())
            forbidden = forbidden or enabled == "false"
        return self.unclean_recovery


def min_isr(image: ClusterImage, topic: str, replicas: int) -> int:
    """The smallest ISR that lets a partition with that many replicas acknowledge."""
    configured = image.topic_configs(topic).get(MIN_ISR, image.configs.get((BROKER, ""), {}).get(MIN_ISR))
    return min(int(configured or 1), replicas)
