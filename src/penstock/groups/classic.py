"""The state of a classic group: members, generation, protocol.

`classic_rebalance` has the decisions, `classic_records` the form of the group in the log.

Invariants: `awaiting` counts the members that wait in JoinGroup. `supported` counts for each protocol the
members that offer it. `instances` has exactly the static members. The leader is a member, or None in an
empty group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from penstock.coordination.outbox import ReplyTo
from penstock.groups.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from penstock.groups.records import GroupMetadataKey
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.wire.schema import Struct

__all__ = ["ClassicGroup", "ClassicMember", "ClassicState"]


class ClassicState(Enum):
    """The states, with the names of Kafka's protocol."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicMember:
    """One member. `join` and `sync` are its JoinGroup and SyncGroup requests that wait for a reply."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        *,
        id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Mapping[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.id = id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        #: name to metadata, in order of preference
        self.protocols = dict(protocols)
        self.assignment = assignment
        self.join: ReplyTo | None = None
        self.sync: ReplyTo | None = None
        #: its first JoinGroup waits for a reply: it does not know its id, and cannot send heartbeats
        self.is_new = False

    def matches(self, protocols: Mapping[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        for name in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"{self.id} offers no protocol that all members offer")


class ClassicGroup:
    """A group of the classic protocol.

    Why more than 25 methods: the group implements the interface of `Group` beside its own bookkeeping.
    """

    type: Final = "classic"

    def __init__(self, id: str, now_ms: int) -> None:
        self.id = id
        self.state = ClassicState.EMPTY
        #: when it entered the state; None if its record has no timestamp
        self.since_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        #: member ids that were handed out and have not been used in a JoinGroup yet
        self.pending_joins: set[str] = set()
        #: members that have not sent SyncGroup in this generation
        self.pending_syncs: set[str] = set()
        self.awaiting = 0
        self.supported: Counter[str] = Counter()
        #: the subscribed topics; None if the metadata of members cannot be decoded
        self.topics: set[str] | None = None
        #: (delay, possible extension) while a new group waits for more members
        self.initial_delay: tuple[int, int] | None = None
        self.member_added = False

    # -- members

    def add(self, member: ClassicMember, protocol_type: str, reply_to: ReplyTo | None) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self.supported.update(member.protocols.keys())
        self.pending_joins.discard(member.id)
        if reply_to is not None:
            self.await_join(member, reply_to)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported.subtract(member.protocols.keys())
            if member.join is not None:
                self.awaiting -= 1
            if member.instance_id is not None:
                self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """Give a static member that has rejoined its new id. It keeps its assignment."""
        assert member.instance_id is not None
        del self.members[member.id]
        if self.leader == member.id:
            self.leader = new_id
        self.pending_syncs.discard(member.id)
        member.id = new_id
        self.members[new_id] = member
        self.instances[member.instance_id] = new_id

    def update(
        self, member: ClassicMember, protocols: Mapping[str, bytes], rebalance_ms: int, session_ms: int
    ) -> None:
        self.supported.subtract(member.protocols.keys())
        member.protocols = dict(protocols)
        self.supported.update(member.protocols.keys())
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def await_join(self, member: ClassicMember, reply_to: ReplyTo) -> None:
        if member.join is None:
            self.awaiting += 1
        member.join = reply_to

    def end_join(self, member: ClassicMember) -> ReplyTo | None:
        """Remove and return the member's JoinGroup request that waits for a reply."""
        reply_to = member.join
        if reply_to is not None:
            member.join = None
            self.awaiting -= 1
        return reply_to

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    # -- the group as a whole

    def enter(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.since_ms = now_ms

    @property
    def all_joined(self) -> bool:
        return self.awaiting == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Returns true if a member with these protocols may join the group."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self.supported[name] == size for name in protocols)

    def elected_protocol(self) -> str:
        """Of the protocols that all members offer, the one with most votes; the earlier vote wins ties."""
        size = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == size}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def elect_leader(self) -> bool:
        """Choose a leader among the members that have joined. Returns false if none has."""
        if self.leader is not None and self.members[self.leader].join is not None:
            return True
        joined = next((m.id for m in self.members.values() if m.join is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol = self.elected_protocol()
            self.enter(ClassicState.COMPLETING, now_ms)
        else:
            self.protocol = None
            self.enter(ClassicState.EMPTY, now_ms)
        self.topics = self.topics_read()

    def topics_read(self) -> set[str] | None:
        """The subscribed topics; None if the members are no consumers or their metadata is malformed."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if not self.members:
            return set()
        if self.protocol is None:
            return None
        try:
            return subscribed_topics(m.protocols[self.protocol] for m in self.members.values())
        except ProtocolError:
            return None

    # -- the interface of a group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def shown_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int) -> None:
        if epoch < 0 and self.is_empty:
            return
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif not self.is_empty:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is ClassicState.COMPLETING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        """The state of the group does not matter, and a member is checked only if it is given."""
        if epoch < 0 and self.is_empty:
            return
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Classic groups do not check members in OffsetFetch."""

    def check_offset_deletion(self) -> None:
        if not self.is_empty and self.protocol_type != PROTOCOL_TYPE:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def subscribes_to(self, topic: str) -> bool:
        if self.topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.topics

    def retention_starts_ms(self, commit_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.since_ms is None else self.since_ms
        if (
            self.protocol_type == PROTOCOL_TYPE
            and self.topics is not None
            and self.state is ClassicState.STABLE
        ):
            return commit_ms
        return None

    def record_keys(self) -> list[Struct]:
        return [GroupMetadataKey(group=self.id)]
