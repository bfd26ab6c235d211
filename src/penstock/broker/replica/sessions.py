"""The leader's side of replica fetch sessions (KIP-227).

A session keeps the partitions that one fetcher of a follower fetches, and in `ready` those that may have news
for it: partitions of its last request, partitions that grew, partitions whose role changed. So a fetch costs
as much as has happened since the last one, however many partitions are followed.

Sessions are few: one for each fetcher of each follower. The session that was used longest ago is evicted
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from operator import attrgetter
from typing import Final, Protocol

from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.model.ids import TopicId
from penstock.model.steps import Steps, is_slice_over
from penstock.replication.fetch_plan import PartitionKey
from penstock.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse

__all__ = ["FULL", "LAST_EPOCH", "NO_SESSION", "FollowedPartition", "ReplicaSession", "ReplicaSessions"]

FULL: Final = 0
FINAL: Final = -1
NO_SESSION: Final = 0
LAST_EPOCH: Final = (1 << 31) - 1
#: more than a cluster of fifty brokers with twenty fetchers each needs
_MOST_SESSIONS: Final = 1000


class Wait(Protocol):
    """A fetch of the session that waits for bytes."""

    def more(self, size: int) -> None: ...

    def supersede(self, response: FetchResponse) -> None:
        """End the wait with `response`: the follower has sent its next request already."""
        ...


class FollowedPartition:
    """One partition of a session: the follower's position, and the watermarks that were sent last."""

    __slots__ = (
        "accepted_by",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic_id",
    )

    def __init__(self, session: ReplicaSession, topic_id: TopicId, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        #: the partition whose `followers` has this one
        self.partition: Partition | None = None
        self.leader_epoch = -1
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def update(self, wanted: FetchPartition) -> None:
        """Take over the follower's position from a request."""
        if wanted.current_leader_epoch != self.leader_epoch:
            # The follower ignores a response to a request of an earlier epoch: send the watermarks again.
            self.sent_high_watermark = self.sent_log_start = -1
        self.leader_epoch = wanted.current_leader_epoch
        self.fetch_offset = wanted.fetch_offset
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = wanted.partition_max_bytes
        #: the leadership that has accepted this position as a position in its log
        self.accepted_by: Leadership | None = None

    @property
    def led_partition(self) -> Partition | None:
        """The partition, if the leadership that accepted the position still leads it and its disk works."""
        partition, leadership = self.partition, self.accepted_by
        if (
            partition is None
            or leadership is None
            or leadership is not partition.leadership
            or partition.health.offline is not None
        ):
            return None
        return partition

    def report_position(self, partition: Partition, now_ms: int) -> None:
        """Report the follower's position to the partition's leadership. Raises as `Leadership.fetched`."""
        leadership = partition.leadership
        if leadership is None:
            # The follower has applied its assignment before this broker did, and has to retry.
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        session = self.session
        leadership.fetched(
            session.replica, session.broker_epoch, self.fetch_offset, self.log_start_offset, now_ms
        )
        self.accepted_by = leadership

    def subscribe(self, partition: Partition) -> None:
        """Receive news of `partition`, a new object if the replica was removed and added again."""
        if self.partition is not partition:
            self.unsubscribe()
            self.partition = partition
            partition.followers[self] = None

    def unsubscribe(self) -> None:
        if self.partition is not None:
            self.partition.followers.pop(self, None)
            self.partition = None

    def grew(self, size: int) -> None:
        session = self.session
        session.ready[self] = None
        if session.waiting is not None:
            session.waiting.more(size)

    def moved(self) -> None:
        """The high watermark or the log start has moved: the next response has it, but no wait ends."""
        self.session.ready[self] = None

    def mark_sent(self, high_watermark: int, log_start_offset: int, records: Sized) -> bool:
        """Returns true if the partition must appear in an incremental response, and marks this as sent.

        A partition that was sent to its end leaves `ready` until there is more.
        """
        is_news = (
            high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start
            or len(records) > 0
        )
        self.sent_high_watermark = high_watermark
        self.sent_log_start = log_start_offset
        ready, partition = self.session.ready, self.partition
        if partition is not None and self.fetch_offset < partition.log.end_offset:
            # It stays ready until the follower's next position. With records it moves behind the others.
            if records:
                ready.pop(self, None)
            ready[self] = None
        else:
            ready.pop(self, None)
        return is_news

    def mark_refused(self) -> None:
        """Mark an error as sent: it is sent again with each response until the follower's next position."""
        self.sent_high_watermark = self.sent_log_start = -1
        self.session.ready.pop(self, None)
        self.session.ready[self] = None


class ReplicaSession:
    """The partitions that one fetcher of one follower fetches."""

    __slots__ = ("broker_epoch", "epoch", "fetched_at_ms", "id", "partitions", "ready", "replica", "waiting")

    def __init__(self, session_id: int, replica: int, broker_epoch: int) -> None:
        self.id = session_id
        self.replica = replica
        self.broker_epoch = broker_epoch
        #: of the next request
        self.epoch = 1
        self.fetched_at_ms = 0
        self.partitions: dict[PartitionKey, FollowedPartition] = {}
        #: partitions that may have news, in the order in which they are read
        self.ready: dict[FollowedPartition, None] = {}
        #: the fetch that waits, if any
        self.waiting: Wait | None = None

    def update(self, request: FetchRequest, now_ms: int) -> None:
        self.fetched_at_ms = now_ms
        self._supersede()
        for topic in request.topics:
            topic_id = TopicId(topic.topic_id)
            for wanted in topic.partitions:
                key = (topic_id, wanted.partition)
                followed = self.partitions.get(key)
                if followed is None:
                    followed = self.partitions[key] = FollowedPartition(self, *key)
                followed.update(wanted)
                self.ready[followed] = None
        for forgotten in request.forgotten_topics_data:
            self._forget((TopicId(forgotten.topic_id), index) for index in forgotten.partitions)

    def _forget(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            followed = self.partitions.pop(key, None)
            if followed is not None:
                followed.unsubscribe()
                self.ready.pop(followed, None)

    def _supersede(self) -> None:
        if self.waiting is not None:
            self.waiting.supersede(FetchResponse(session_id=self.id))

    def refresh(self, since_ms: int, *, absent_only: bool) -> Steps[None]:
        """Report the time of the last request for all partitions: a request speaks for its whole session.

        With `absent_only`, only for partitions whose ISR lacks the follower: it may be fit to join by now.
        """
        if self.fetched_at_ms <= since_ms:
            return
        for number, followed in enumerate(list(self.partitions.values()), 1):
            if is_slice_over(number):
                yield
            partition, leadership = followed.partition, followed.accepted_by
            if partition is None or leadership is None or leadership is not partition.leadership:
                continue
            if absent_only and self.replica in leadership.state.isr:
                continue
            try:
                followed.report_position(partition, self.fetched_at_ms)
            except PenstockError:
                # The broker is no longer a follower. Its next fetch is answered with the error.
                followed.accepted_by = None

    def close(self) -> None:
        """End the wait and all subscriptions: no further request belongs to the session."""
        self._supersede()
        for followed in self.partitions.values():
            followed.unsubscribe()
        self.ready.clear()


class ReplicaSessions:
    """The sessions of all followers."""

    def __init__(self, new_id: Callable[[], int], most: int = _MOST_SESSIONS) -> None:
        self._new_id = new_id
        self._most = most
        self._sessions: dict[int, ReplicaSession] = {}

    def __iter__(self) -> Iterator[ReplicaSession]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> ReplicaSession | None:
        return self._sessions.get(session_id)

    def take(self, request: FetchRequest, now_ms: int) -> ReplicaSession:
        """The session of `request`, updated by it. A session with id 0 ends with its only request."""
        if request.session_epoch not in (FULL, FINAL):
            session = self._resume(request)
        else:
            self._close(request.session_id)
            session = ReplicaSession(NO_SESSION, *_replica(request))
            if request.session_epoch == FULL:
                self._keep(session)
        session.update(request, now_ms)
        return session

    def _keep(self, session: ReplicaSession) -> None:
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self._new_id()
        for other in self:
            if other.replica == session.replica and other.broker_epoch < session.broker_epoch:
                # It belongs to an earlier incarnation of the follower.
                self._close(other.id)
        if len(self._sessions) >= self._most:
            self._close(min(self._sessions.values(), key=attrgetter("fetched_at_ms")).id)
        self._sessions[session.id] = session

    def _resume(self, request: FetchRequest) -> ReplicaSession:
        session, epoch = self._sessions.get(request.session_id), request.session_epoch
        if session is None or (session.replica, session.broker_epoch) != _replica(request):
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()


def _replica(request: FetchRequest) -> tuple[int, int]:
    """The follower's broker id and broker epoch; up to version 14 a request has no broker epoch."""
    state = request.replica_state
    return (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
