"""Streams groups: heartbeats of members, and description (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.base.features import NO_STREAMS_GROUPS
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.streams_topics import StreamsTopics
from penstock.broker.handlers.groups import GROUP_OPERATIONS, client_of
from penstock.groups.shard import GroupShard
from penstock.groups.streams.checks import check_streams_request, check_topic_names
from penstock.groups.streams.topology import InternalTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.wire.apis import streams_group_describe as described
from penstock.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.wire.schema import Struct

__all__ = ["StreamsGroupHandlers"]


class StreamsGroupHandlers:
    """The APIs of streams groups."""

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupShard],
        topics: StreamsTopics,
        is_enabled: Callable[[], bool],
    ) -> None:
        """`is_enabled` returns true while streams groups are enabled (streams.version)."""
        self._groups = groups
        self._topics = topics
        self._is_enabled = is_enabled

    def streams_group_heartbeat(self, context: Context, request: StreamsGroupHeartbeatRequest) -> Any:
        missing: list[InternalTopic] = []

        def error_response(error: ApiError) -> StreamsGroupHeartbeatResponse:
            return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)

        def operate(shard: GroupShard, _: object) -> Struct:
            response, topics = shard.streams.heartbeat(request, client_of(context))
            missing.extend(topics)
            return response

        def answered(response: Any) -> Any:
            if missing and not response.error_code:
                self._topics.create(context, missing, response, response.heartbeat_interval_ms)
            return response

        if not self._is_enabled():
            return error_response(ApiError(ErrorCode.UNSUPPORTED_VERSION, NO_STREAMS_GROUPS))
        try:
            check_topic_names(request.topology)
            check_streams_request(request)
        except ApiError as e:
            return error_response(e)
        response = self._groups.submit(request.group_id, operate, error_response)
        if not isinstance(response, Deferred):
            return answered(response)
        later: Deferred[Struct] = Deferred()
        later.on_cancel = response.cancel
        response.then(lambda found: later.resolve(answered(found)))
        return later

    def streams_group_describe(self, context: Context, request: described.StreamsGroupDescribeRequest) -> Any:
        groups = self._groups

        def finish(responses: list[described.DescribedGroup]) -> described.StreamsGroupDescribeResponse:
            for response in responses:
                if request.include_authorized_operations and not response.error_code:
                    response.authorized_operations = GROUP_OPERATIONS
            return described.StreamsGroupDescribeResponse(groups=responses)

        if not self._is_enabled():
            code, why = ErrorCode.UNSUPPORTED_VERSION, NO_STREAMS_GROUPS
            return finish(
                [
                    described.DescribedGroup(group_id=name, error_code=code, error_message=why)
                    for name in request.group_ids
                ]
            )
        return groups.submit_each(
            ((groups.topic.partition_for(name), name) for name in request.group_ids),
            lambda shard, name: shard.streams_admin.describe(name),
            lambda name, error: described.DescribedGroup(
                group_id=name, error_code=error.code, error_message=error.message or None
            ),
            finish,
        )
