"""Reads the state of a cluster for a roll, over the wire protocol.

All metadata comes from the broker that is the active controller, if it serves clients: other brokers may be
behind, and show a replica as in sync that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.model.addresses import Address
from penstock.model.errors import PenstockError, UnsupportedVersion, error_name
from penstock.model.ids import METADATA_TOPIC, TopicPartition
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerRejected
from penstock.rolling.state import Broker, ClusterState, Partition, Voter
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.describe_cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponsePartition,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataResponse

__all__ = ["NotObserved", "RolledCluster"]

_TOPIC: Final = 2
_MIN_ISR: Final = "min.insync.replicas"
#: topics of one DescribeConfigs request
_TOPICS: Final = 500
#: a broker that is up answers ApiVersions within this time
_HELLO_S: Final = 2.0
#: a voter that follows fetches again after half a second at most
_SILENT_MS: Final = 3000
#: records that a current voter may still have to fetch
_LAG: Final = 100
_HELLO: Final = ApiVersionsRequest(client_software_name="penstock-roll", client_software_version="1")


class NotObserved(PenstockError):
    """The cluster cannot be described now. That may pass."""


class RolledCluster:
    """A cluster that is rolled. `client` is closed by its owner."""

    def __init__(self, client: ClusterClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._named = client.bootstrap
        #: of the topics that were described since the last restart
        self._least: dict[str, int] = {}

    async def describe(self) -> ClusterState:
        """The present state; NotObserved if no broker describes it."""
        quorum = await self._quorum()
        cluster = await self._cluster(quorum.leader_id)
        metadata = await self._send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        adding = await self._adding()
        min_isr = await self._min_isr(topic.name or "" for topic in metadata.topics)
        up = await self._up(cluster)
        return ClusterState(
            {
                each.broker_id: Broker(each.broker_id, each.rack or "", each.broker_id in up, each.epoch)
                for each in cluster.brokers
            },
            _partitions(metadata, adding, min_isr),
            _voters(quorum),
            quorum.leader_id if quorum.leader_id >= 0 else None,
        )

    async def elect_preferred(self, broker: int, state: ClusterState) -> None:
        """Let a broker lead again the partitions of which it is the first replica."""
        topics: dict[str, list[int]] = {}
        for each in state.partitions:
            if each.replicas and each.replicas[0] == broker != each.leader:
                topics.setdefault(each.name.topic, []).append(each.name.partition)
        self._least.clear()
        if topics:
            wanted = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()]
            timeout_ms = int(self._timeout_s * 1000)
            await self._send(
                ELECT_LEADERS,
                ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=timeout_ms),
            )

    async def _quorum(self) -> DescribeQuorumResponsePartition:
        partition = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])
        response = await self._send(DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
        _check(response.error_code, "the quorum has no leader")
        described = response.topics[0].partitions[0]
        _check(described.error_code, "the quorum has no leader")
        return described

    async def _cluster(self, controller: int) -> DescribeClusterResponse:
        """The registered brokers, from the controller; later requests go to it, too."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        found = await self._send(DESCRIBE_CLUSTER, request)
        for broker in found.brokers:
            if broker.broker_id == controller:
                self._client.contact = (broker.host, broker.port)
                found = await self._send(DESCRIBE_CLUSTER, request)
        _check(found.error_code, "the brokers are not listed")
        known = [(broker.host, broker.port) for broker in found.brokers]
        self._client.bootstrap = tuple(dict.fromkeys([*known, *self._named]))
        return found

    async def _adding(self) -> Mapping[TopicPartition, Sequence[int]]:
        """The replicas that reassignments are adding."""
        timeout_ms = int(self._timeout_s * 1000)
        request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
        response = await self._send(LIST_PARTITION_REASSIGNMENTS, request)
        _check(response.error_code, "reassignments are not listed")
        return {
            TopicPartition(topic.name, each.partition_index): each.adding_replicas
            for topic in response.topics
            for each in topic.partitions
        }

    async def _min_isr(self, topics: Iterable[str]) -> Mapping[str, int]:
        """min.insync.replicas of topics. It is read once between two restarts: a cluster may have many."""
        names = [name for name in topics if name not in self._least]
        for first in range(0, len(names), _TOPICS):
            resources = [
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=name, configuration_keys=[_MIN_ISR]
                )
                for name in names[first : first + _TOPICS]
            ]
            response = await self._send(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
            for result in response.results:
                # A topic that is deleted meanwhile has none.
                for config in result.configs:
                    self._least[result.resource_name] = int(config.value or 1)
        return self._least

    async def _up(self, cluster: DescribeClusterResponse) -> set[int]:
        """The brokers that are unfenced and answer."""

        async def answers(address: Address) -> bool:
            try:
                await self._client.send_to(address, API_VERSIONS, _HELLO, _HELLO_S)
            except PeerGone:
                return False
            return True

        active = [broker for broker in cluster.brokers if not broker.is_fenced]
        found = await asyncio.gather(*(answers((broker.host, broker.port)) for broker in active))
        return {broker.broker_id for broker, is_up in zip(active, found, strict=True) if is_up}

    async def _send(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        try:
            return await self._client.send(api, request, self._timeout_s)
        except PeerRejected:  # another attempt would be refused, too
            raise
        except PeerGone as error:
            raise NotObserved(f"no broker answers {api.name}: {error}") from error
        except UnsupportedVersion as error:
            raise NotObserved(f"a broker does not support {api.name}") from error


def _check(code: int, about: str) -> None:
    if code:
        raise NotObserved(f"{about}: {error_name(code)}")


def _partitions(
    metadata: MetadataResponse,
    adding: Mapping[TopicPartition, Sequence[int]],
    min_isr: Mapping[str, int],
) -> list[Partition]:
    found = []
    for topic in metadata.topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name or "", each.partition_index)
            added = adding.get(name, ())
            replicas = [id_ for id_ in each.replica_nodes if id_ not in added]
            leader = None if each.leader_id < 0 else each.leader_id
            found.append(Partition(name, replicas, each.isr_nodes, leader, min_isr.get(name.topic, 1)))
    return found


def _voters(quorum: DescribeQuorumResponsePartition) -> list[Voter]:
    """Voters by the leader's own entry, which has fetched last."""
    replicas = quorum.current_voters
    end = max((each.log_end_offset for each in replicas), default=-1)
    newest_ms = max((each.last_fetch_timestamp for each in replicas), default=-1)
    return [
        Voter(
            each.replica_id,
            each.replica_id == quorum.leader_id
            or (
                end - each.log_end_offset <= _LAG
                and each.last_fetch_timestamp >= 0
                and newest_ms - each.last_fetch_timestamp <= _SILENT_MS
            ),
        )
        for each in replicas
    ]
