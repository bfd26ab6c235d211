"""How fast replicas may catch up: which are throttled, by topic configs, and to how much, by broker configs.

`leader.replication.throttled.replicas` and its sibling for followers name replicas as PARTITION:BROKER, or
all with `*`; the rates are per broker and over all its partitions. Replicas that the controller adds by
itself are throttled, at a rate of its own where none is set; while `penstock.balance` is on, so is every
replica that is being added.
Replicas in sync are never throttled: they would fall out of sync, and writers wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.metadata.image import Origin
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicId
from penstock.replication.throttle import ReplicationThrottle

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker
    from penstock.broker.replica.partition import Partition

__all__ = ["Throttles", "rate_of_copies"]

_LEADER: Final = "leader.replication.throttled.replicas"
_FOLLOWER: Final = "follower.replication.throttled.replicas"
_NO_LIMIT: Final = 2**63 - 1
_OFF: Final = "off"


class Throttles:
    """Both sides' budgets of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.leader = ReplicationThrottle(None, 0)
        self.follower = ReplicationThrottle(None, 0)
        #: topics that throttle anything; not known before the first change that we hear of
        self._topics: set[str] | None = None
        #: whether the controller may add replicas by itself
        self._moves_itself = False
        #: whether anything may have been throttled after the last change
        self._was_used = False

    def reconfigure(self, topics: Iterable[str]) -> bool:
        """Take over the configs of `topics` that changed; whether followers have to be looked at."""
        image, config = self._broker.image, self._broker.config
        now_ms = int(self._broker.clock.monotonic() * 1000)
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
        return self._broker.config.penstock_balance != _OFF

    def holds_follower(self, topic_id: TopicId, index: int) -> bool:
        """Whether this broker's replica, which follows, is throttled."""
        if not self._topics and not self._moves_itself:
            return False
        node, topic = self._broker.node_id, self._broker.image.topics_by_id[topic_id]
        partition = topic.partitions[index]
        if node in partition.isr:
            return False
        if node in partition.adding and (self._balances or partition.origin != Origin.REQUEST):
            return True
        return self._names(topic.name, _FOLLOWER, index, node)

    def holds_leader(self, partition: Partition, replica: int) -> bool:
        """Whether what `replica` fetches of a partition that is led here is throttled."""
        leadership = partition.leadership
        return (
            self._topics is not None
            and partition.topic in self._topics
            and leadership is not None
            and replica not in leadership.state.isr
            and self._names(partition.topic, _LEADER, partition.index, self._broker.node_id)
        )

    def _names(self, topic: str, key: str, index: int, node: int) -> bool:
        named = self._broker.image.topic_configs(topic).get(key, "").split(",")
        return "*" in named or f"{index}:{node}" in named


def rate_of_copies(config: BrokerConfig, *, by_itself: bool) -> int | None:
    """Bytes per second that throttled followers may fetch; None where there is no limit.

    Replicas that the controller adds `by_itself` always have one.
    """
    rate = _rate(config.follower_replication_throttled_rate)
    return config.penstock_balance_bytes_per_second if rate is None and by_itself else rate


def _rate(configured: int) -> int | None:
    return None if configured >= _NO_LIMIT else configured
