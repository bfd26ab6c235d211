"""Members of groups, and those who look after groups."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.group_coordinator import client_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.apis.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.wire.apis.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = [
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "delete_groups",
    "describe_groups",
    "find_coordinator",
    "heartbeat",
    "join_group",
    "leave_group",
    "list_groups",
    "sync_group",
]

log = get_logger("groups")
#: bits of what anyone may do with a group while there is no authorizer: read, delete, describe, and its
#: configs
GROUP_OPERATIONS: Final = 0b1101_0100_1000
#: types of coordinators
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
#: first versions with several keys, with no protocol, with several members, with an error for unknown groups,
#: and with a protocol that has to be named
_BATCHED_KEYS_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_BATCHED_MEMBERS_FROM: Final = 3
_NOT_FOUND_FROM: Final = 6
_PROTOCOL_NAMED_FROM: Final = 5


# -- where a group is


def find_coordinator(context: Context, request: FindCoordinatorRequest) -> Any:
    groups = context.broker.groups
    if request.key_type == _GROUP_KEY and not all(map(groups.is_settled, _keys(context, request))):
        # The topic is made now, or is being made: nobody is sent to a coordinator that is not there yet.
        return context.spawn(_create_and_find(context, request))
    return _found(context, request)


async def _create_and_find(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    try:
        await context.broker.groups.ensure_topic()
    except ApiError as e:
        log.warning("no_coordinator", reason=str(e))
        return _not_found(context, request, e)
    return _found(context, request)


def _keys(context: Context, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.version >= _BATCHED_KEYS_FROM else [request.key]


def _not_found(context: Context, request: FindCoordinatorRequest, error: ApiError) -> FindCoordinatorResponse:
    keys = _keys(context, request)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _response(
        context,
        [Coordinator(key=k, node_id=-1, port=-1, error_code=code, error_message=str(error)) for k in keys],
    )


def _found(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = _keys(context, request)
    return _response(context, [_coordinator(context, request.key_type, key) for key in keys])


def _response(context: Context, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(context: Context, key_type: int, key: str) -> Coordinator:
    broker = context.broker
    if key_type != _GROUP_KEY:
        return _no_such_coordinator(key_type, key)
    index = broker.groups.partition_for(key)
    if index >= 0:
        leader = broker.image.topics[OFFSETS_TOPIC].partitions[index].leader
        for node, host, port, _, fenced in broker.nodes(context.listener.name):
            if node == leader and not fenced:
                return Coordinator(key=key, node_id=node, host=host, port=port)
    return Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _no_such_coordinator(key_type: int, key: str) -> Coordinator:
    """Neither transactions nor share groups have a coordinator here yet."""
    code = ErrorCode.INVALID_REQUEST
    if key_type == _TRANSACTION_KEY:
        # The one answer that every client takes as final: after any other, librdkafka asks for ever.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    message = f"This broker has no coordinators of type {key_type}"
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)


# -- members


def join_group(context: Context, request: JoinGroupRequest) -> Any:
    def refusal(error: ApiError) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=error.code, member_id=request.member_id)

    answer = context.broker.groups.ask(
        request.group_id, lambda shard, asker: shard.join(request, client_of(context), asker), refusal
    )
    if context.version < _NULL_PROTOCOL_FROM:
        return answer
    if not isinstance(answer, Deferred):
        return _without_empty_name(answer)
    later: Deferred[JoinGroupResponse] = Deferred()
    later.on_cancel = answer.cancel
    answer.then(lambda response: later.resolve(_without_empty_name(response)))
    return later


def _without_empty_name(response: JoinGroupResponse) -> JoinGroupResponse:
    """Errors come without a protocol, which older versions cannot but call ""."""
    response.protocol_name = response.protocol_name or None
    return response


def sync_group(context: Context, request: SyncGroupRequest) -> Any:
    if context.version >= _PROTOCOL_NAMED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.broker.groups.ask(
        request.group_id,
        lambda shard, asker: shard.sync(request, asker),
        lambda error: SyncGroupResponse(error_code=error.code),
    )


def heartbeat(context: Context, request: HeartbeatRequest) -> Any:
    return context.broker.groups.ask(
        request.group_id, lambda shard, _: shard.heartbeat(request), _heartbeat_refusal
    )


def _heartbeat_refusal(error: ApiError) -> HeartbeatResponse:
    # While the group is being loaded nobody's session runs out, so there is nothing to worry members with.
    code = ErrorCode.NONE if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    return HeartbeatResponse(error_code=code)


def leave_group(context: Context, request: LeaveGroupRequest) -> Any:
    one_member = context.version < _BATCHED_MEMBERS_FROM
    if one_member:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def decide(shard: Any, _: object) -> LeaveGroupResponse:
        response: LeaveGroupResponse = shard.leave(request)
        if one_member:
            response.error_code = response.members[0].error_code
        return response

    def refusal(error: ApiError) -> LeaveGroupResponse:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID or one_member:
            return LeaveGroupResponse(error_code=error.code)
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error.code
                )
                for m in request.members
            ]
        )

    return context.broker.groups.ask(request.group_id, decide, refusal)


def consumer_group_heartbeat(context: Context, request: ConsumerGroupHeartbeatRequest) -> Any:
    return context.broker.groups.ask(
        request.group_id,
        lambda shard, _: shard.consumer_heartbeat(request, client_of(context)),
        lambda error: ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=error.message or None
        ),
    )


# -- administrators


def list_groups(context: Context, request: ListGroupsRequest) -> Any:
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    groups = context.broker.groups

    def finish(answers: list[ListGroupsResponse]) -> ListGroupsResponse:
        for answer in answers:
            if answer.error_code:
                return ListGroupsResponse(error_code=answer.error_code)
        return ListGroupsResponse(groups=[group for answer in answers for group in answer.groups])

    return groups.ask_each(
        ((index, None) for index in groups.runtime.indexes()),
        lambda shard, _: ListGroupsResponse(groups=[*shard.list(states, types)]),
        lambda _, error: ListGroupsResponse(error_code=error.code),
        finish,
    )


def describe_groups(context: Context, request: DescribeGroupsRequest) -> Any:
    groups = context.broker.groups

    def finish(answers: list[DescribedGroup]) -> DescribeGroupsResponse:
        for answer in answers:
            if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and context.version < _NOT_FOUND_FROM:
                answer.error_code = ErrorCode.NONE
            if request.include_authorized_operations and not answer.error_code:
                answer.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=answers)

    return groups.ask_each(
        ((groups.partition_for(name), name) for name in request.groups),
        lambda shard, name: shard.describe(name),
        lambda name, error: DescribedGroup(group_id=name, error_code=error.code),
        finish,
    )


def consumer_group_describe(context: Context, request: ConsumerGroupDescribeRequest) -> Any:
    groups = context.broker.groups

    def finish(answers: list[DescribedConsumerGroup]) -> ConsumerGroupDescribeResponse:
        for answer in answers:
            if request.include_authorized_operations and not answer.error_code:
                answer.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=answers)

    return groups.ask_each(
        ((groups.partition_for(name), name) for name in request.group_ids),
        lambda shard, name: shard.describe_consumer(name),
        lambda name, error: DescribedConsumerGroup(group_id=name, error_code=error.code),
        finish,
    )


def delete_groups(context: Context, request: DeleteGroupsRequest) -> Any:
    groups = context.broker.groups
    return groups.ask_each(
        ((groups.partition_for(name), name) for name in dict.fromkeys(request.groups_names)),
        lambda shard, name: shard.delete(name),
        lambda name, error: DeletableGroupResult(group_id=name, error_code=error.code),
        lambda answers: DeleteGroupsResponse(results=answers),
    )
