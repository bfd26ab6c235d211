"""Share groups: heartbeats of members, and administration (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context
from penstock.broker.base.features import NO_SHARE_GROUPS
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.share_group_admin import ShareGroupAdmin
from penstock.broker.handlers.groups import GROUP_OPERATIONS, client_of, sort_names
from penstock.groups.shard import GroupShard
from penstock.groups.share_requests import check_share_request
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.wire.apis import alter_share_group_offsets as alter
from penstock.wire.apis import delete_share_group_offsets as delete
from penstock.wire.apis import describe_share_group_offsets as describe
from penstock.wire.apis import share_group_describe as described
from penstock.wire.apis.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.wire.schema import Struct

__all__ = ["ShareGroupHandlers"]


class ShareGroupHandlers:
    """The APIs of share groups that the group coordinator serves."""

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupShard],
        admin: ShareGroupAdmin,
        is_enabled: Callable[[], bool],
    ) -> None:
        """`is_enabled` returns true while share groups are enabled (share.version)."""
        self._groups = groups
        self._admin = admin
        self._is_enabled = is_enabled

    def share_group_heartbeat(self, context: Context, request: ShareGroupHeartbeatRequest) -> Any:
        def error_response(error: ApiError) -> ShareGroupHeartbeatResponse:
            return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)

        def operate(shard: GroupShard, _: object) -> Struct:
            return shard.shares.heartbeat(request, client_of(context))

        if not self._is_enabled():
            return error_response(ApiError(ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS))
        try:
            check_share_request(request)
        except ApiError as e:
            return error_response(e)
        if context.is_large:
            return context.spawn(self._sort_and_submit(context, request, operate, error_response))
        return self._groups.submit(request.group_id, operate, error_response)

    async def _sort_and_submit(
        self,
        context: Context,
        request: ShareGroupHeartbeatRequest,
        operate: Callable[[GroupShard, object], Struct],
        error_response: Callable[[ApiError], Struct],
    ) -> Struct:
        await sort_names(context, request)
        response = self._groups.submit(request.group_id, operate, error_response)
        return await awaited(response) if isinstance(response, Deferred) else response

    def share_group_describe(self, context: Context, request: described.ShareGroupDescribeRequest) -> Any:
        groups = self._groups

        def finish(responses: list[described.DescribedGroup]) -> described.ShareGroupDescribeResponse:
            for response in responses:
                if request.include_authorized_operations and not response.error_code:
                    response.authorized_operations = GROUP_OPERATIONS
            return described.ShareGroupDescribeResponse(groups=responses)

        if not self._is_enabled():
            code, why = ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS
            return finish(
                [
                    described.DescribedGroup(group_id=name, error_code=code, error_message=why)
                    for name in request.group_ids
                ]
            )
        return groups.submit_each(
            ((groups.topic.partition_for(name), name) for name in request.group_ids),
            lambda shard, name: shard.share_admin.describe(_named(name)),
            lambda name, error: described.DescribedGroup(group_id=name, error_code=error.code),
            finish,
        )

    # -- offsets

    async def describe_share_group_offsets(
        self, context: Context, request: describe.DescribeShareGroupOffsetsRequest
    ) -> describe.DescribeShareGroupOffsetsResponse:
        response = describe.DescribeShareGroupOffsetsResponse()
        for wanted in request.groups:
            try:
                self._check(wanted.group_id)
                response.groups.append(await self._admin.describe_offsets(wanted))
            except ApiError as e:
                response.groups.append(
                    describe.DescribeShareGroupOffsetsResponseGroup(
                        group_id=wanted.group_id, error_code=e.code, error_message=e.message or None
                    )
                )
        return response

    async def alter_share_group_offsets(
        self, context: Context, request: alter.AlterShareGroupOffsetsRequest
    ) -> alter.AlterShareGroupOffsetsResponse:
        try:
            self._check(request.group_id)
            return await self._admin.alter_offsets(request)
        except ApiError as e:
            return alter.AlterShareGroupOffsetsResponse(error_code=e.code, error_message=e.message or None)

    async def delete_share_group_offsets(
        self, context: Context, request: delete.DeleteShareGroupOffsetsRequest
    ) -> delete.DeleteShareGroupOffsetsResponse:
        try:
            self._check(request.group_id)
            return await self._admin.delete_offsets(request.group_id, [t.topic_name for t in request.topics])
        except ApiError as e:
            return delete.DeleteShareGroupOffsetsResponse(error_code=e.code, error_message=e.message or None)

    def _check(self, group_id: str) -> None:
        if not self._is_enabled():
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS)
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)

    # -- deletion

    def delete_groups(self, context: Context, request: DeleteGroupsRequest) -> Any:
        """Deletes groups of any type. The state of share partitions is deleted before their group."""
        groups = self._groups
        shared = []
        for name in dict.fromkeys(request.groups_names):
            shard = groups.shard(groups.topic.partition_for(name))
            if shard is not None and shard.shares.get(name) is not None:
                shared.append(name)
        if not shared:
            return self._delete(request.groups_names, {})
        return context.spawn(self._delete_shared(request.groups_names, shared))

    async def _delete_shared(self, names: list[str], shared: list[str]) -> Any:
        failed: dict[str, ErrorCode] = {}
        for name in shared:
            try:
                await self._admin.delete_group(name)
            except ApiError as e:
                failed[name] = e.code
        response = self._delete([name for name in names if name not in failed], failed)
        return await awaited(response) if isinstance(response, Deferred) else response

    def _delete(self, names: list[str], failed: dict[str, ErrorCode]) -> Any:
        groups = self._groups
        errors = [DeletableGroupResult(group_id=name, error_code=code) for name, code in failed.items()]
        return groups.submit_each(
            ((groups.topic.partition_for(name), name) for name in dict.fromkeys(names)),
            lambda shard, name: shard.delete(name),
            lambda name, error: DeletableGroupResult(group_id=name, error_code=error.code),
            lambda responses: DeleteGroupsResponse(results=[*responses, *errors]),
        )


def _named(group_id: str) -> str:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    return group_id
