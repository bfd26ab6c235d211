"""Metadata, DescribeCluster, DescribeTopicPartitions: the brokers' endpoints, and the partitions' leaders."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from penstock.broker.base.context import Context
from penstock.broker.base.logs import limited_warnings
from penstock.broker.base.steps import sorted_in_steps
from penstock.broker.handlers.topic_answers import bad_cursor, merged, refused, undescribed, why_unknown
from penstock.broker.node.addresses import NodeAddresses
from penstock.broker.node.peers import Peers
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.broker.replica.fenced_brokers import FencedBrokers
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.wire.apis.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["MetadataHandlers"]

P = TypeVar("P", MetadataResponsePartition, DescribeTopicPartitionsResponsePartition)
#: bits of the authorized operations; without an authorizer every client has all of them. For a topic: read,
#: write, create, delete, alter, describe, describe and alter configs. For the cluster: create, alter,
#: describe, cluster action, describe and alter configs, idempotent write.
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
_NOT_REQUESTED: Final = -(2**31)
#: the software name of Kafka's own clients
_JAVA: Final = "apache-kafka-java"
#: the first version with topic ids in requests, and with responses without a name
_BY_TOPIC_ID: Final = 12
#: how long a response waits for the election after a leader's failure, and how often it checks
_SUCCESSION_S: Final = 0.5
_LOOK_S: Final = 0.01
#: partitions between two yields
_STEP: Final = 64
#: endpoint types of DescribeCluster
_BROKERS: Final = 1
_CONTROLLERS: Final = 2


class MetadataHandlers:
    """Metadata, DescribeCluster and DescribeTopicPartitions."""

    def __init__(
        self,
        image: ClusterImage,
        cluster_id: str,
        quorum: QuorumDriver,
        peers: Peers,
        addresses: NodeAddresses,
        auto_create: Callable[[str], Awaitable[None]],
        config: BrokerConfig,
        internal: Listener | None,
        fenced_brokers: FencedBrokers,
        healing_notes: Callable[[], Iterable[str]],
    ) -> None:
        """`auto_create` creates a topic by its name. `healing_notes` describes what self-healing does."""
        self._image = image
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._peers = peers
        self._addresses = addresses
        self._node_id = config.node_id
        self._healing_notes = healing_notes
        self._auto_create = auto_create
        self._config = config
        self._internal = internal
        self._fenced_brokers = fenced_brokers
        self._warn = limited_warnings("topics")

    def metadata(
        self, context: Context, request: MetadataRequest
    ) -> MetadataResponse | Deferred[MetadataResponse]:
        if request.topics:
            if context.version < _BY_TOPIC_ID and any(
                t.name is None or t.topic_id != NO_TOPIC_ID for t in request.topics
            ):
                return refused(request.topics)
            request.topics = merged(request.topics)
        if request.topics and request.allow_auto_topic_creation and self._config.auto_create_topics_enable:
            known = self._image.topics
            missing = [
                t.name for t in request.topics if t.topic_id == NO_TOPIC_ID and t.name and t.name not in known
            ]
            if missing:
                return context.spawn(self._create_and_answer(context, request, missing))
        if self._internal is not None:
            return context.spawn(self._confirm_and_answer(context, request, {}))
        return context.in_turns(self._metadata(context, request, {}))

    async def _create_and_answer(
        self, context: Context, request: MetadataRequest, missing: Iterable[str]
    ) -> MetadataResponse:
        errors = {}
        for name in missing:
            try:
                await self._auto_create(name)
            except ApiError as e:
                self._warn("topic_not_created", topic=name, reason=str(e))
                if e.code == ErrorCode.REQUEST_TIMED_OUT:
                    # No controller is available: the other topics would time out, too. Answer with the
                    # topics that exist.
                    break
                if e.code != ErrorCode.INVALID_REPLICATION_FACTOR:
                    errors[name] = e.code
                # Brokers are missing and may still start: clients retry after UNKNOWN_TOPIC_OR_PARTITION.
        return await self._confirm_and_answer(context, request, errors)

    async def _confirm_and_answer(
        self, context: Context, request: MetadataRequest, errors: Mapping[str, ErrorCode]
    ) -> MetadataResponse:
        """Answer with live leaders only, and wait a moment for the election after a leader's failure.

        Many Metadata requests come from clients whose leader has just failed. Without a new leader in the
        response they retry only after a second or more.
        """
        live = [
            node for node, *_, fenced in reachable_brokers(self._image, context.listener.name) if not fenced
        ]
        await self._peers.confirm(node for node in live if node != self._node_id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SUCCESSION_S
        while loop.time() < deadline:
            if not await context.until_done(self._awaits_succession(request)):
                break
            await asyncio.sleep(_LOOK_S)
        return await context.until_done(self._metadata(context, request, errors))

    def _awaits_succession(self, request: MetadataRequest) -> Generator[None, None, bool]:
        """Whether a leader of the requested topics has failed and no new leader is elected yet."""
        missing = self._peers.missing()
        if not missing:
            return False
        image = self._image
        requested = list(image.topics.values())
        if request.topics is not None:
            found = [
                image.topics.get(t.name or "") or image.topics_by_id.get(TopicId(t.topic_id))
                for t in request.topics
            ]
            requested = [topic for topic in found if topic is not None]
        for topic in requested:
            for number, partition in enumerate(list(topic.partitions.values())):
                if partition.leader in missing:
                    return True
                if not number % _STEP:
                    yield
        return False

    def _metadata(
        self, context: Context, request: MetadataRequest, errors: Mapping[str, ErrorCode]
    ) -> Generator[None, None, MetadataResponse]:
        """The response, with `errors` for topics that could not be created."""
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_REQUESTED
        topics: list[MetadataResponseTopic] = []
        if request.topics is None or (context.version == 0 and not request.topics):
            for topic in list(self._image.topics.values()):
                topics.append((yield from self._known(context, topic, operations)))
        else:
            for wanted in request.topics:
                topics.append((yield from self._one(context, wanted, operations, errors)))
        # Java's admin client connects to every broker in the response, and waits for a stopped one in vain.
        lists_leaving = context.connection.software is None or context.connection.software[0] != _JAVA
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
                for node, host, port, rack, fenced in reachable_brokers(self._image, context.listener.name)
                if not fenced or (lists_leaving and self._fenced_brokers.is_listed(node))
            ],
            cluster_id=self._cluster_id,
            controller_id=self._node_id,
            topics=topics,
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_REQUESTED
            ),
        )

    def _one(
        self, context: Context, wanted: MetadataRequestTopic, operations: int, errors: Mapping[str, ErrorCode]
    ) -> Generator[None, None, MetadataResponseTopic]:
        image = self._image
        if wanted.topic_id != NO_TOPIC_ID:
            topic = image.topics_by_id.get(TopicId(wanted.topic_id))
            if topic is not None:
                return (yield from self._known(context, topic, operations))
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
            )
        name = wanted.name or ""
        topic = image.topics.get(name)
        if topic is not None:
            return (yield from self._known(context, topic, operations))
        return MetadataResponseTopic(
            error_code=errors.get(name) or why_unknown(name),
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=operations,
        )

    def _known(
        self, context: Context, topic: TopicImage, operations: int
    ) -> Generator[None, None, MetadataResponseTopic]:
        # Listed, because the topic may change between two slices.
        shown = list(topic.partitions.items())
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=(yield from self._partitions(MetadataResponsePartition, context, shown)),
            topic_authorized_operations=operations,
        )

    def _partitions(
        self, kind: type[P], context: Context, partitions: Iterable[tuple[int, PartitionImage]]
    ) -> Generator[None, None, list[P]]:
        """The leaders and replicas of partitions, as partitions of one of the two responses."""
        brokers, listener = self._image.brokers, context.listener.name
        live = {node for node, known in brokers.items() if not known.fenced and listener in known.endpoints}
        missing = self._peers.missing()
        described: list[P] = []
        for index, partition in partitions:
            if not len(described) % _STEP:
                yield
            error, leader = ErrorCode.NONE, partition.leader
            if leader in missing:
                # A client that gets a failed or hanging leader refreshes its metadata only much later.
                error, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
            elif leader not in live:
                # Clients of this listener cannot reach the leader.
                elsewhere = leader in brokers and not brokers[leader].fenced
                error = ErrorCode.LISTENER_NOT_FOUND if elsewhere else ErrorCode.LEADER_NOT_AVAILABLE
                leader = NO_LEADER
            described.append(
                kind(
                    error_code=error,
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=partition.replicas,
                    isr_nodes=partition.isr,
                    offline_replicas=[node for node in partition.replicas if node not in live],
                )
            )
        return described

    def describe_cluster(self, context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
        if request.endpoint_type == _CONTROLLERS:
            return self._controllers(context)
        if request.endpoint_type != _BROKERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"Endpoints of type {request.endpoint_type} are not known",
            )
        return DescribeClusterResponse(
            endpoint_type=_BROKERS,
            cluster_id=self._cluster_id,
            controller_id=_active_controller(self._image, self._quorum.state.leader_id, self._node_id),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node,
                    host=host,
                    port=port,
                    rack=rack,
                    is_fenced=fenced,
                    machine=self._image.brokers[node].machine,
                    epoch=self._image.brokers[node].epoch,
                )
                for node, host, port, rack, fenced in reachable_brokers(self._image, context.listener.name)
                if not fenced or request.include_fenced_brokers
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_REQUESTED
            ),
            healing_notes="\n".join(self._healing_notes()) if request.include_fenced_brokers else "",
        )

    def _controllers(self, context: Context) -> DescribeClusterResponse:
        """The voters' endpoints, for clients that connect to controllers directly (KIP-919)."""
        if self._internal is None or context.listener is not self._internal:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="This listener serves clients; send the request to a controller's listener",
            )
        quorum = self._quorum.state
        return DescribeClusterResponse(
            endpoint_type=_CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=quorum.leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=voter.key.id, host=endpoint.host, port=endpoint.port)
                for voter in quorum.voters
                if (endpoint := self._addresses.endpoint_of(voter.key.id)) is not None
            ],
        )

    def describe_topic_partitions(
        self, context: Context, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse | Deferred[DescribeTopicPartitionsResponse]:
        return context.in_turns(self._described_topics(context, request))

    def _described_topics(
        self, context: Context, request: DescribeTopicPartitionsRequest
    ) -> Generator[None, None, DescribeTopicPartitionsResponse]:
        """Topics sorted by name, from the cursor on, with as many partitions as the limit allows."""
        image = self._image
        wanted = (t.name for t in request.topics) if request.topics else list(image.topics)
        names = yield from sorted_in_steps(wanted)
        first = at = 0
        if request.cursor is not None:
            start, first = request.cursor.topic_name, request.cursor.partition_index
            at = bisect_left(names, start)
            is_listed = at < len(names) and names[at] == start
            if first < 0 or (request.topics and not is_listed):
                return (yield from bad_cursor(request))
            if not is_listed:
                first = 0
        most = self._config.max_request_partition_size_limit
        left = max(1, min(request.response_partition_limit, most))
        response = DescribeTopicPartitionsResponse()
        for number in range(at, len(names)):
            name = names[number]
            if not number % _STEP:
                yield
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topics.get(name)
            if topic is None:
                response.topics.append(undescribed(name, why_unknown(name), TOPIC_OPERATIONS))
                continue
            shown = list(topic.partitions.items())[first : first + left]
            response.topics.append((yield from self._described(context, topic, shown)))
            left -= len(shown)
            if first + len(shown) < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=first + len(shown))
                break
            first = 0
        return response

    def _described(
        self, context: Context, topic: TopicImage, shown: Sequence[tuple[int, PartitionImage]]
    ) -> Generator[None, None, DescribeTopicPartitionsResponseTopic]:
        partitions = yield from self._partitions(DescribeTopicPartitionsResponsePartition, context, shown)
        for partition, (_, known) in zip(partitions, shown, strict=True):
            partition.eligible_leader_replicas = known.elr
            partition.last_known_elr = known.last_known_leader
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=TOPIC_OPERATIONS,
        )


def _active_controller(image: ClusterImage, leader_id: int, node_id: int) -> int:
    """The active controller, if it is a broker that clients can reach; else this broker.

    A Metadata response always names this broker: clients send admin requests to it, and any broker forwards
    them. Kafka names a random broker in both responses.
    """
    leader = image.brokers.get(leader_id)
    return node_id if leader is None or leader.fenced else leader.id


def reachable_brokers(image: ClusterImage, listener: str) -> Iterator[tuple[int, str, int, str | None, bool]]:
    """(id, host, port, rack, fenced) of the brokers that have an endpoint for `listener`."""
    for broker in image.brokers.values():
        if listener in broker.endpoints:
            host, port = broker.endpoints[listener]
            yield broker.id, host, port, broker.rack, broker.fenced
