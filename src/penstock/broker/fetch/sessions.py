"""Incremental fetch sessions (KIP-227): a client names its partitions once, and then only changes.

A session's epoch counts its requests, so that a lost or repeated request is noticed. The table of sessions
has a fixed number of slots. A new session takes over a slot only from a session that has been idle for the
eviction time, or that is smaller and as old. A request that gets no slot is answered in full, without a
session. So is a request of a client whose sessions have a quarter of all partitions already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy
from typing import Final, TypeAlias

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import FetchRequest, PartitionData

__all__ = ["FetchSession", "FetchSessions", "WantedPartition"]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF
#: the most partitions of all sessions together: some 300 bytes each, and clients may name any number
_MOST_PARTITIONS: Final = 1_000_000
#: the part of them that the sessions of one client may have
_OWNERS: Final = 4
#: the most partitions of sessions of one client, and of its fetches without a session that wait
OWNER_PARTITIONS: Final = _MOST_PARTITIONS // _OWNERS
#: partitions of a piece of a large request
_PIECE: Final = 500

#: a topic as the request names it: by id from version 13 on, by name before
TopicKey: TypeAlias = str | TopicId


class WantedPartition:
    """One partition that a client fetches, and the watermarks that were sent last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
    ) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def mark_sent(self, answer: PartitionData) -> bool:
        """Returns true if an incremental response must have the partition, and marks `answer` as sent."""
        news = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica != -1
        )
        self.sent_high_watermark = answer.high_watermark
        self.sent_log_start = answer.log_start_offset
        if answer.error_code:
            # The partition is sent again after an error, even with the same watermarks.
            self.sent_high_watermark = -1
        return news


def wanted_partitions(request: FetchRequest, by_id: bool) -> Iterable[WantedPartition]:
    for topic in request.topics:
        key: TopicKey = TopicId(topic.topic_id) if by_id else topic.topic
        for p in topic.partitions:
            yield WantedPartition(
                key,
                p.partition,
                p.fetch_offset,
                p.partition_max_bytes,
                p.current_leader_epoch,
                p.last_fetched_epoch,
            )


def pieces(request: FetchRequest) -> Iterator[FetchRequest]:
    """Requests that change a session by some partitions each, and together as `request` does."""
    for lists in ("topics", "forgotten_topics_data"):
        piece = FetchRequest()
        size = 0
        for topic in getattr(request, lists):
            for start in range(0, len(topic.partitions), _PIECE):
                part = copy(topic)
                part.partitions = topic.partitions[start : start + _PIECE]
                getattr(piece, lists).append(part)
                size += len(part.partitions)
                if size >= _PIECE:
                    yield piece
                    piece, size = FetchRequest(), 0
        yield piece


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    __slots__ = ("by_id", "counted", "created_at", "epoch", "id", "owner", "partitions", "used_at")

    def __init__(self, session_id: int, by_id: bool, now: float, owner: Hashable = None) -> None:
        self.id = session_id
        self.owner = owner
        #: its partitions that the table has counted
        self.counted = 0
        self.epoch = INITIAL_EPOCH + 1
        self.by_id = by_id
        self.created_at = now
        self.used_at = now
        self.partitions: dict[tuple[TopicKey, int], WantedPartition] = {}

    def update(self, request: FetchRequest) -> None:
        for wanted in wanted_partitions(request, self.by_id):
            key = (wanted.topic, wanted.index)
            known = self.partitions.get(key)
            if known is not None:
                wanted.sent_high_watermark = known.sent_high_watermark
                wanted.sent_log_start = known.sent_log_start
            self.partitions[key] = wanted
        for topic in request.forgotten_topics_data:
            topic_key: TopicKey = TopicId(topic.topic_id) if self.by_id else topic.topic
            for index in topic.partitions:
                self.partitions.pop((topic_key, index), None)

    def move_to_end(self, wanted: WantedPartition) -> None:
        """Move a partition that was sent records behind the others, which come first next time."""
        key = (wanted.topic, wanted.index)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = wanted


class FetchSessions:
    """The table of sessions."""

    def __init__(
        self,
        slots: int,
        eviction_s: float,
        now: Callable[[], float],
        new_id: Callable[[], int],
        most_partitions: int = _MOST_PARTITIONS,
    ) -> None:
        self._slots = slots
        self._most_partitions = most_partitions
        self._eviction_s = eviction_s
        self._now = now
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0
        self._by_owner: Counter[Hashable] = Counter()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count(session, 0)

    def _count(self, session: FetchSession, partitions: int) -> None:
        self._partitions += partitions - session.counted
        self._by_owner[session.owner] += partitions - session.counted
        session.counted = partitions
        if not self._by_owner[session.owner]:
            del self._by_owner[session.owner]

    def _is_too_much(self, owner: Hashable, added: int) -> bool:
        """Whether all sessions, or those of a client, have too many partitions with `added` ones."""
        most = self._most_partitions
        if self._partitions + added > most:
            return True
        return owner is not None and self._by_owner[owner] + added > most // _OWNERS

    def start(self, request: FetchRequest, by_id: bool, owner: Hashable = None) -> FetchSession | None:
        """A new session with the request's partitions; None if there is no slot."""
        session = self.open(request, by_id, owner)
        if session is not None:
            self.change(session, request)
        return session

    def open(self, request: FetchRequest, by_id: bool, owner: Hashable = None) -> FetchSession | None:
        """A new session without partitions, which `change` adds; None if there is no slot.

        `owner` is the client that it is counted for.
        """
        self.close(request.session_id)
        size = sum(len(t.partitions) for t in request.topics)
        if self._is_too_much(owner, size) or not self._make_room(size):
            return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, by_id, self._now(), owner)
        return session

    def change(self, session: FetchSession, request: FetchRequest) -> None:
        """Update the partitions of a session. It ends if there are too many."""
        session.update(request)
        if self._sessions.get(session.id) is not session:
            # It was evicted while a large request was computed.
            return
        self._count(session, len(session.partitions))
        if self._is_too_much(session.owner, 0):
            self.close(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def resume(self, request: FetchRequest, by_id: bool) -> FetchSession | None:
        """The session of an incremental request, updated by it.

        None if no partition is left: like Kafka, an empty session ends.
        """
        session = self.find(request, by_id)
        if request.topics or request.forgotten_topics_data:
            self.change(session, request)
        if not session.partitions:
            self.close(session.id)
            return None
        return session

    def find(self, request: FetchRequest, by_id: bool) -> FetchSession:
        """The session of an incremental request, which `change` has to update; ApiError if there is none."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.used_at = self._now()
        # Order of use is order of eviction.
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def _make_room(self, size: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        deadline = self._now() - self._eviction_s
        oldest = next(iter(self._sessions.values()))
        if oldest.used_at > deadline:
            settled = [s for s in self._sessions.values() if s.created_at <= deadline]
            smallest = min(settled, key=lambda s: len(s.partitions), default=None)
            if smallest is None or len(smallest.partitions) >= size:
                return False
            oldest = smallest
        self.close(oldest.id)
        self.evicted += 1
        return True
