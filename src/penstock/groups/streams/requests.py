"""Decisions on StreamsGroupHeartbeat: joining, staying, leaving (KIP-1071).

    a member, topics or configs change ──▶ group epoch + 1 ──▶ new target ──▶ members reconcile one by one

The member epoch of the request decides: 0 joins, -1 leaves. Any other epoch is a heartbeat of a member in
that epoch. A request is checked as a whole before the first record is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.coordination.timers import TimerKey
from penstock.groups.classic import ClassicGroup
from penstock.groups.epoch_group import MemberState
from penstock.groups.ledger import Client, GroupLedger
from penstock.groups.migration import erase_classic
from penstock.groups.streams.checks import JOINING, check_tasks
from penstock.groups.streams.endpoints import partitions_by_endpoint
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.member import StreamsMember
from penstock.groups.streams.reconciliation import next_tasks
from penstock.groups.streams.records import (
    KeyValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from penstock.groups.streams.targets import STREAMS_DELAY, StreamsTargets, assignment_configs
from penstock.groups.streams.tasks import TasksByRole
from penstock.groups.streams.topology import (
    ConfiguredTopology,
    InternalTopic,
    StatusCode,
    configure,
    required_topics,
    topology_record,
)
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.wire.apis import streams_group_heartbeat as wire
from penstock.wire.apis.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

__all__ = ["STREAMS_SESSION", "STREAMS_TIMERS", "StreamsRequests"]

#: kinds of timers, each per member: its session, and the revocation of its tasks
STREAMS_SESSION: Final = "streams-session"
STREAMS_REVOCATION: Final = "streams-revocation"
#: timers that remove their member when they expire
STREAMS_TIMERS: Final = (STREAMS_SESSION, STREAMS_REVOCATION)


class _Plan(NamedTuple):
    """The topology of a group after a heartbeat, compared with the topics of the cluster."""

    topology: StreamsGroupTopologyValue
    configured: ConfiguredTopology
    topics_hash: int
    #: the topics have changed
    changed: bool

    @property
    def validated_epoch(self) -> int:
        return self.topology.epoch if self.configured.is_ready else -1


class StreamsRequests:
    """The membership of one shard's streams groups."""

    __slots__ = ("_ledger", "targets")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.targets: Final = StreamsTargets(ledger)

    # -- groups

    def find(self, group_id: str, kind: str = "Streams group") -> StreamsGroup:
        """The group; GROUP_ID_NOT_FOUND if there is none, or if it is not a streams group.

        `kind` is Kafka's name for a group in the error message, which depends on the request.
        """
        group = self._ledger.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if not isinstance(group, StreamsGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        return group

    def _find_or_new(self, group_id: str) -> StreamsGroup:
        known = self._ledger.groups.get(group_id)
        if known is None or (isinstance(known, ClassicGroup) and known.is_empty):
            return StreamsGroup(group_id)
        return self.find(group_id)

    # -- heartbeats

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client
    ) -> tuple[StreamsGroupHeartbeatResponse, Sequence[InternalTopic]]:
        """The response, and internal topics that have to be created."""
        if request.member_epoch < JOINING:
            return self._leave(request), ()
        joins = request.member_epoch == JOINING
        group = self._find_or_new(request.group_id) if joins else self.find(request.group_id)
        member = self._find_member(group, request)
        plan = self._plan(group, request)
        check_tasks(plan.configured, request)
        statuses = _stale(group, member, request)
        is_new, was_empty = self._ledger.groups.get(group.id) is not group, group.is_empty
        before = member.assigned
        group = self._write(group, member, plan, request, client)
        member = group.members[member.id]
        if was_empty:
            self.targets.delay_first(group)
        delay = self.targets.assign(group)
        if delay is not None:
            statuses.append(_status(StatusCode.ASSIGNMENT_DELAYED, delay))
        owned = _owned(request)
        self._reconcile(group, member, owned)
        self.keep_alive(group, member)
        if request.shutdown_application:
            group.request_shutdown(member.id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._heartbeat_ms(group, member),
        )
        changed = joins or before != member.assigned
        if changed or (owned is not None and not member.assigned.equal(owned)):
            # The response with the tasks that the member does not report may have been lost.
            _set_tasks(response, member)
        self._set_endpoints(response, group, member, request, is_new, changed)
        problem = plan.configured.problem
        if problem is not None:
            statuses.append(_status(problem.status, problem.detail))
        response.status = [*statuses, *_shutdown(group)]
        return response, plan.configured.missing

    def _find_member(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
        if request.member_epoch != JOINING:
            member = group.member(request.member_id)
            _check_epoch(member, request)
            return member
        size_max = self._ledger.env.settings.streams_size_max
        if len(group.members) >= size_max:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {size_max} members.",
            )
        return group.members.get(request.member_id) or StreamsMember(request.member_id)

    def _plan(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> _Plan:
        topology = _topology(group, request)
        image = self._ledger.env.image
        known = group.configured
        if known is not None and group.image_offset == image.offset:
            return _Plan(topology, known, group.metadata_hash, changed=False)
        required = group.required if topology is group.topology else required_topics(topology)
        topics_hash = group.hash_topics(image, required)
        changed = topics_hash != group.metadata_hash
        if known is None or changed:
            existing = {name: len(image.topics[name].partitions) for name in image.topics.keys() & required}
            known = configure(topology, existing)
        return _Plan(topology, known, topics_hash, changed)

    def _write(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        plan: _Plan,
        request: StreamsGroupHeartbeatRequest,
        client: Client,
    ) -> StreamsGroup:
        """Write what the heartbeat changes, and raise the group epoch. Returns the group with the changes."""
        ledger = self._ledger
        known = ledger.groups.get(group.id)
        if isinstance(known, ClassicGroup):
            erase_classic(ledger, known)
        changed = plan.changed
        metadata = member.changed_metadata(request, client.id, client.host)
        if member.id not in group.members or metadata != member.metadata():
            ledger.write(member.metadata_key(group.id), metadata)
            changed = True
        if group.topology is not plan.topology:
            ledger.write(StreamsGroupTopologyKey(group_id=group.id), plan.topology)
        written = self.find(group.id)
        written.image_offset = ledger.env.image.offset
        if written.configured is not plan.configured:
            written.configure(plan.configured)
        configs = assignment_configs(ledger.env.settings_of(group.id))
        if (
            changed
            or plan.validated_epoch != written.validated_topology_epoch
            or configs != written.assignment_configs
        ):
            self._raise_epoch(written, plan.topics_hash, plan.validated_epoch, configs)
        return written

    def _raise_epoch(
        self, group: StreamsGroup, topics_hash: int, validated_epoch: int, configs: dict[str, str]
    ) -> None:
        self._ledger.write(
            StreamsGroupMetadataKey(group_id=group.id),
            StreamsGroupMetadataValue(
                epoch=group.epoch + 1,
                metadata_hash=topics_hash,
                validated_topology_epoch=validated_epoch,
                last_assignment_configs=[KeyValue(key=k, value=v) for k, v in sorted(configs.items())],
            ),
        )

    def _reconcile(self, group: StreamsGroup, member: StreamsMember, owned: TasksByRole | None) -> None:
        """Move the member one step towards its target."""
        value = next_tasks(member, group.assignment_epoch, group.target_of(member.id), owned, group.owners)
        if value is not None:
            self._ledger.write(member.tasks_key(group.id), value)
            self._expect_revocation(group, member)

    def _set_endpoints(
        self,
        response: StreamsGroupHeartbeatResponse,
        group: StreamsGroup,
        member: StreamsMember,
        request: StreamsGroupHeartbeatRequest,
        is_new: bool,
        changed: bool,
    ) -> None:
        """Tell the member of the endpoints if they have changed since its last heartbeat.

        As in Kafka, the first member of a new group is told of its endpoint under epoch 0.
        """
        epoch = group.endpoint_epoch + (changed and member.endpoint is not None)
        if epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = partitions_by_endpoint(group, self._ledger.env.image)
        if not is_new:
            group.endpoint_epoch = response.endpoint_information_epoch = epoch

    # -- sessions

    def _heartbeat_ms(self, group: StreamsGroup, member: StreamsMember) -> int:
        """A member that waits for tasks, a target or internal topics reports sooner."""
        settings = self._ledger.env.settings_of(group.id)
        waits = (
            group.assignment_epoch < group.epoch
            or member.state is MemberState.UNRELEASED
            or (group.configured is not None and bool(group.configured.missing))
        )
        if not waits:
            return settings.streams_heartbeat_ms
        return min(settings.streams_heartbeat_ms, settings.consumer_waiting_heartbeat_ms + len(group.members))

    def keep_alive(self, group: StreamsGroup, member: StreamsMember) -> None:
        timeout_ms = self._ledger.env.settings_of(group.id).streams_session_timeout_ms
        self._ledger.timers.schedule((STREAMS_SESSION, group.id, member.id), timeout_ms)

    def resume(self, group: StreamsGroup) -> None:
        """Start the timers of members after the coordinator was loaded."""
        for member in group.members.values():
            self.keep_alive(group, member)
            self._expect_revocation(group, member)

    def timer_expired(self, group: StreamsGroup, key: TimerKey) -> None:
        if key[0] == STREAMS_DELAY:
            self.targets.delay_ended(group)
        elif key[0] in STREAMS_TIMERS and key[2] in group.members:
            self.fence(group, group.members[key[2]])

    def _expect_revocation(self, group: StreamsGroup, member: StreamsMember) -> None:
        key = (STREAMS_REVOCATION, group.id, member.id)
        if member.state is MemberState.UNREVOKED:
            self._ledger.timers.schedule(key, member.rebalance_timeout_ms)
        else:
            self._ledger.timers.cancel(key)

    # -- leaving

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        group = self.find(request.group_id, "Group")
        if request.shutdown_application:
            group.request_shutdown(request.member_id)
        self.fence(group, group.member(request.member_id))
        return StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def fence(self, group: StreamsGroup, member: StreamsMember) -> None:
        """Remove a member. The next target gives its tasks to others."""
        write = self._ledger.write
        write(member.tasks_key(group.id), None)
        write(StreamsGroupTargetAssignmentMemberKey(group_id=group.id, member_id=member.id), None)
        write(member.metadata_key(group.id), None)
        for kind in STREAMS_TIMERS:
            self._ledger.timers.cancel((kind, group.id, member.id))
        self._raise_epoch(
            group, group.metadata_hash, group.validated_topology_epoch, dict(group.assignment_configs)
        )

    def erase(self, group: StreamsGroup) -> None:
        """Delete an empty group, which a classic group replaces."""
        self._ledger.timers.cancel((STREAMS_DELAY, group.id))
        for key in list(group.record_keys()):
            self._ledger.write(key, None)


def _check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Check the member epoch. The previous epoch is accepted if only the last response can have been lost."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    owned = _owned(request)
    if epoch == member.previous_epoch < member.epoch and owned is not None and member.assigned.contain(owned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _topology(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsGroupTopologyValue:
    """The topology of the group after the request. It cannot be replaced while the group exists."""
    known = group.topology
    if request.topology is None:
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Group {group.id} has no topology.")
        return known
    given = topology_record(request.topology)
    if known is None:
        return given
    if known.epoch <= given.epoch and not _is_same(known, given):
        raise InvalidRequest("Topology updates are not supported yet.")
    return known


def _is_same(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    if one.epoch != other.epoch:
        return False
    by_id = {each.subtopology_id: each for each in one.subtopologies}
    return by_id == {each.subtopology_id: each for each in other.subtopologies}


def _stale(group: StreamsGroup, member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> list[Status]:
    epoch = member.topology_epoch if request.topology is None else request.topology.epoch
    if group.topology is None or epoch >= group.topology.epoch:
        return []
    return [
        _status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}.",
        )
    ]


def _shutdown(group: StreamsGroup) -> Iterable[Status]:
    if group.shutdown_member is not None:
        yield _status(
            StatusCode.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_member} encountered a fatal error and requested a "
            "shutdown for the entire application.",
        )


def _status(code: StatusCode, detail: str) -> Status:
    return Status(status_code=code, status_detail=detail)


def _owned(request: StreamsGroupHeartbeatRequest) -> TasksByRole | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TasksByRole.of(active, standby, warmup)


def _set_tasks(response: StreamsGroupHeartbeatResponse, member: StreamsMember) -> None:
    assigned = member.assigned
    response.active_tasks = _ids({name: set(epochs) for name, epochs in assigned.active.items()})
    response.standby_tasks = _ids(assigned.standby)
    response.warmup_tasks = _ids(assigned.warmup)


def _ids(tasks: dict[str, set[int]]) -> list[wire.TaskIds]:
    return [wire.TaskIds(subtopology_id=name, partitions=sorted(p)) for name, p in sorted(tasks.items())]
