"""Simulated clients: a `Peer` per broker, leaders from Metadata, and patience.

They use the wire protocol, like any client. A request returns its response or raises `Unanswered`. Producers
and consumers (`workload`) and group members (`members`) decide whether to retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerGone
from penstock.testing.simulation.history import Event, History
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.node import PORT
from penstock.testing.simulation.ports import SimClock, SimRng
from penstock.testing.simulation.security import Securities
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, Coordinator, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.backoff import Backoff

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = ["Address", "Client", "Unanswered"]

Address = tuple[str, int]
#: how long an answer may take before a client tries elsewhere
_TIMEOUT_S: Final = 3.0
#: how long it waits before it tries again
_BACKOFF_S: Final = (0.01, 0.1)


class Unanswered(Exception):
    """No response arrived, or no broker was reachable: the request may have been executed or not."""


class Client:
    """One client process: gets leaders from Metadata, sends requests, and records its history."""

    def __init__(
        self,
        loop: SimLoop,
        name: str,
        bootstrap: Sequence[Address],
        rng: Random,
        history: History,
        securities: Securities | None = None,
    ) -> None:
        """`securities` has TLS and SASL; None for plaintext."""
        self._securities = securities
        self.loop = loop
        self.name = name
        self.rng = rng
        self.clock = SimClock(loop)
        self._history = history
        self.process = loop.new_process(name, name)
        self._bootstrap = list(bootstrap)
        self._peers: dict[Address, Peer] = {}
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, bytes] = {}

    def saw(self, event: Event) -> None:
        self._history.add(self.name, event)

    async def backoff(self) -> None:
        await asyncio.sleep(self.rng.uniform(*_BACKOFF_S))

    # -- requests

    async def send(
        self,
        address: Address,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float = _TIMEOUT_S,
    ) -> ResponseT:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                self.loop,
                *address,
                client_id=self.name,
                rng=SimRng(self.rng),
                backoff=Backoff(0.01, 0.1),
                security=self._security(address),
            )
        try:
            return await peer.send(api, request, timeout_s)
        except PeerGone as e:
            raise Unanswered(str(e)) from e

    def _security(self, address: Address) -> ClientSecurity | None:
        if self._securities is None:
            return None
        return self._securities.client if address[1] == PORT else self._securities.node

    async def send_to_leader(
        self, partition: TopicPartition, api: Api[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        """Send a request to the partition's leader by cached metadata; uncache the leader if it fails."""
        try:
            if partition not in self._leaders:
                await self.refresh(partition.topic)
            return await self.send(self._nodes[self._leaders[partition]], api, request)
        except (Unanswered, KeyError) as e:
            self.forget(partition)
            raise Unanswered(str(e)) from e

    async def send_to_node(self, node_id: int, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Send a request to one broker."""
        if node_id not in self._nodes:
            raise Unanswered(f"the address of {node_id} is unknown")
        return await self.send(self._nodes[node_id], api, request)

    async def send_to_any(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Send a request to any broker."""
        known = list(dict.fromkeys([*self._bootstrap, *self._nodes.values()]))
        return await self.send(self.rng.choice(known), api, request)

    async def send_to_coordinator(
        self, group: str, api: Api[RequestT, ResponseT], request: RequestT
    ) -> ResponseT:
        """Send a request to the group's coordinator."""
        coordinator = await self.find_coordinator(group)
        return await self.send((coordinator.host, coordinator.port), api, request)

    async def find_coordinator(self, key: str, key_type: int = 0) -> Coordinator:
        """The coordinator of a group or, for `key_type` 1, a transactional id, as any broker names it."""
        found = await self.send_to_any(
            FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        )
        (coordinator,) = found.coordinators
        if coordinator.error_code:
            raise Unanswered(ErrorCode(coordinator.error_code).name)
        return coordinator

    # -- the cluster

    async def refresh(self, topic: str) -> None:
        """Refresh the cached leaders of the topic's partitions."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.send_to_any(METADATA, wanted)
        self._nodes.update({node.node_id: (node.host, node.port) for node in answer.brokers})
        (found,) = answer.topics
        if found.error_code:
            raise Unanswered(ErrorCode(found.error_code).name)
        self.topic_ids[topic] = found.topic_id
        for partition in found.partitions:
            self._leaders[TopicPartition(topic, partition.partition_index)] = partition.leader_id

    async def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, by cached metadata if it has one for any partition."""
        if not any(partition.topic == topic for partition in self._leaders):
            await self.refresh(topic)
        return {p.partition: leader for p, leader in self._leaders.items() if p.topic == topic}

    def forget_leaders(self, topic: str) -> None:
        """Look for the leaders of all partitions again."""
        for partition in [partition for partition in self._leaders if partition.topic == topic]:
            self.forget(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Look for the partition's leader again before the next request."""
        self._leaders.pop(partition, None)

    async def elect_unclean(self, partition: TopicPartition) -> None:
        """Request an unclean election; Unanswered if there is no leader after it."""
        wanted = TopicPartitions(topic=partition.topic, partitions=[partition.partition])
        request = ElectLeadersRequest(election_type=1, topic_partitions=[wanted], timeout_ms=1000)
        answer = await self.send_to_any(ELECT_LEADERS, request)
        results = [result for topic in answer.replica_election_results for result in topic.partition_result]
        codes = [ErrorCode(code) for code in [answer.error_code, *(r.error_code for r in results)]]
        failed = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
        if failed:
            raise Unanswered(failed[0].name)

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic, however long it takes."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        while True:
            try:
                answer = await self.send_to_any(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
            except Unanswered:
                await self.backoff()
                continue
            code = answer.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.backoff()
