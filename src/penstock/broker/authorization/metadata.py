"""Checks of Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from penstock.broker.authorization.forms import (
    Environment,
    Merge,
    refusal,
    refusing,
    splitting,
)
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from penstock.wire.apis.metadata import MetadataResponseTopic

__all__ = [
    "check_describe_cluster",
    "check_describe_topic_partitions",
    "check_metadata",
]

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NOT_REQUESTED: Final = -(2**31)


def _metadata(environment: Environment, context: Context, request: Any) -> Merge:
    """Denied topics look the same whether they exist or not. All topics means all that may be described."""
    access = environment.access
    lists_all = request.topics is None or (context.version == 0 and not request.topics)
    denied: list[MetadataResponseTopic] = []
    requested = [] if lists_all else list(request.topics)
    allowed = [topic for topic in requested if not _is_denied(environment, context, request, topic, denied)]
    if not lists_all:
        request.topics = allowed

    def merge(response: Any) -> Generator[None, None, Any]:
        if lists_all:
            shown = []
            for topic in response.topics:
                if access.allows(context, Operation.DESCRIBE, _TOPIC, topic.name, quiet=True):
                    shown.append(topic)
                yield
            response.topics = shown
        elif not allowed:
            # In version 0 an empty list means all topics.
            response.topics = []
        for topic in response.topics:
            yield
            if topic.topic_authorized_operations != _NOT_REQUESTED and not topic.error_code:
                topic.topic_authorized_operations = access.operations(context, _TOPIC, topic.name)
        response.topics += denied
        _set_cluster_operations(environment, context, response)
        return response

    return merge


def _is_denied(
    environment: Environment, context: Context, request: Any, topic: Any, denied: list[MetadataResponseTopic]
) -> bool:
    access, image = environment.access, environment.image
    if topic.topic_id != NO_TOPIC_ID:
        known = image.topics_by_id.get(TopicId(topic.topic_id))
        if known is None or access.allows(context, Operation.DESCRIBE, _TOPIC, known.name):
            return False
        denied.append(MetadataResponseTopic(error_code=_DENIED, name=None, topic_id=topic.topic_id))
        return True
    name = topic.name or ""
    if access.allows(context, Operation.DESCRIBE, _TOPIC, name):
        creates = request.allow_auto_topic_creation and environment.auto_creates()
        if not creates or name in image.topics or _may_create(environment, context, name):
            return False
    denied.append(MetadataResponseTopic(error_code=_DENIED, name=name))
    return True


def _may_create(environment: Environment, context: Context, name: str) -> bool:
    access = environment.access
    return access.allows_on_cluster(context, Operation.CREATE, quiet=True) or access.allows(
        context, Operation.CREATE, _TOPIC, name
    )


def _set_cluster_operations(environment: Environment, context: Context, response: Any) -> None:
    if response.cluster_authorized_operations != _NOT_REQUESTED:
        access = environment.access
        bits = 0
        if access.allows_on_cluster(context, Operation.DESCRIBE, quiet=True):
            bits = access.operations(context, ResourceType.CLUSTER, "kafka-cluster")
        response.cluster_authorized_operations = bits


check_metadata = splitting(_metadata)


def _describe_cluster(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """On the listener of the nodes it needs Alter, as on Kafka's controllers; elsewhere nothing."""
    if context.listener is not environment.internal or environment.access.allows_on_cluster(
        context, Operation.ALTER
    ):
        return None
    return refusal(api, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _cluster_operations(environment: Environment, context: Context, request: Any) -> Merge:
    def merge(response: Any) -> Any:
        _set_cluster_operations(environment, context, response)
        return response

    return merge


def check_describe_cluster(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_cluster_operations)(environment, api, handler)
    return refusing(_describe_cluster)(environment, api, inner)


# -- DescribeTopicPartitions


def _allowed_names(
    environment: Environment, context: Context, request: Any
) -> Generator[None, None, tuple[list[str], list[str]]]:
    """(allowed, denied) names of the topics of a request: of all topics if it has none."""
    access, lists_all = environment.access, not request.topics
    names = list(environment.image.topics) if lists_all else (topic.name for topic in request.topics)
    allowed: list[str] = []
    denied: dict[str, None] = {}
    for name in names:
        if access.allows(context, Operation.DESCRIBE, _TOPIC, name, quiet=lists_all):
            allowed.append(name)
        elif not lists_all:
            denied[name] = None
        yield
    return allowed, list(denied)


def _requested(names: list[str]) -> Generator[None, None, list[TopicRequest]]:
    topics = []
    for name in names:
        topics.append(TopicRequest(name=name))
        yield
    return topics


def _described_partitions(
    environment: Environment, context: Context, response: Any, denied: list[str]
) -> Generator[None, None, Any]:
    for topic in response.topics:
        yield
        if topic.topic_authorized_operations != _NOT_REQUESTED and not topic.error_code:
            topic.topic_authorized_operations = environment.access.operations(context, _TOPIC, topic.name)
    for name in denied:
        yield
        response.topics.append(DescribeTopicPartitionsResponseTopic(error_code=_DENIED, name=name))
    return response


def check_describe_topic_partitions(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    """Removes denied topics. A request that has no topic left is answered here: no topics means all."""

    async def serve(context: Context, request: Any) -> Any:
        lists_all, cursor = not request.topics, request.cursor
        allowed, denied = await context.until_done(_allowed_names(environment, context, request))
        if cursor is not None and lists_all and cursor.topic_name not in allowed:
            # The cursor's topic may have been deleted, or hidden, since.
            allowed = [name for name in allowed if name >= cursor.topic_name]
            request.cursor = None
        request.topics = await context.until_done(_requested(allowed))
        response: Any = DescribeTopicPartitionsResponse()
        if allowed:
            response = handler(context, request)
            if isinstance(response, Deferred):
                response = await awaited(response)
        # Denied topics come with the first page.
        shown = denied if request.cursor is None else []
        return await context.until_done(_described_partitions(environment, context, response, shown))

    return serve
