"""Metadata: the brokers' endpoints, and the partitions' leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.base.logs import limited_warnings
from penstock.broker.handlers.reachable import (
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
    described_partitions,
    reachable_brokers,
)
from penstock.broker.handlers.topic_answers import merged, refused, why_unknown
from penstock.broker.node.peers import Peers
from penstock.broker.replica.fenced_brokers import FencedBrokers
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["MetadataHandlers"]

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


class MetadataHandlers:
    """Metadata, and the creation of topics that it asks for."""

    def __init__(
        self,
        image: ClusterImage,
        cluster_id: str,
        peers: Peers,
        auto_create: Callable[[str], Awaitable[None]],
        config: BrokerConfig,
        internal: Listener | None,
        fenced_brokers: FencedBrokers,
    ) -> None:
        """`auto_create` creates a topic by its name."""
        self._image = image
        self._cluster_id = cluster_id
        self._peers = peers
        self._node_id = config.node_id
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
            partitions=(
                yield from described_partitions(
                    MetadataResponsePartition,
                    self._image,
                    context.listener.name,
                    self._peers.missing(),
                    shown,
                )
            ),
            topic_authorized_operations=operations,
        )
