"""Checks of the APIs about topics, their partitions and their configs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.authorization.forms import (
    REASONS,
    Environment,
    Merge,
    refusing,
    splitting,
)
from penstock.broker.base.context import Context
from penstock.metadata.configs import GROUP as GROUP_CONFIGS
from penstock.metadata.image import LINK, REVOCATION, ROLE, ClusterImage
from penstock.metadata.image import TOPIC as TOPIC_CONFIGS
from penstock.model.config.mirrored_topics import LINK_CONFIG
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.records.batch import ATTRIBUTES_LOW, HEADER_SIZE, TRANSACTIONAL_BIT
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.alter_configs import AlterConfigsResource as LegacyResource
from penstock.wire.apis.create_partitions import CreatePartitionsTopicResult
from penstock.wire.apis.create_topics import CreatableTopicResult
from penstock.wire.apis.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from penstock.wire.apis.delete_topics import DeletableTopicResult
from penstock.wire.apis.describe_configs import DescribeConfigsResult
from penstock.wire.apis.describe_producers import PartitionResponse, TopicResponse
from penstock.wire.apis.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from penstock.wire.apis.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from penstock.wire.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

__all__ = [
    "check_create_partitions",
    "check_create_topics",
    "check_delete_records",
    "check_delete_topics",
    "check_describe_producers",
    "check_epochs",
    "check_list_offsets",
    "check_produce",
    "config_check",
]

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_IDS_FROM: Final = 6


# -- Produce: the handler finds partitions through `Access.finder`; this checks the transactional id


def _refused_produce(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    if not any(_is_transactional(data.records) for t in request.topic_data for data in t.partition_data):
        return None
    name = request.transactional_id
    write, kind = Operation.WRITE, ResourceType.TRANSACTIONAL_ID
    if name is not None and environment.access.allows(context, write, kind, name):
        return None
    if not request.acks:
        raise ProtocolError("Produce without acks is not authorized for its transactional id")
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, error_message=REASONS[code], base_offset=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _is_transactional(records: Any) -> bool:
    return (
        records is not None
        and len(records) >= HEADER_SIZE
        and bool(records[ATTRIBUTES_LOW] & TRANSACTIONAL_BIT)
    )


check_produce = refusing(_refused_produce)


# -- APIs that name topics with partitions


def _by_topic(
    operation: Operation, refused: Callable[[Any], Any], topics: str = "topics", name: str = "name"
) -> Callable[[Environment, Context, Any], Merge | None]:
    """Removes denied topics from `request.topics`, and adds their results to `response.topics`."""

    def split(environment: Environment, context: Context, request: Any) -> Merge | None:
        allowed, denied = environment.split(
            context, operation, _TOPIC, getattr(request, topics), lambda topic: str(getattr(topic, name))
        )
        if not denied:
            return None
        setattr(request, topics, allowed)

        def merge(response: Any) -> Any:
            response.topics = [*response.topics, *map(refused, denied)]
            return response

        return merge

    return split


check_list_offsets = splitting(
    _by_topic(
        Operation.DESCRIBE,
        lambda topic: ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=_DENIED)
                for p in topic.partitions
            ],
        ),
    )
)
check_delete_records = splitting(
    _by_topic(
        Operation.DELETE,
        lambda topic: DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                DeleteRecordsPartitionResult(
                    partition_index=p.partition_index, low_watermark=-1, error_code=_DENIED
                )
                for p in topic.partitions
            ],
        ),
    )
)
check_describe_producers = splitting(
    _by_topic(
        Operation.READ,
        lambda topic: TopicResponse(
            name=topic.name,
            partitions=[
                PartitionResponse(partition_index=index, error_code=_DENIED, error_message=REASONS[_DENIED])
                for index in topic.partition_indexes
            ],
        ),
    )
)
_split_epochs = _by_topic(
    Operation.DESCRIBE,
    lambda topic: OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[EpochEndOffset(partition=p.partition, error_code=_DENIED) for p in topic.partitions],
    ),
    name="topic",
)


def _epochs(environment: Environment, context: Context, request: Any) -> Merge | None:
    """Followers send it with ClusterAction, consumers with Describe."""
    if environment.access.allows_on_cluster(context, Operation.CLUSTER_ACTION, quiet=True):
        return None
    return _split_epochs(environment, context, request)


check_epochs = splitting(_epochs)


# -- changes of topics


def _create_topics(environment: Environment, context: Context, request: Any) -> Merge | None:
    access = environment.access
    denied: list[Any] = []
    if not access.allows_on_cluster(context, Operation.CREATE, quiet=True):
        allowed, denied = environment.split(
            context, Operation.CREATE, _TOPIC, request.topics, lambda topic: str(topic.name)
        )
        request.topics = allowed
    linked = [topic for topic in request.topics if _names_link(topic)]
    if linked and access.allows_on_cluster(context, Operation.ALTER):
        linked = []
    if linked:
        request.topics = [topic for topic in request.topics if not _names_link(topic)]

    def merge(response: Any) -> Any:
        for topic in response.topics:
            if not topic.error_code and not access.allows(
                context, Operation.DESCRIBE_CONFIGS, _TOPIC, topic.name, quiet=True
            ):
                topic.topic_config_error_code = _DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = None if context.version >= _IDS_FROM - 1 else []
        response.topics += [
            CreatableTopicResult(name=topic.name, error_code=_DENIED, error_message="Authorization failed.")
            for topic in denied
        ]
        response.topics += [
            CreatableTopicResult(
                name=topic.name, error_code=_CLUSTER_DENIED, error_message=REASONS[_CLUSTER_DENIED]
            )
            for topic in linked
        ]
        return response

    return merge


def _names_link(topic: Any) -> bool:
    """Whether a link is to mirror the topic: it would have what the user of the link may read."""
    return any(config.name == LINK_CONFIG for config in topic.configs)


def _delete_topics(environment: Environment, context: Context, request: Any) -> Merge | None:
    """A topic given by id shows its name only to a client that may describe it."""
    access, by_id = environment.access, environment.image.topics_by_id
    if access.allows_on_cluster(context, Operation.DELETE, quiet=True):
        return None
    denied: list[DeletableTopicResult] = []

    def may(name: str | None, topic_id: bytes) -> bool:
        known = by_id.get(TopicId(topic_id))
        shown = name
        if name is None and known is not None:
            shown = known.name
        if shown is None or access.allows(context, Operation.DELETE, _TOPIC, shown):
            return True
        if name is None and not access.allows(context, Operation.DESCRIBE, _TOPIC, shown, quiet=True):
            shown = None
        denied.append(
            DeletableTopicResult(
                name=shown, topic_id=topic_id, error_code=_DENIED, error_message=REASONS[_DENIED]
            )
        )
        return False

    if context.version < _IDS_FROM:
        request.topic_names = [name for name in request.topic_names if may(name, NO_TOPIC_ID)]
    else:
        request.topics = [topic for topic in request.topics if may(topic.name, topic.topic_id)]

    def merge(response: Any) -> Any:
        response.responses += denied
        return response

    return merge if denied else None


def _create_partitions(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(
        context, Operation.ALTER, _TOPIC, request.topics, lambda topic: str(topic.name)
    )
    request.topics = allowed

    def merge(response: Any) -> Any:
        response.results += [
            CreatePartitionsTopicResult(name=t.name, error_code=_DENIED, error_message=REASONS[_DENIED])
            for t in denied
        ]
        return response

    return merge if denied else None


check_create_topics = splitting(_create_topics)
check_delete_topics = splitting(_delete_topics)
check_create_partitions = splitting(_create_partitions)


# -- configs


def config_check(
    operation: Operation, results: str, result: Callable[..., Any] = DescribeConfigsResult
) -> Any:
    """A check of configs by resource: of topics, of groups, and of the cluster for all others.

    The members of a role are configs of the role. To change them needs Alter on the cluster, as ACLs do, and
    so do closing the connections of a principal, links to other clusters, and mirrored topics.
    """
    alters = operation is Operation.ALTER_CONFIGS

    def may(environment: Environment, context: Context, resource: Any) -> ErrorCode:
        access, name = environment.access, resource.resource_name
        if resource.resource_type == TOPIC_CONFIGS:
            if not access.allows(context, operation, _TOPIC, name):
                return _DENIED
            if not alters or not _changes_link(environment.image, resource):
                return ErrorCode.NONE
            return ErrorCode.NONE if access.allows_on_cluster(context, Operation.ALTER) else _CLUSTER_DENIED
        if resource.resource_type == GROUP_CONFIGS:
            allowed = access.allows(context, operation, ResourceType.GROUP, name)
            return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
        needed = operation
        if resource.resource_type in (ROLE, REVOCATION, LINK):
            needed = Operation.ALTER if alters else Operation.DESCRIBE
        return ErrorCode.NONE if access.allows_on_cluster(context, needed) else _CLUSTER_DENIED

    def split(environment: Environment, context: Context, request: Any) -> Merge | None:
        decided = [(resource, may(environment, context, resource)) for resource in request.resources]
        denied = [(resource, code) for resource, code in decided if code]
        request.resources = [resource for resource, code in decided if not code]

        def merge(response: Any) -> Any:
            getattr(response, results).extend(
                result(
                    error_code=code,
                    error_message=REASONS[code],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, code in denied
            )
            return response

        return merge if denied else None

    return splitting(split)


def _changes_link(image: ClusterImage, resource: Any) -> bool:
    """Whether a change of a topic's configs may change the link that mirrors it.

    AlterConfigs replaces all configs: one that leaves the link out removes it.
    """
    named = [config for config in resource.configs if config.name == LINK_CONFIG]
    if not isinstance(resource, LegacyResource):
        return bool(named)
    current = image.topic_configs(resource.resource_name).get(LINK_CONFIG)
    return [config.value for config in named] != ([] if current is None else [current])
