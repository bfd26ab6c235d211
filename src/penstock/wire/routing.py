"""Whom to ask: what a client knows of a cluster, what an error means for it, and when to ask anew.

Nothing here talks or waits: whoever does brings Metadata responses and error codes, and gets nodes, reactions
and times. Knowledge of a partition only moves forward: a broker that lags behind may still name a leader
that was replaced, so of two leaders the one of the newer epoch stays (KIP-320), unless the topic is another
one by the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from penstock.wire.backoff import Backoff

__all__ = ["Address", "ClusterView", "Leader", "Node", "Reaction", "Refresh", "reaction_to"]

Address: TypeAlias = tuple[str, int]
NO_LEADER: Final = -1
_NO_ID: Final = bytes(16)


class Node(NamedTuple):
    """A broker as clients are told to reach it."""

    id: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """Who leads a partition; `node_id` is `NO_LEADER` while nobody does."""

    node_id: int
    epoch: int


class Endpoint(Protocol):
    """A node's address as Produce and Fetch answers carry it (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Reaction(Enum):
    """What to do about an error code."""

    NONE = "it went well"
    RETRY = "ask the same node again after a while"
    REFRESH = "ask for metadata, then whoever leads by then"
    FIND_COORDINATOR = "ask who coordinates, then that one"
    FAIL = "asking again would change nothing"


_REACTIONS: Final = {
    Reaction.NONE: (ErrorCode.NONE,),
    Reaction.REFRESH: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REBOOTSTRAP_REQUIRED,
    ),
    Reaction.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    Reaction.RETRY: (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ),
}
_REACTION_TO: Final = {int(code): reaction for reaction, codes in _REACTIONS.items() for code in codes}


def reaction_to(error_code: int) -> Reaction:
    return _REACTION_TO.get(error_code, Reaction.FAIL)


class _Topic:
    __slots__ = ("id", "leaders", "name")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        #: by partition
        self.leaders: dict[int, Leader] = {}


class ClusterView:
    """Brokers, topics and leaders, as far as anybody told. Topics go by name or by id alike."""

    __slots__ = ("_bootstrap", "_by_id", "_by_name", "_turn", "cluster_id", "controller_id", "nodes")

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._turn = 0
        self._by_name: dict[str, _Topic] = {}
        self._by_id: dict[bytes, _Topic] = {}
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def next_to_ask(self) -> Address:
        """Where to ask for metadata, another node each time: whoever is known, else the bootstrap servers."""
        known = [(node.host, node.port) for node in self.nodes.values()] or self._bootstrap
        self._turn += 1
        return known[(self._turn - 1) % len(known)]

    def partitions(self, topic: str | bytes) -> int:
        """How many partitions a topic has; 0 if it is not known."""
        found = self._find(topic)
        return len(found.leaders) if found else 0

    def topic_id(self, name: str) -> bytes | None:
        topic = self._by_name.get(name)
        return topic.id if topic and topic.id != _NO_ID else None

    def leader(self, topic: str | bytes, partition: int) -> Leader | None:
        """Who leads, as far as known; it may be somebody whose address is not."""
        found = self._find(topic)
        return found.leaders.get(partition) if found else None

    def leader_node(self, topic: str | bytes, partition: int) -> Node | None:
        """Whom to ask about a partition; None calls for a refresh."""
        leader = self.leader(topic, partition)
        return self.nodes.get(leader.node_id) if leader else None

    def update(self, response: MetadataResponse, *, all_topics: bool = False) -> bool:
        """Take in what a broker says; whether it leaves no partition of its topics without a leader.

        After a request for `all_topics`, those it does not name are forgotten.
        """
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.nodes.clear()
            return False
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        if all_topics:
            named = {topic.name for topic in response.topics}
            for name in [name for name in self._by_name if name not in named]:
                self._forget(name)
        open_topics = [topic for topic in response.topics if not self._update_topic(topic)]
        return not open_topics

    def learn_leader(
        self, topic: str | bytes, partition: int, leader: Leader, endpoints: Iterable[Endpoint] = ()
    ) -> bool:
        """Take in the leader that an answer names (KIP-951); whether it was news, and one can go there."""
        found = self._find(topic)
        known = found.leaders.get(partition) if found else None
        if found is None or known is None or leader.epoch <= known.epoch or leader.node_id < 0:
            return False
        for e in endpoints:
            self.nodes[e.node_id] = Node(e.node_id, e.host, e.port, e.rack)
        if leader.node_id not in self.nodes:
            return False
        found.leaders[partition] = leader
        return True

    def _find(self, topic: str | bytes) -> _Topic | None:
        return self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)

    def _update_topic(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name
        if name is None:
            # It was asked for by an id that this broker does not know.
            return False
        if topic.error_code:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._forget(name)
            return reaction_to(topic.error_code) is Reaction.FAIL
        known = self._by_name.get(name)
        if known is None or known.id != topic.topic_id:
            self._forget(name)
            known = self._by_name[name] = _Topic(name, topic.topic_id)
            if topic.topic_id != _NO_ID:
                self._by_id[topic.topic_id] = known
        for partition in topic.partitions:
            _update_partition(known, partition)
        return all(known.leaders[p.partition_index].node_id in self.nodes for p in topic.partitions)

    def _forget(self, name: str) -> None:
        topic = self._by_name.pop(name, None)
        if topic is not None:
            self._by_id.pop(topic.id, None)


def _update_partition(topic: _Topic, partition: MetadataResponsePartition) -> None:
    known = topic.leaders.get(partition.partition_index)
    # Brokers before Metadata 7 tell no epoch: then whoever speaks last is right.
    if known is None or partition.leader_epoch >= known.epoch or partition.leader_epoch < 0:
        topic.leaders[partition.partition_index] = Leader(partition.leader_id, partition.leader_epoch)


class Refresh:
    """When to ask for metadata: soon where something calls for it, else when what is known gets old.

    Times are in seconds of any clock that does not go back. However much calls for it, requests are at least
    `first_s` apart, and further apart while they bring nothing.
    """

    __slots__ = ("_backoff", "_first_s", "_max_age_s", "_not_before_s", "_old_at_s", "_wanted")

    def __init__(self, *, first_s: float = 0.05, limit_s: float = 1.0, max_age_s: float = 300.0) -> None:
        self._first_s = first_s
        self._max_age_s = max_age_s
        self._backoff = Backoff(first_s, limit_s)
        self._wanted = True
        self._not_before_s = float("-inf")
        self._old_at_s = float("-inf")

    def want(self) -> None:
        """Somebody was sent to the wrong node, or knows of none."""
        self._wanted = True

    def due_at(self) -> float:
        """When the next request should go out."""
        return self._not_before_s if self._wanted else max(self._not_before_s, self._old_at_s)

    def succeeded(self, now_s: float) -> None:
        """An answer left nothing open."""
        self._wanted = False
        self._backoff.succeeded()
        self._not_before_s = now_s + self._first_s
        self._old_at_s = now_s + self._max_age_s

    def failed(self, now_s: float, jitter: float) -> None:
        """There was no answer, or one that leaves leaders unknown; `jitter` as in `Backoff.failed`."""
        self._wanted = True
        self._not_before_s = now_s + self._backoff.failed(jitter)
