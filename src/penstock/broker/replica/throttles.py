"""Replication quotas (KIP-73): topic configs select the throttled replicas, broker configs set the rates.

`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` name replicas as
PARTITION:BROKER, or all replicas with `*`. A rate holds for all partitions of a broker together. Replicas
that the controller adds by itself are always throttled, at `penstock.balance.bytes.per.second` if no rate is
set. While `penstock.balance` is on, every replica that is being added is throttled.

Invariant: in-sync replicas are never throttled. They would leave the ISR, and producers wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.broker.replica.partition import Partition
from penstock.metadata.image import ClusterImage, Origin
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicId
from penstock.ports import Clock
from penstock.replication.throttle import ReplicationThrottle

__all__ = ["Throttles", "rate_of_copies"]

_LEADER: Final = "leader.replication.throttled.replicas"
_FOLLOWER: Final = "follower.replication.throttled.replicas"
_NO_LIMIT: Final = 2**63 - 1
_OFF: Final = "off"


class Throttles:
    """The replication quotas of one broker, as leader and as follower."""

    def __init__(self, config: BrokerConfig, image: ClusterImage, clock: Clock) -> None:
        self._config = config
        self._node_id = config.node_id
        self._image = image
        self._clock = clock
        self.leader = ReplicationThrottle(None, 0)
        self.follower = ReplicationThrottle(None, 0)
        #: topics with throttled replicas; None until the first change of configs or partitions is applied
        self._topics: set[str] | None = None
        #: true if the controller may add replicas by itself
        self._moves_itself = False
        #: true if a replica may have been throttled after the last change
        self._was_used = False

    def reconfigure(self, topics: Iterable[str]) -> bool:
        """Apply the changed configs of `topics`; returns true if the throttled followers may have changed."""
        image, config = self._image, self._config
        now_ms = int(self._clock.monotonic() * 1000)
        self.leader.change_rate(_rate(config.leader_replication_throttled_rate), now_ms)
        self._moves_itself = self._balances or any(
            partition.origin != Origin.REQUEST for partition in image.reassigning.values()
        )
        self.follower.change_rate(rate_of_copies(config, by_itself=self._moves_itself), now_ms)
        if self._topics is None:
            self._topics, topics = set(), image.topics
        for name in topics:
            configs = image.topic_configs(name)
            if configs.get(_LEADER) or configs.get(_FOLLOWER):
                self._topics.add(name)
            else:
                self._topics.discard(name)
        was_used, self._was_used = self._was_used, bool(self._topics or self._moves_itself)
        return was_used or self._was_used

    @property
    def _balances(self) -> bool:
        return self._config.penstock_balance != _OFF

    def holds_follower(self, topic_id: TopicId, index: int) -> bool:
        """Returns true if this broker's replica, a follower, is throttled."""
        if not self._topics and not self._moves_itself:
            return False
        node, topic = self._node_id, self._image.topics_by_id[topic_id]
        partition = topic.partitions[index]
        if node in partition.isr:
            return False
        if node in partition.adding and (self._balances or partition.origin != Origin.REQUEST):
            return True
        return self._names(topic.name, _FOLLOWER, index, node)

    def holds_leader(self, partition: Partition, replica: int) -> bool:
        """Returns true if fetches of `replica` from a partition that this broker leads are throttled."""
        leadership = partition.leadership
        return (
            self._topics is not None
            and partition.topic in self._topics
            and leadership is not None
            and replica not in leadership.state.isr
            and self._names(partition.topic, _LEADER, partition.index, self._node_id)
        )

    def _names(self, topic: str, key: str, index: int, node: int) -> bool:
        named = self._image.topic_configs(topic).get(key, "").split(",")
        return "*" in named or f"{index}:{node}" in named


def rate_of_copies(config: BrokerConfig, *, by_itself: bool) -> int | None:
    """Bytes per second that throttled followers may fetch; None if there is no limit.

    Replicas that the controller adds `by_itself` always have a limit.
    """
    rate = _rate(config.follower_replication_throttled_rate)
    return config.penstock_balance_bytes_per_second if rate is None and by_itself else rate


def _rate(configured: int) -> int | None:
    return None if configured >= _NO_LIMIT else configured
