"""Kills in one order: the leader of a share partition, its group coordinator, the leader of its state.

They come 0.3 to 3 s apart, so that most of them hit a cluster in which the last broker is not back in sync.
A broker is started again 0.1 to 2 s after its kill.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from penstock.coordination.partitioning import partition_of

__all__ = ["DOWN_S", "PAUSE_S", "Brokers", "SharePartition", "kill_in_turn", "start_due"]

PAUSE_S: Final = (0.3, 3.0)
DOWN_S: Final = (0.1, 2.0)
_REQUEST_S: Final = 1.0
_START_S: Final = 30.0
_LOOK_S: Final = 0.2
_OFFSETS: Final = "__consumer_offsets"
_STATES: Final = "__share_group_state"


class Brokers(Protocol):
    """Brokers as processes."""

    @property
    def bootstrap(self) -> str: ...

    def runs(self, node: int) -> bool: ...

    def kill(self, node: int) -> None: ...

    def start(self, node: int) -> None: ...


class SharePartition(NamedTuple):
    """A partition that a share group reads."""

    group: str
    topic: str
    #: as Kafka prints it
    topic_id: str
    partition: int

    def chain(self, groups: int, states: int) -> tuple[tuple[str, int], ...]:
        """The partitions whose leaders a delivery depends on: records, group, state.

        `groups` and `states` are the numbers of partitions of the internal topics.
        """
        key = f"{self.group}:{self.topic_id}:{self.partition}"
        return (
            (self.topic, self.partition),
            (_OFFSETS, partition_of(self.group, groups)),
            (_STATES, partition_of(key, states)),
        )


def kill_in_turn(
    brokers: Brokers,
    topic: str,
    group: str,
    rng: random.Random,
    kills: int,
    say: Callable[[str], None],
) -> int:
    """Kill leaders in turn, and start each broker again a moment later. Returns the number of kills."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=_START_S)[topic].result()
    chosen = rng.randrange(len(described.partitions))
    share = SharePartition(group, topic, str(described.topic_id), chosen)
    chain = share.chain(*(_partitions(admin, name) for name in _INTERNAL))
    back: dict[int, float] = {}
    done, began = 0, time.monotonic()
    while done < kills:
        name, partition = chain[done % len(chain)]
        node = _leader(admin, name, partition)
        if node is None or not brokers.runs(node):
            # The last kill has hit the leader of this partition, too: the next one is not elected yet.
            start_due(brokers, back, time.monotonic() + PAUSE_S[0])
            continue
        say(f"{time.monotonic() - began:6.1f} s  kill {node}, the leader of {name}-{partition}")
        brokers.kill(node)
        back[node] = time.monotonic() + rng.uniform(*DOWN_S)
        done += 1
        start_due(brokers, back, time.monotonic() + rng.uniform(*PAUSE_S))
    for node in back:
        brokers.start(node)
    return done


_INTERNAL: Final = (_OFFSETS, _STATES)


def _partitions(admin: AdminClient, topic: str) -> int:
    """The number of partitions of a topic that the first use creates; TimeoutError if there is none."""
    deadline = time.monotonic() + _START_S
    while not (found := len(admin.list_topics(topic, timeout=_START_S).topics[topic].partitions)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"there is no {topic}")
        time.sleep(_LOOK_S)  # the brokers create it meanwhile
    return found


def start_due(brokers: Brokers, back: dict[int, float], until: float) -> None:
    """Start killed brokers when their time has come, until `until`."""
    while (now := time.monotonic()) < until:
        for node in [node for node, at in back.items() if at <= now]:
            del back[node]
            brokers.start(node)
        time.sleep(min(0.02, until - now))


def _leader(admin: AdminClient, topic: str, partition: int) -> int | None:
    """The leader of a partition, as the broker that answers first knows it."""
    try:
        leader = admin.list_topics(topic, timeout=_REQUEST_S).topics[topic].partitions[partition].leader
    except (KafkaException, KeyError):
        return None
    return leader if leader > 0 else None
