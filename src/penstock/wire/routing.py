"""A client's view of a cluster, and the reaction to each error code. Pure: does no I/O and knows no time.

The caller passes Metadata responses and error codes, and gets nodes and reactions.

Invariant: the leader epoch of a partition never decreases (KIP-320). Why: a broker with old metadata may
still name a leader that was replaced. A topic with a new topic id starts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from penstock.model.addresses import Address
from penstock.model.errors import ErrorCode
from penstock.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

__all__ = [
    "GROUP",
    "TRANSACTION",
    "Address",
    "ClusterView",
    "Leader",
    "Node",
    "Reaction",
    "coordinator_in",
    "coordinator_request",
    "reaction_to",
]

#: the types of keys that have coordinators
GROUP: Final = 0
TRANSACTION: Final = 1
NO_LEADER: Final = -1
_NO_ID: Final = bytes(16)


class Node(NamedTuple):
    """A broker and the address that it advertises to clients."""

    id: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """The leader of a partition; `node_id` is `NO_LEADER` while there is none."""

    node_id: int
    epoch: int


class Reaction(Enum):
    """The reaction to an error code."""

    NONE = "success"
    RETRY = "retry with the same node after a backoff"
    REFRESH = "refresh the metadata, then retry with the leader"
    FIND_COORDINATOR = "find the coordinator, then retry"
    FAIL = "do not retry"


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


def coordinator_request(key: str, kind: int = GROUP) -> FindCoordinatorRequest:
    """Asks for the coordinator of one key, in all versions."""
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def coordinator_in(response: FindCoordinatorResponse) -> Coordinator | FindCoordinatorResponse:
    """The part of the response to a request for one key: before version 4, the response itself."""
    return response.coordinators[0] if response.coordinators else response


class _Topic:
    __slots__ = ("id", "leaders", "name")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        #: by partition
        self.leaders: dict[int, Leader] = {}


class ClusterView:
    """Brokers, topics and leaders, from Metadata responses. Topics are looked up by name or by id."""

    __slots__ = ("_bootstrap", "_by_id", "_by_name", "_turn", "cluster_id", "controller_id", "nodes")

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._turn = 0
        self._by_name: dict[str, _Topic] = {}
        self._by_id: dict[bytes, _Topic] = {}
        self.nodes: dict[int, Node] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def next_node(self) -> Address:
        """The node for the next Metadata request: the known nodes in turn, else the bootstrap servers."""
        known = [(node.host, node.port) for node in self.nodes.values()] or self._bootstrap
        self._turn += 1
        return known[(self._turn - 1) % len(known)]

    def partitions(self, topic: str | bytes) -> int:
        """The number of partitions of a topic; 0 if the topic is unknown."""
        found = self._find(topic)
        return len(found.leaders) if found else 0

    def topic_id(self, name: str) -> bytes | None:
        topic = self._by_name.get(name)
        return topic.id if topic and topic.id != _NO_ID else None

    def leader(self, topic: str | bytes, partition: int) -> Leader | None:
        """The leader, if known; its address may be unknown."""
        found = self._find(topic)
        return found.leaders.get(partition) if found else None

    def leader_node(self, topic: str | bytes, partition: int) -> Node | None:
        """The leader's node; None if the metadata must be refreshed."""
        leader = self.leader(topic, partition)
        return self.nodes.get(leader.node_id) if leader else None

    def update(self, response: MetadataResponse, *, all_topics: bool = False) -> bool:
        """Apply a Metadata response. Returns true if every partition of its topics has a known leader.

        With `all_topics`, topics that are missing from the response are removed.
        """
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.nodes.clear()
            return False
        self.update_brokers(response)
        if all_topics:
            named = {topic.name for topic in response.topics}
            for name in [name for name in self._by_name if name not in named]:
                self._forget(name)
        open_topics = [topic for topic in response.topics if not self._update_topic(topic)]
        return not open_topics

    def update_brokers(self, response: MetadataResponse) -> None:
        """Apply the brokers of a Metadata response, and leave the topics as they are."""
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id

    def address(self, node_id: int) -> Address | None:
        """The address of a broker; None if it is not in the metadata."""
        node = self.nodes.get(node_id)
        return None if node is None else (node.host, node.port)

    def _find(self, topic: str | bytes) -> _Topic | None:
        return self._by_name.get(topic) if isinstance(topic, str) else self._by_id.get(topic)

    def _update_topic(self, topic: MetadataResponseTopic) -> bool:
        name = topic.name
        if name is None:
            # The request named the topic by an id that the broker does not know.
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
    # Metadata responses before version 7 have no leader epoch: the last response wins.
    if known is None or partition.leader_epoch >= known.epoch or partition.leader_epoch < 0:
        topic.leaders[partition.partition_index] = Leader(partition.leader_id, partition.leader_epoch)
