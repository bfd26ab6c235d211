"""A member of a streams group: its metadata and its current tasks, one record each.

A member is a thread of a Kafka Streams application. The threads of an instance have one process id, and one
directory of state: a process has a task in one role only.
"""

from __future__ import annotations

from penstock.groups.epoch_group import MemberState
from penstock.groups.streams.records import (
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from penstock.groups.streams.tasks import NO_TASKS_WITH_EPOCHS, TasksWithEpochs
from penstock.wire.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest

__all__ = ["StreamsMember", "current_tasks"]


class StreamsMember:
    """A member. Only replayed records change it."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "client_tags",
        "endpoint",
        "epoch",
        "id",
        "instance_id",
        "previous_epoch",
        "process_id",
        "rack_id",
        "rebalance_timeout_ms",
        "revoking",
        "state",
        "topology_epoch",
    )

    def __init__(self, id: str) -> None:
        self.id = id
        self.instance_id: str | None = None
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = -1
        self.topology_epoch = -1
        self.process_id = ""
        #: for interactive queries, as host and port
        self.endpoint: tuple[str, int] | None = None
        self.client_tags: dict[str, str] = {}
        self.epoch = 0
        self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned: TasksWithEpochs = NO_TASKS_WITH_EPOCHS
        self.revoking: TasksWithEpochs = NO_TASKS_WITH_EPOCHS

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, subtopology: str, partition: int) -> int | None:
        """The epoch in which the member got an active task; None if it does not have the task."""
        epoch = self.assigned.active.get(subtopology, {}).get(partition)
        return self.revoking.active.get(subtopology, {}).get(partition) if epoch is None else epoch

    # -- metadata

    def metadata(self) -> StreamsGroupMemberMetadataValue:
        endpoint = self.endpoint
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=[KeyValue(key=key, value=value) for key, value in sorted(self.client_tags.items())],
        )

    def changed_metadata(
        self, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> StreamsGroupMemberMetadataValue:
        """The metadata of the member after a heartbeat. What the heartbeat leaves out stays as it is."""
        changed = self.metadata()
        changed.client_id, changed.client_host = client_id, client_host
        if request.rack_id is not None:
            changed.rack_id = request.rack_id
        if request.rebalance_timeout_ms != -1:
            changed.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.topology is not None:
            changed.topology_epoch = request.topology.epoch
        if request.process_id is not None:
            changed.process_id = request.process_id
        if request.user_endpoint is not None:
            endpoint = request.user_endpoint
            changed.user_endpoint = Endpoint(host=endpoint.host, port=endpoint.port)
        if request.client_tags is not None:
            tags = {tag.key: tag.value for tag in request.client_tags}
            changed.client_tags = [KeyValue(key=key, value=value) for key, value in sorted(tags.items())]
        return changed

    def apply_metadata(self, value: StreamsGroupMemberMetadataValue) -> None:
        self.instance_id = value.instance_id
        self.rack_id = value.rack_id
        self.client_id = value.client_id
        self.client_host = value.client_host
        self.rebalance_timeout_ms = value.rebalance_timeout_ms
        self.topology_epoch = value.topology_epoch
        self.process_id = value.process_id
        endpoint = value.user_endpoint
        self.endpoint = None if endpoint is None else (endpoint.host, endpoint.port)
        self.client_tags = {tag.key: tag.value for tag in value.client_tags}

    # -- current tasks

    def apply_tasks(self, value: StreamsGroupCurrentMemberAssignmentValue) -> None:
        epoch = value.member_epoch
        self.epoch = epoch
        self.previous_epoch = value.previous_member_epoch
        self.state = MemberState(value.state)
        self.assigned = TasksWithEpochs.from_record(
            value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch
        )
        self.revoking = TasksWithEpochs.from_record(
            value.active_tasks_pending_revocation,
            value.standby_tasks_pending_revocation,
            value.warmup_tasks_pending_revocation,
            epoch,
        )

    def metadata_key(self, group_id: str) -> StreamsGroupMemberMetadataKey:
        return StreamsGroupMemberMetadataKey(group_id=group_id, member_id=self.id)

    def tasks_key(self, group_id: str) -> StreamsGroupCurrentMemberAssignmentKey:
        return StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.id)


def current_tasks(
    epoch: int,
    previous_epoch: int,
    state: MemberState,
    assigned: TasksWithEpochs,
    revoking: TasksWithEpochs = NO_TASKS_WITH_EPOCHS,
) -> StreamsGroupCurrentMemberAssignmentValue:
    """The record of a member's current tasks."""
    active, standby, warmup = assigned.ids()
    active_revoking, standby_revoking, warmup_revoking = revoking.ids()
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous_epoch,
        state=state,
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        active_tasks_pending_revocation=active_revoking,
        standby_tasks_pending_revocation=standby_revoking,
        warmup_tasks_pending_revocation=warmup_revoking,
    )
