"""The membership of a share group: heartbeats and assignments. Pure: requests out, responses in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.client.errors import Refused
from penstock.client.queues.message import TopicIdPartition
from penstock.client.queues.refusals import refusal
from penstock.model.errors import ErrorCode
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["Heartbeat", "Membership"]

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
#: before the first response of a coordinator
_INTERVAL_S: Final = 3.0
_RETRY_S: Final = 0.1
#: A new member has no partitions until their state exists: it sends so many heartbeats in short intervals.
_EAGER_S: Final = 0.25
_EAGER_BEATS: Final = 20
#: The coordinator does not know the member any more: it joins again, with the same member id.
_FENCED: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)


class Heartbeat(NamedTuple):
    """The consequences of a heartbeat's response."""

    #: until the next heartbeat
    delay_s: float
    #: the new assignment; None if it has not changed
    assignment: frozenset[TopicIdPartition] | None = None
    finds_coordinator: bool = False
    #: a retry does not help
    failure: Refused | None = None


class Membership:
    """One member. Its id is chosen by the client (KIP-1082), and stays the same when it joins again."""

    def __init__(self, group: str, member_id: str, topics: Sequence[str], rack: str | None = None) -> None:
        self.group = group
        self.member_id = member_id
        self._topics = list(topics)
        self._rack = rack
        self._epoch = _JOIN_EPOCH
        self._is_subscribed = False
        self._eager_beats = _EAGER_BEATS

    @property
    def has_joined(self) -> bool:
        return self._epoch > _JOIN_EPOCH

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)
        self._is_subscribed = False

    def request(self) -> ShareGroupHeartbeatRequest:
        """The next heartbeat. It names the topics only if the coordinator may not know them."""
        knows = self.has_joined and self._is_subscribed
        return ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rack_id=None if knows else self._rack,
            subscribed_topic_names=None if knows else list(self._topics),
        )

    def leave_request(self) -> ShareGroupHeartbeatRequest | None:
        """The last heartbeat; None if the member has not joined."""
        if not self.has_joined:
            return None
        self._epoch = _JOIN_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=_LEAVE_EPOCH
        )

    def answered(
        self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse
    ) -> Heartbeat:
        code = response.error_code
        if code == ErrorCode.NONE:
            return self._beat(request, response)
        if code in _FENCED and request.member_epoch > _JOIN_EPOCH:
            self._epoch = _JOIN_EPOCH
            return Heartbeat(0.0, frozenset())
        reaction = reaction_to(code)
        if reaction is Reaction.FIND_COORDINATOR:
            return Heartbeat(_RETRY_S, finds_coordinator=True)
        if reaction is not Reaction.FAIL:
            return Heartbeat(_RETRY_S)
        about = f"group {self.group} does not admit this member"
        return Heartbeat(_INTERVAL_S, failure=refusal(code, response.error_message, about))

    def _beat(self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse) -> Heartbeat:
        self._epoch = response.member_epoch
        if request.subscribed_topic_names == self._topics:
            self._is_subscribed = True
        delay_s = response.heartbeat_interval_ms / 1000 if response.heartbeat_interval_ms > 0 else _INTERVAL_S
        if response.assignment is None:
            return Heartbeat(self._eager(delay_s))
        assigned = frozenset(
            TopicIdPartition(topic.topic_id, partition)
            for topic in response.assignment.topic_partitions
            for partition in topic.partitions
        )
        if assigned:
            self._eager_beats = 0
        return Heartbeat(self._eager(delay_s), assigned)

    def _eager(self, delay_s: float) -> float:
        """The delay before the next heartbeat, shorter for a new member that has no partitions."""
        if not self._eager_beats:
            return delay_s
        self._eager_beats -= 1
        return min(delay_s, _EAGER_S)
