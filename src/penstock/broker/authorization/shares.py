"""Checks of the APIs of share groups (KIP-932)."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.authorization.forms import REASONS, Environment, Merge, refusal, refusing, splitting
from penstock.broker.authorization.groups import split_description
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import delete_share_group_state as delete_state
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.apis import initialize_share_group_state as initialize
from penstock.wire.apis import read_share_group_state as read
from penstock.wire.apis import read_share_group_state_summary as summary
from penstock.wire.apis import write_share_group_state as write
from penstock.wire.apis.share_group_describe import DescribedGroup
from penstock.wire.schema import Struct

__all__ = [
    "check_alter_offsets",
    "check_delete_offsets",
    "check_describe",
    "check_describe_offsets",
    "check_member",
    "refuse_state",
]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


def _member(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """ShareFetch and ShareAcknowledge. Their handlers check each topic, at each attempt of a fetch.

    A member whose right was revoked loses its session, and what it has acquired is released.
    """
    if request.group_id is None:
        return None  # the handler refuses it
    if environment.access.allows(context, Operation.READ, _GROUP, request.group_id):
        return None
    environment.end_share_session(context, request.group_id, request.member_id or "")
    return refusal(api, _NO_GROUP)


#: by request: the types of the response, of its topics and of their partitions
_STATE_TYPES: Final[dict[type[Struct], tuple[Any, Any, Any]]] = {
    initialize.InitializeShareGroupStateRequest: (
        initialize.InitializeShareGroupStateResponse,
        initialize.InitializeStateResult,
        initialize.PartitionResult,
    ),
    read.ReadShareGroupStateRequest: (
        read.ReadShareGroupStateResponse,
        read.ReadStateResult,
        read.PartitionResult,
    ),
    write.WriteShareGroupStateRequest: (
        write.WriteShareGroupStateResponse,
        write.WriteStateResult,
        write.PartitionResult,
    ),
    delete_state.DeleteShareGroupStateRequest: (
        delete_state.DeleteShareGroupStateResponse,
        delete_state.DeleteStateResult,
        delete_state.PartitionResult,
    ),
    summary.ReadShareGroupStateSummaryRequest: (
        summary.ReadShareGroupStateSummaryResponse,
        summary.ReadStateSummaryResult,
        summary.PartitionResult,
    ),
}


def refuse_state(context: Context, request: Any, code: ErrorCode) -> Any:
    """The response to a denied request of another broker: it has no error for the whole request."""
    response_type, topic_type, result_type = _STATE_TYPES[type(request)]
    return response_type(
        results=[
            topic_type(
                topic_id=topic.topic_id,
                partitions=[
                    result_type(partition=p.partition, error_code=code, error_message=REASONS[code])
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(environment: Environment, context: Context, request: Any) -> Merge:
    return split_description(
        environment, context, request, DescribedGroup, lambda member: (member.assignment,)
    )


def _describe_offsets(environment: Environment, context: Context, request: Any) -> Merge:
    access = environment.access
    allowed, denied = environment.split(
        context, Operation.DESCRIBE, _GROUP, request.groups, lambda group: str(group.group_id)
    )
    request.groups = allowed
    hidden: dict[str, list[Any]] = {}
    for group in allowed:
        if group.topics is not None:
            visible, refused = environment.split(
                context, Operation.DESCRIBE, _TOPIC, group.topics, lambda topic: str(topic.topic_name)
            )
            group.topics, hidden[group.group_id] = visible, refused

    def merge(response: Any) -> Any:
        for group in response.groups:
            group.topics = [
                t
                for t in group.topics
                if access.allows(context, Operation.DESCRIBE, _TOPIC, t.topic_name, True)
            ]
            group.topics += [_hidden(topic) for topic in hidden.get(group.group_id, ())]
        response.groups += [
            describe.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=_NO_GROUP, error_message=REASONS[_NO_GROUP]
            )
            for group in denied
        ]
        return response

    return merge


def _hidden(topic: Any) -> describe.DescribeShareGroupOffsetsResponseTopic:
    return describe.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=_NO_TOPIC, error_message=REASONS[_NO_TOPIC]
            )
            for index in topic.partitions
        ],
    )


def _offset_changes(operation: Operation, refused_topic: Any) -> Any:
    """A check of a request that changes offsets: an operation on the group, and Read on each topic."""

    def refuse(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
        if environment.access.allows(context, operation, _GROUP, request.group_id):
            return None
        return refusal(api, _NO_GROUP)

    def split(environment: Environment, context: Context, request: Any) -> Merge | None:
        allowed, denied = environment.split(
            context, Operation.READ, _TOPIC, request.topics, lambda topic: str(topic.topic_name)
        )
        request.topics = allowed

        def merge(response: Any) -> Any:
            response.responses += [refused_topic(topic) for topic in denied]
            return response

        return merge if denied else None

    of_group, of_topics = refusing(refuse), splitting(split)
    return lambda environment, api, handler: of_group(environment, api, of_topics(environment, api, handler))


def _unaltered(topic: Any) -> alter.AlterShareGroupOffsetsResponseTopic:
    return alter.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            alter.AlterShareGroupOffsetsResponsePartition(
                partition_index=p.partition_index, error_code=_NO_TOPIC, error_message=REASONS[_NO_TOPIC]
            )
            for p in topic.partitions
        ],
    )


def _undeleted(topic: Any) -> delete.DeleteShareGroupOffsetsResponseTopic:
    return delete.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, error_code=_NO_TOPIC, error_message=REASONS[_NO_TOPIC]
    )


check_member = refusing(_member)
check_describe = splitting(_describe)
check_describe_offsets = splitting(_describe_offsets)
check_alter_offsets = _offset_changes(Operation.READ, _unaltered)
check_delete_offsets = _offset_changes(Operation.DELETE, _undeleted)
