"""Checks of the APIs about groups and committed offsets."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.authorization.forms import (
    REASONS,
    Environment,
    Merge,
    on_group,
    refusal,
    refusing,
    splitting,
)
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup
from penstock.wire.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.wire.apis.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from penstock.wire.apis.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = [
    "check_consumer_group_describe",
    "check_consumer_heartbeat",
    "check_delete_groups",
    "check_describe_groups",
    "check_find_coordinator",
    "check_list_groups",
    "check_offset_commit",
    "check_offset_delete",
    "check_offset_fetch",
]

_TOPIC, _GROUP, _TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_TXN: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NO_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_NOT_REQUESTED: Final = -(2**31)
_BATCHED: Final = 4
_COMMIT_BY_ID: Final = 10
_BATCHED_FETCH: Final = 8
_GROUP_ERROR_FROM: Final = 2


def _topic_name(environment: Environment, name: str, topic_id: bytes, by_id: bool) -> str | None:
    """The name of a topic in a request; None for an id that is unknown, which the handler refuses."""
    if not by_id:
        return name
    known = environment.image.topics_by_id.get(TopicId(topic_id))
    return None if known is None else known.name


# -- coordinators


def _find_coordinator_error(environment: Environment, context: Context, key_type: int, key: str) -> ErrorCode:
    access = environment.access
    kinds = {0: (_GROUP, _NO_GROUP), 1: (_TXN, _NO_TXN)}
    if key_type not in kinds:
        allowed = access.allows_on_cluster(context, Operation.CLUSTER_ACTION)
        return ErrorCode.NONE if allowed else _NO_CLUSTER
    kind, code = kinds[key_type]
    return ErrorCode.NONE if access.allows(context, Operation.DESCRIBE, kind, key) else code


def _refused_coordinator(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """The versions with one key. The handler must not run: it creates the internal topic if it is missing."""
    if context.version >= _BATCHED:
        return None
    code = _find_coordinator_error(environment, context, request.key_type, request.key)
    if not code:
        return None
    return FindCoordinatorResponse(error_code=code, error_message=REASONS[code], node_id=-1, port=-1)


def _find_coordinators(environment: Environment, context: Context, request: Any) -> Merge | None:
    if context.version < _BATCHED:
        return None
    keys = request.coordinator_keys
    denied = {
        key: code
        for key in keys
        if (code := _find_coordinator_error(environment, context, request.key_type, key))
    }
    if not denied:
        return None
    request.coordinator_keys = [key for key in keys if key not in denied]

    def merge(response: Any) -> Any:
        response.coordinators += [
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=REASONS[code])
            for key, code in denied.items()
        ]
        return response

    return merge


def check_find_coordinator(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_find_coordinators)(environment, api, handler)
    return refusing(_refused_coordinator)(environment, api, inner)


# -- committed offsets


def _offset_commit(environment: Environment, context: Context, request: Any) -> Merge | None:
    by_id = context.version >= _COMMIT_BY_ID
    allowed: list[Any] = []
    denied: list[Any] = []
    for topic in request.topics:
        name = _topic_name(environment, topic.name, topic.topic_id, by_id)
        may = name is None or environment.access.allows(context, Operation.READ, _TOPIC, name)
        (allowed if may else denied).append(topic)
    if not denied:
        return None
    request.topics = allowed

    def merge(response: Any) -> Any:
        response.topics += [_commit_error(topic, _NO_TOPIC) for topic in denied]
        return response

    return merge


def _commit_error(topic: Any, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ],
    )


def _refused_commit(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    if environment.access.allows(context, Operation.READ, _GROUP, request.group_id):
        return None
    return OffsetCommitResponse(topics=[_commit_error(topic, _NO_GROUP) for topic in request.topics])


def check_offset_commit(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_offset_commit)(environment, api, handler)
    return refusing(_refused_commit)(environment, api, inner)


def _offset_fetch(environment: Environment, context: Context, request: Any) -> Merge:
    """Denied groups get an error; denied topics get one each, or are left out if all topics are fetched."""
    access, version = environment.access, context.version
    denied_groups: list[Any] = []
    denied_topics: dict[str, list[Any]] = {}
    groups = request.groups if version >= _BATCHED_FETCH else [request]
    for group in groups:
        if not access.allows(context, Operation.DESCRIBE, _GROUP, group.group_id):
            denied_groups.append(group)
        elif group.topics is not None:
            allowed: list[Any] = []
            denied: list[Any] = []
            for topic in group.topics:
                by_id = version >= _COMMIT_BY_ID
                name = _topic_name(environment, topic.name, getattr(topic, "topic_id", b""), by_id)
                may = name is None or access.allows(context, Operation.DESCRIBE, _TOPIC, name)
                (allowed if may else denied).append(topic)
            group.topics, denied_topics[group.group_id] = allowed, denied
    fetches_all = {group.group_id for group in groups if group.topics is None}
    if version >= _BATCHED_FETCH:
        request.groups = [group for group in groups if group not in denied_groups]
    requested = [] if version >= _BATCHED_FETCH else list(request.topics or ())
    if denied_groups and version < _BATCHED_FETCH:
        request.topics = []

    def merge(response: Any) -> Any:
        if version >= _BATCHED_FETCH:
            for group in response.groups:
                _complete_group(environment, context, group, group.group_id, fetches_all, denied_topics)
            response.groups += [
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=_NO_GROUP)
                for group in denied_groups
            ]
        elif denied_groups:
            # Versions 0 and 1 have no error for the whole response.
            denied = requested if version < _GROUP_ERROR_FROM else []
            response.topics = [_denied_offsets(topic, version, _NO_GROUP) for topic in denied]
            response.error_code = _NO_GROUP
        else:
            _complete_group(environment, context, response, request.group_id, fetches_all, denied_topics)
        return response

    return merge


def _complete_group(
    environment: Environment,
    context: Context,
    response: Any,
    group_id: str,
    fetches_all: set[str],
    denied_topics: dict[str, list[Any]],
) -> None:
    if response.error_code:
        return
    if group_id in fetches_all:
        by_id = context.version >= _COMMIT_BY_ID
        response.topics = [
            topic
            for topic in response.topics
            if (name := _topic_name(environment, topic.name, getattr(topic, "topic_id", b""), by_id))
            and environment.access.allows(context, Operation.DESCRIBE, _TOPIC, name, quiet=True)
        ]
    response.topics += [
        _denied_offsets(topic, context.version, _NO_TOPIC) for topic in denied_topics.get(group_id, ())
    ]


def _denied_offsets(topic: Any, version: int, code: ErrorCode) -> Any:
    if version >= _BATCHED_FETCH:
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


check_offset_fetch = splitting(_offset_fetch)


def _offset_delete(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(
        context, Operation.READ, _TOPIC, request.topics, lambda topic: str(topic.name)
    )
    request.topics = allowed

    def merge(response: Any) -> Any:
        if not response.error_code:
            response.topics += [
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=_NO_TOPIC)
                        for p in topic.partitions
                    ],
                )
                for topic in denied
            ]
        return response

    return merge if denied else None


def check_offset_delete(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    return on_group(Operation.DELETE)(environment, api, splitting(_offset_delete)(environment, api, handler))


# -- membership


def _consumer_heartbeat(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    access = environment.access
    if not access.allows(context, Operation.READ, _GROUP, request.group_id):
        return refusal(api, _NO_GROUP)
    for name in request.subscribed_topic_names or ():
        if not access.allows(context, Operation.DESCRIBE, _TOPIC, name):
            return refusal(api, _NO_TOPIC)
    return None


check_consumer_heartbeat = refusing(_consumer_heartbeat)


# -- administration of groups


def _list_groups(environment: Environment, context: Context, request: Any) -> Merge | None:
    access = environment.access
    if access.allows_on_cluster(context, Operation.DESCRIBE, quiet=True):
        return None

    def merge(response: Any) -> Any:
        response.groups = [
            group
            for group in response.groups
            if access.allows(context, Operation.DESCRIBE, _GROUP, group.group_id, quiet=True)
        ]
        return response

    return merge


def _set_group_operations(environment: Environment, context: Context, groups: Any) -> None:
    for group in groups:
        if group.authorized_operations != _NOT_REQUESTED and not group.error_code:
            group.authorized_operations = environment.access.operations(context, _GROUP, group.group_id)


def _describe_groups(environment: Environment, context: Context, request: Any) -> Merge:
    allowed, denied = environment.split(context, Operation.DESCRIBE, _GROUP, request.groups, str)
    request.groups = allowed

    def merge(response: Any) -> Any:
        _set_group_operations(environment, context, response.groups)
        response.groups += [DescribedGroup(group_id=name, error_code=_NO_GROUP) for name in denied]
        return response

    return merge


def _consumer_group_describe(environment: Environment, context: Context, request: Any) -> Merge:
    """A group whose members have a topic that may not be described is denied as a whole, as in Kafka."""
    access = environment.access
    allowed, denied = environment.split(context, Operation.DESCRIBE, _GROUP, request.group_ids, str)
    request.group_ids = allowed

    def hides(group: Any) -> bool:
        names = {
            name
            for member in group.members
            for name in (
                *member.subscribed_topic_names,
                *(p.topic_name for p in member.assignment.topic_partitions),
                *(p.topic_name for p in member.target_assignment.topic_partitions),
            )
        }
        return not all(access.allows(context, Operation.DESCRIBE, _TOPIC, name) for name in names)

    def merge(response: Any) -> Any:
        _set_group_operations(environment, context, response.groups)
        message = "The group has described topic(s) that the client is not authorized to describe."
        response.groups = [
            DescribedConsumerGroup(group_id=group.group_id, error_code=_NO_TOPIC, error_message=message)
            if hides(group)
            else group
            for group in response.groups
        ]
        response.groups += [
            DescribedConsumerGroup(group_id=name, error_code=_NO_GROUP, error_message=REASONS[_NO_GROUP])
            for name in denied
        ]
        return response

    return merge


def _delete_groups(environment: Environment, context: Context, request: Any) -> Merge | None:
    allowed, denied = environment.split(context, Operation.DELETE, _GROUP, request.groups_names, str)
    request.groups_names = allowed

    def merge(response: Any) -> Any:
        response.results += [
            DeletableGroupResult(group_id=name, error_code=_NO_GROUP) for name in dict.fromkeys(denied)
        ]
        return response

    return merge if denied else None


check_list_groups = splitting(_list_groups)
check_describe_groups = splitting(_describe_groups)
check_consumer_group_describe = splitting(_consumer_group_describe)
check_delete_groups = splitting(_delete_groups)
