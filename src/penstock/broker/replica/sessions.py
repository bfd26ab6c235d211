"""The leader's end of replica fetch sessions (KIP-227): which follower wants what, and what there is for it.

A session knows which of its partitions may have news (`ready`): those that the follower has just named, those
that grew, those whose role changed. So a fetch costs what has happened, not what is followed, and a fetch
that waits is one object, however many partitions it waits for.

Unlike clients', these sessions are few: one per follower and fetcher. Those used longest ago go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from operator import attrgetter
from typing import Final, Protocol

from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.model.ids import TopicId
from penstock.replication.fetch_plan import PartitionKey
from penstock.wire.replica_fetch import ReplicaAsk, Wanted

__all__ = ["FULL", "LAST_EPOCH", "FollowedPartition", "ReplicaSession", "ReplicaSessions"]

FULL: Final = 0
FINAL: Final = -1
_NO_SESSION: Final = 0
LAST_EPOCH: Final = (1 << 31) - 1
#: more than a cluster of fifty brokers with twenty fetchers each needs
_MOST_SESSIONS: Final = 1000


class ParkedFetch(Protocol):
    """A fetch that waits for bytes."""

    def more(self, size: int) -> None: ...

    def superseded(self) -> None:
        """The follower has asked again without waiting for the answer."""
        ...


class FollowedPartition:
    """One partition that a follower wants, from where on, and what it was told last."""

    __slots__ = (
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
        "told",
        "topic_id",
    )

    def __init__(self, session: ReplicaSession, topic_id: TopicId, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        #: where it is subscribed to news
        self.partition: Partition | None = None
        self.leader_epoch = -1
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def name(self, wanted: Wanted) -> None:
        """The follower is here now."""
        _, _, leader_epoch, offset, self.last_fetched_epoch, self.log_start_offset, most = wanted
        if leader_epoch != self.leader_epoch:
            # An answer that was on its way in the epoch before is nothing to the follower: it may not know.
            self.sent_high_watermark = self.sent_log_start = -1
        self.leader_epoch = leader_epoch
        self.fetch_offset = offset
        self.max_bytes = most
        #: the leadership that has heard of this position, and found that it is one of its log
        self.told: Leadership | None = None

    @property
    def known_to(self) -> Partition | None:
        """The partition, while the leadership that has heard of this position leads it and its disk works."""
        partition, leadership = self.partition, self.told
        if (
            partition is None
            or leadership is None
            or leadership is not partition.leadership
            or partition.flusher.health.offline is not None
        ):
            return None
        return partition

    def tell_leader(self, partition: Partition, now_ms: int) -> None:
        """Let the partition's leadership know where the follower is."""
        leadership = partition.leadership
        if leadership is None:
            # The follower has heard of its assignment before us: it has to ask again.
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        session = self.session
        leadership.fetched(
            session.replica, session.broker_epoch, self.fetch_offset, self.log_start_offset, now_ms
        )
        self.told = leadership

    def subscribe(self, partition: Partition) -> None:
        """Hear of news of `partition`, which may have been made anew since the last time."""
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
        if session.parked is not None:
            session.parked.more(size)

    def moved(self) -> None:
        """The high watermark has moved, or the start: worth telling, not worth an answer of its own."""
        self.session.ready[self] = None

    def tell(self, high_watermark: int, log_start_offset: int, records: Sized) -> bool:
        """Whether an incremental answer has to say this, which it then does.

        If that was all there is, the partition is not looked at until there is more.
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
            # Until the follower names it again. A partition with records moves behind those that got none.
            if records:
                ready.pop(self, None)
            ready[self] = None
        else:
            ready.pop(self, None)
        return is_news

    def tell_of_trouble(self) -> None:
        """The follower hears why it gets nothing: until it names the partition again, each time."""
        self.sent_high_watermark = self.sent_log_start = -1
        self.session.ready.pop(self, None)
        self.session.ready[self] = None


class ReplicaSession:
    """What one fetcher of one follower fetches from here."""

    __slots__ = ("broker_epoch", "epoch", "fetched_at_ms", "id", "parked", "partitions", "ready", "replica")

    def __init__(self, session_id: int, replica: int, broker_epoch: int) -> None:
        self.id = session_id
        self.replica = replica
        self.broker_epoch = broker_epoch
        #: of the next request
        self.epoch = 1
        self.fetched_at_ms = 0
        self.partitions: dict[PartitionKey, FollowedPartition] = {}
        #: those that may have news, the one to look at first first
        self.ready: dict[FollowedPartition, None] = {}
        #: the fetch that waits, if one does
        self.parked: ParkedFetch | None = None

    def update(self, ask: ReplicaAsk, now_ms: int) -> None:
        self.fetched_at_ms = now_ms
        if self.parked is not None:
            self.parked.superseded()
        for wanted in ask.wanted:
            key = wanted[:2]
            followed = self.partitions.get(key)
            if followed is None:
                followed = self.partitions[key] = FollowedPartition(self, *key)
            followed.name(wanted)
            self.ready[followed] = None
        if ask.forgotten:
            self._forget(ask.forgotten)

    def _forget(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            followed = self.partitions.pop(key, None)
            if followed is not None:
                followed.unsubscribe()
                self.ready.pop(followed, None)

    def refresh(self, since_ms: int, *, absent_only: bool) -> None:
        """A request speaks for all partitions of its session: tell those that it did not name of its time.

        With `absent_only`, those where the follower is not in sync: it may be fit to join by now.
        """
        if self.fetched_at_ms <= since_ms:
            return
        for followed in self.partitions.values():
            partition, leadership = followed.partition, followed.told
            if partition is None or leadership is None or leadership is not partition.leadership:
                continue
            if absent_only and self.replica in leadership.state.isr:
                continue
            try:
                followed.tell_leader(partition, self.fetched_at_ms)
            except PenstockError:
                # It is no follower any more, and is told so when it asks.
                followed.told = None

    def close(self) -> None:
        """Nobody fetches in it any more: nothing of it may be looked at, or wait, from now on."""
        if self.parked is not None:
            self.parked.superseded()
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

    def take(self, ask: ReplicaAsk, now_ms: int) -> ReplicaSession:
        """The session that `ask` belongs to, brought up to date by it; with id 0 it is for this once."""
        if ask.session_epoch not in (FULL, FINAL):
            session = self._resume(ask)
        else:
            self._close(ask.session_id)
            session = ReplicaSession(_NO_SESSION, ask.replica, ask.broker_epoch)
            if ask.session_epoch == FULL:
                self._keep(session)
        session.update(ask, now_ms)
        return session

    def _keep(self, session: ReplicaSession) -> None:
        while session.id == _NO_SESSION or session.id in self._sessions:
            session.id = self._new_id()
        for other in self:
            if other.replica == session.replica and other.broker_epoch < session.broker_epoch:
                # Of an incarnation that is gone.
                self._close(other.id)
        if len(self._sessions) >= self._most:
            self._close(min(self._sessions.values(), key=attrgetter("fetched_at_ms")).id)
        self._sessions[session.id] = session

    def _resume(self, ask: ReplicaAsk) -> ReplicaSession:
        session_id, epoch = ask.session_id, ask.session_epoch
        session = self._sessions.get(session_id)
        if session is None or session.replica != ask.replica or session.broker_epoch != ask.broker_epoch:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
