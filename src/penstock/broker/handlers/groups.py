"""Group membership (JoinGroup to ConsumerGroupHeartbeat) and administration of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from penstock.broker.base.access import Access
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.regexes import Regexes
from penstock.broker.base.steps import sorted_in_steps
from penstock.broker.coordinators.replies import PendingReply
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.groups.ledger import Client
from penstock.groups.shard import GroupShard
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.security.acls import Operation, ResourceType
from penstock.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.apis.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.apis.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from penstock.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.schema import Struct

__all__ = ["GroupHandlers", "client_of", "sort_names"]

#: bits of the operations that are allowed on a group while there is no authorizer: read, delete, describe,
#: and describe and alter its configs
GROUP_OPERATIONS: Final = 0b1101_0100_1000
#: first versions with no protocol, with several members, with an error for unknown groups, and with a
#: protocol that has to be named
_NULL_PROTOCOL_FROM: Final = 7
_BATCHED_MEMBERS_FROM: Final = 3
_NOT_FOUND_FROM: Final = 6
_PROTOCOL_NAMED_FROM: Final = 5
#: the most groups that are listed without turns of other requests
_LISTED_AT_ONCE: Final = 1000


def client_of(context: Context) -> Client:
    return Client(context.client_id or "", f"/{context.host}", context.version)


async def sort_names(context: Context, request: Any) -> None:
    """Sort the many names of a heartbeat in slices: the group keeps them sorted."""
    if request.subscribed_topic_names is not None:
        names = request.subscribed_topic_names
        request.subscribed_topic_names = await context.until_done(sorted_in_steps(names))


class GroupHandlers:
    """The APIs of group members and of administrators of groups."""

    def __init__(
        self, groups: CoordinatorRuntime[GroupShard], regexes: Regexes, access: Access | None = None
    ) -> None:
        """`access` is None without an authorizer."""
        self._groups = groups
        self._regexes = regexes
        self._access = access

    # -- members

    def join_group(self, context: Context, request: JoinGroupRequest) -> Any:
        def error_response(error: ApiError) -> JoinGroupResponse:
            return JoinGroupResponse(error_code=error.code, member_id=request.member_id)

        def operate(shard: GroupShard, pending: PendingReply) -> JoinGroupResponse | None:
            return shard.members.join(request, client_of(context), pending)

        joined = cast(
            "JoinGroupResponse | Deferred[JoinGroupResponse]",
            self._groups.submit(request.group_id, operate, error_response),
        )
        if context.version < _NULL_PROTOCOL_FROM:
            return joined
        if not isinstance(joined, Deferred):
            return _without_empty_name(joined)
        later: Deferred[JoinGroupResponse] = Deferred()
        later.on_cancel = joined.cancel
        joined.then(lambda response: later.resolve(_without_empty_name(response)))
        return later

    def sync_group(self, context: Context, request: SyncGroupRequest) -> Any:
        if context.version >= _PROTOCOL_NAMED_FROM and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._groups.submit(
            request.group_id,
            lambda shard, pending: shard.members.sync(request, pending),
            lambda error: SyncGroupResponse(error_code=error.code),
        )

    def heartbeat(self, context: Context, request: HeartbeatRequest) -> Any:
        return self._groups.submit(
            request.group_id, lambda shard, _: shard.members.heartbeat(request), _heartbeat_error_response
        )

    def leave_group(self, context: Context, request: LeaveGroupRequest) -> Any:
        one_member = context.version < _BATCHED_MEMBERS_FROM
        if one_member:
            request.members = [MemberIdentity(member_id=request.member_id)]

        def operate(shard: GroupShard, _: object) -> LeaveGroupResponse:
            response: LeaveGroupResponse = shard.members.leave(request)
            if one_member:
                response.error_code = response.members[0].error_code
            return response

        def error_response(error: ApiError) -> LeaveGroupResponse:
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

        return self._groups.submit(request.group_id, operate, error_response)

    def consumer_group_heartbeat(self, context: Context, request: ConsumerGroupHeartbeatRequest) -> Any:
        client, access = client_of(context), self._access
        if access is not None:
            client.may_describe = lambda topic: access.allows(
                context, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True
            )
        regex = request.subscribed_topic_regex
        if (regex and not self._regexes.is_checked(regex)) or context.is_large:
            return context.spawn(self._check_and_heartbeat(context, request, client))
        client.regex_error = self._regexes.error_of(regex) if regex else None
        return self._submit_heartbeat(request, client)

    def _submit_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Struct | Deferred[Struct]:
        return self._groups.submit(
            request.group_id,
            lambda shard, _: shard.members.consumer_heartbeat(request, client),
            lambda error: ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message or None
            ),
        )

    async def _check_and_heartbeat(
        self, context: Context, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Struct:
        """Have a regular expression checked by a worker before it gets into the log. Sort many names."""
        if request.subscribed_topic_regex:
            client.regex_error = await self._regexes.check(request.subscribed_topic_regex)
        await sort_names(context, request)
        response = self._submit_heartbeat(request, client)
        return await awaited(response) if isinstance(response, Deferred) else response

    # -- administration

    def list_groups(self, context: Context, request: ListGroupsRequest) -> Any:
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        if sum(shard.group_count for shard in self._shards()) > _LISTED_AT_ONCE:
            return context.spawn(self._list_many(context, states, types))
        return self._list(lambda shard: shard.list(states, types))

    def _shards(self) -> Iterator[GroupShard]:
        found = (self._groups.shard(index) for index in self._groups.indexes())
        return (shard for shard in found if shard is not None)

    async def _list_many(self, context: Context, states: set[str], types: set[str]) -> ListGroupsResponse:
        """List so many groups that other requests go on meanwhile."""
        listed: dict[GroupShard, Sequence[ListedGroup]] = {}
        for shard in list(self._shards()):
            listed[shard] = await context.until_done(shard.list_in_steps(states, types))
        # The groups are those of records that may not be committed yet: a turn of each shard waits for them.
        response = self._list(lambda shard: listed.get(shard, ()))
        found = await awaited(response) if isinstance(response, Deferred) else response
        return cast(ListGroupsResponse, found)

    def _list(self, of_shard: Callable[[GroupShard], Sequence[ListedGroup]]) -> Struct | Deferred[Struct]:
        groups = self._groups

        def finish(responses: list[ListGroupsResponse]) -> ListGroupsResponse:
            for response in responses:
                if response.error_code:
                    return ListGroupsResponse(error_code=response.error_code)
            return ListGroupsResponse(groups=[group for response in responses for group in response.groups])

        return groups.submit_each(
            ((index, None) for index in groups.indexes()),
            lambda shard, _: ListGroupsResponse(groups=[*of_shard(shard)]),
            lambda _, error: ListGroupsResponse(error_code=error.code),
            finish,
        )

    def describe_groups(self, context: Context, request: DescribeGroupsRequest) -> Any:
        groups = self._groups

        def finish(responses: list[DescribedGroup]) -> DescribeGroupsResponse:
            for response in responses:
                if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND and context.version < _NOT_FOUND_FROM:
                    response.error_code = ErrorCode.NONE
                if request.include_authorized_operations and not response.error_code:
                    response.authorized_operations = GROUP_OPERATIONS
            return DescribeGroupsResponse(groups=responses)

        return groups.submit_each(
            ((groups.topic.partition_for(name), name) for name in request.groups),
            lambda shard, name: shard.describe(name),
            lambda name, error: DescribedGroup(group_id=name, error_code=error.code),
            finish,
        )

    def consumer_group_describe(self, context: Context, request: ConsumerGroupDescribeRequest) -> Any:
        groups = self._groups

        def finish(responses: list[DescribedConsumerGroup]) -> ConsumerGroupDescribeResponse:
            for response in responses:
                if request.include_authorized_operations and not response.error_code:
                    response.authorized_operations = GROUP_OPERATIONS
            return ConsumerGroupDescribeResponse(groups=responses)

        return groups.submit_each(
            ((groups.topic.partition_for(name), name) for name in request.group_ids),
            lambda shard, name: shard.describe_consumer(name),
            lambda name, error: DescribedConsumerGroup(group_id=name, error_code=error.code),
            finish,
        )


def _without_empty_name(response: JoinGroupResponse) -> JoinGroupResponse:
    """Replace the empty protocol name of an error by null, which older versions cannot encode."""
    response.protocol_name = response.protocol_name or None
    return response


def _heartbeat_error_response(error: ApiError) -> HeartbeatResponse:
    # Sessions do not expire while the group is being loaded, so the heartbeat succeeds, as in Kafka.
    code = ErrorCode.NONE if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    return HeartbeatResponse(error_code=code)
