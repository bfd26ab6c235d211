"""Plans the next fetch from one leader: the follower's side of a replica fetch session (KIP-227).

The leader remembers the partitions of a session; a request names only those whose position is not what the
leader remembers, and those to remove. The cost of planning depends on the changes, not on the number of
followed partitions: a partition is visited when it was `touched`, or when its pause is over.

One request is in flight at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

from penstock.model.ids import TopicId
from penstock.replication.follower import FetchPosition

__all__ = ["FetchPlan", "FetchedReplica", "PartitionKey", "PlannedFetch"]

PartitionKey = tuple[TopicId, int]

_NO_SESSION: Final = 0
#: the session epoch of a request that names all partitions and starts a new session
_FULL: Final = 0
_LAST_EPOCH: Final = (1 << 31) - 1


class FetchedReplica(Protocol):
    """A partition as the plan uses it: a `FollowerState`, or the mirror of a partition of another cluster."""

    @property
    def fenced(self) -> bool: ...
    @property
    def retry_at_ms(self) -> int: ...
    def next_fetch(self, now_ms: int) -> FetchPosition | None: ...


class PlannedFetch(NamedTuple):
    """The partitions of a request, those served longest ago first, and what makes it part of a session."""

    session_id: int
    session_epoch: int
    partitions: dict[PartitionKey, FetchPosition]
    forgotten: list[PartitionKey]


class FetchPlan:
    """The partitions that are followed from one leader."""

    __slots__ = (
        "_changed",
        "_followers",
        "_pauses",
        "_session_epoch",
        "_session_id",
        "_throttled",
        "remembered",
    )

    def __init__(self) -> None:
        #: in the order in which a full request names them
        self._followers: dict[PartitionKey, FetchedReplica] = {}
        #: what the leader believes to be our positions: with this in hand, answers are judged
        self.remembered: dict[PartitionKey, FetchPosition] = {}
        #: to be looked at for the next request; ordered, first come first served
        self._changed: dict[PartitionKey, None] = {}
        self._pauses: list[tuple[int, PartitionKey]] = []
        #: still catching up, and not to be fetched while the throttle's budget is used up
        self._throttled: set[PartitionKey] = set()
        self._session_id = _NO_SESSION
        self._session_epoch = _FULL

    def __len__(self) -> int:
        return len(self._followers)

    @property
    def session_epoch(self) -> int:
        """Of the next request."""
        return self._session_epoch

    def follow(self, key: PartitionKey, follower: FetchedReplica) -> None:
        """Fetch this partition from now on, or in a new leader epoch."""
        self._followers[key] = follower
        self._changed[key] = None

    def leave(self, key: PartitionKey) -> None:
        """Fetch this partition no longer."""
        if self._followers.pop(key, None) is not None:
            self._throttled.discard(key)
            self._changed[key] = None

    def throttle(self, keys: Iterable[PartitionKey]) -> None:
        """These are the partitions whose catching up is throttled; in-sync replicas never are."""
        now_throttled = self._followers.keys() & set(keys)
        self._changed.update(dict.fromkeys(sorted(self._throttled ^ now_throttled)))
        self._throttled = now_throttled

    def touched(self, key: PartitionKey, served: bool = False) -> None:
        """Something about the partition has changed; if it was `served` records, others come first now."""
        follower = self._followers.get(key)
        if follower is None:
            return
        if served:
            del self._followers[key]
            self._followers[key] = follower
        self._changed[key] = None

    def next_request(self, now_ms: int, budget_used_up: bool = False) -> PlannedFetch | None:
        """The request to send, None if no partition may be fetched now."""
        while self._pauses and self._pauses[0][0] <= now_ms:
            self._changed[heappop(self._pauses)[1]] = None
        if self._session_epoch == _FULL:
            self.remembered = {}
            self._changed = dict.fromkeys(self._followers)
            self._pauses = []
        if self._throttled:
            for key in sorted(self._throttled):
                if budget_used_up == (key in self.remembered):
                    self._changed[key] = None
        partitions: dict[PartitionKey, FetchPosition] = {}
        forgotten: list[PartitionKey] = []
        for key in self._changed:
            follower = self._followers.get(key)
            position = None
            if follower is not None and not (budget_used_up and key in self._throttled):
                position = follower.next_fetch(now_ms)
                if position is None and not follower.fenced:
                    heappush(self._pauses, (follower.retry_at_ms, key))
            if position is None:
                if self.remembered.pop(key, None) is not None:
                    forgotten.append(key)
            elif self.remembered.get(key) != position:
                partitions[key] = self.remembered[key] = position
        self._changed = {}
        if not self.remembered and not forgotten:
            return None
        return PlannedFetch(self._session_id, self._session_epoch, partitions, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader served the request; `session_id` is 0 where it keeps no session for us."""
        if session_id == _NO_SESSION:
            self._session_id, self._session_epoch = _NO_SESSION, _FULL
        else:
            self._session_id = session_id
            self._session_epoch = 1 if self._session_epoch == _LAST_EPOCH else self._session_epoch + 1

    def failed(self, session_known: bool = True) -> None:
        """The request was lost or its session refused.

        Start a new session with all partitions, close the old one.
        """
        self._session_epoch = _FULL
        if not session_known:
            self._session_id = _NO_SESSION

    def wake_at_ms(self) -> int | None:
        """When the first pause ends, None if nothing pauses."""
        return self._pauses[0][0] if self._pauses else None
