"""Drives a shard with streams groups."""

from __future__ import annotations

from typing import cast

from penstock.groups.shard import GroupShard
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.topology import InternalTopic
from penstock.model.errors import ErrorCode
from penstock.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from tests.groups.shard_driver import PendingRequest, ShardDriver

__all__ = ["Driver"]


class Driver(ShardDriver):
    """Sends heartbeats. `missing` has the internal topics that the last one needed."""

    missing: list[InternalTopic]

    def send(self, request: StreamsGroupHeartbeatRequest) -> PendingRequest:
        def operate(shard: GroupShard, _: object) -> StreamsGroupHeartbeatResponse:
            response, missing = shard.streams.heartbeat(request, self.client(request.member_id))
            self.missing = list(missing)
            return response

        return self.submit(request.member_id, operate)

    def beat(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        pending = self.send(request)
        assert pending.error == ErrorCode.NONE, pending.error.name
        return cast(StreamsGroupHeartbeatResponse, pending.response)

    def group(self) -> StreamsGroup:
        group = self.shard.streams.find("g")
        self._check_replica(group)
        return group

    def _check_replica(self, group: StreamsGroup) -> None:
        """What the log says is what the group is."""
        replica = self.replica().streams.find("g")
        assert replica.state_name == group.state_name
        assert (replica.epoch, replica.assignment_epoch) == (group.epoch, group.assignment_epoch)
        assert replica.target == group.target
        assert {m.id: (m.metadata(), m.epoch, m.assigned, m.revoking) for m in replica.members.values()} == {
            m.id: (m.metadata(), m.epoch, m.assigned, m.revoking) for m in group.members.values()
        }
