"""The state of a streams group (KIP-1071): members, epochs, topology, target, and owners of tasks.

Only replayed records change the group, except for what is in memory only: the topology as it was last
compared with the topics of the cluster (`configured`, `image_offset`), the epoch of the endpoints, and the
member that has requested the shutdown of the application.

Invariant: `owners` has exactly the tasks in members' `assigned` and `revoking`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.groups.epoch_group import ReconciledGroup
from penstock.groups.streams.member import StreamsMember
from penstock.groups.streams.owners import TaskOwners
from penstock.groups.streams.records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from penstock.groups.streams.tasks import NO_TASKS, TasksByRole
from penstock.groups.streams.topology import ConfiguredTopology, required_topics
from penstock.groups.subscriptions import hash_of
from penstock.metadata.image import ClusterImage
from penstock.wire.apis.streams_group_heartbeat import EndpointToPartitions
from penstock.wire.schema import Struct

__all__ = ["PROTOCOL_TYPE", "StreamsGroup"]

PROTOCOL_TYPE: Final = "streams"


class StreamsGroup(ReconciledGroup[StreamsMember]):
    """A streams group. See the module's docstring."""

    type: Final = "streams"
    shown_protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, id: str) -> None:
        super().__init__(id, epoch=1, assignment_epoch=1)
        self.validated_topology_epoch = 0
        self.assignment_configs: dict[str, str] = {}
        self.target: dict[str, TasksByRole] = {}
        self.owners: Final = TaskOwners()
        self.topology: StreamsGroupTopologyValue | None = None
        #: topics whose partitions matter, and those that tasks read, with the subtopologies that do
        self.required: set[str] = set()
        self.read_by: dict[str, str] = {}
        self.configured: ConfiguredTopology | None = None
        #: rises with each change of a member with an endpoint
        self.endpoint_epoch = 0
        #: by member, as responses have it
        self.endpoints: dict[str, EndpointToPartitions] = {}
        self.shutdown_member: str | None = None

    def target_of(self, member_id: str) -> TasksByRole:
        return self.target.get(member_id, NO_TASKS)

    def request_shutdown(self, member_id: str) -> None:
        """All members stop. The first request counts, until the group is empty."""
        if self.shutdown_member is None:
            self.shutdown_member = member_id

    def configure(self, configured: ConfiguredTopology) -> None:
        self.configured = configured
        self.endpoints.clear()

    # -- the log

    def apply_epoch(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.validated_topology_epoch = validated_topology_epoch
        self.assignment_configs = dict(configs)

    def apply_topology(self, value: StreamsGroupTopologyValue | None) -> None:
        self.topology = value
        self.configured = None
        self.image_offset = -1
        self.required = set() if value is None else required_topics(value)
        self.read_by = {}
        for each in () if value is None else value.subtopologies:
            names = (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
            self.read_by |= dict.fromkeys(names, each.subtopology_id)

    def apply_member(self, member_id: str, value: StreamsGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        self.endpoints.pop(member_id, None)
        if member is not None:
            self.owners.remove(member)
        if value is None:
            self.members.pop(member_id, None)
            if not self.members:
                self.shutdown_member = None
            return
        if member is None:
            member = self.members[member_id] = StreamsMember(member_id)
        member.apply_metadata(value)
        self.owners.add(member)

    def apply_current(self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members.setdefault(member_id, StreamsMember(member_id))
        self.endpoints.pop(member_id, None)
        self.owners.remove(member)
        if value is None:
            value = StreamsGroupCurrentMemberAssignmentValue(member_epoch=-1, previous_member_epoch=-1)
        member.apply_tasks(value)
        self.owners.add(member)

    def record_keys(self) -> Iterator[Struct]:
        for member in self.members.values():
            yield member.tasks_key(self.id)
        for member_id in self.target:
            yield StreamsGroupTargetAssignmentMemberKey(group_id=self.id, member_id=member_id)
        yield StreamsGroupTargetAssignmentMetadataKey(group_id=self.id)
        for member in self.members.values():
            yield member.metadata_key(self.id)
        yield StreamsGroupMetadataKey(group_id=self.id)
        yield StreamsGroupTopologyKey(group_id=self.id)

    # -- topics

    def hash_topics(self, image: ClusterImage, required: set[str]) -> int:
        """A hash of the ids and partition counts of the topics that exist; 0 without topics."""
        return hash_of([image.topics[name] for name in sorted(image.topics.keys() & required)])

    # -- the interface of a group

    @property
    def state_name(self) -> str:
        is_ready = self.topology is not None and self.topology.epoch == self.validated_topology_epoch
        return super().state_name if is_ready or not self.members else "NotReady"

    def subscribes_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.read_by

    def assigned_since(
        self, member: StreamsMember, topic: str, topic_id: bytes, partition: int
    ) -> int | None:
        subtopology = self.read_by.get(topic)
        return None if subtopology is None else member.assignment_epoch(subtopology, partition)
