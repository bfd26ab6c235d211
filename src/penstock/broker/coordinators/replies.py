"""Replies of a coordinator: the time for which they wait for a commit, and the rate at which they are sent.

At the end of a rebalance of a thousand members, a thousand requests have their replies due, and each member
sends its next request as soon as it has its reply. To keep the event loop free for other requests, replies
that were parked by the shard are sent at a limited rate: a few per millisecond. That delays members by a
fraction of a second, after a rebalance that took seconds. Replies to other requests do not wait behind
them.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from penstock.coordination.outbox import Reply, response_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.wire.schema import Struct

__all__ = ["PendingReply", "ReplySender", "UncommittedReplies"]

#: replies of either kind that are sent in one turn of the event loop
PER_TURN: Final = 4
#: the pause between two turns that send parked replies
PACE_S: Final = 0.001


class PendingReply:
    """A request that waits for the reply of a shard."""

    __slots__ = ("error_response", "is_parked", "response")

    def __init__(self, error_response: Callable[[ApiError], Struct]) -> None:
        self.response: Deferred[Struct] = Deferred()
        #: builds the response of an error
        self.error_response = error_response
        #: true if the shard replies in a later turn, for example at the end of a rebalance
        self.is_parked = False

    def fail(self, error: ApiError) -> None:
        self.response.resolve(self.error_response(error))


class UncommittedReplies:
    """Replies that wait until the records that they are based on are committed.

    A reply waits for a limited time. As in Kafka, a request whose records are not replicated in time gets
    COORDINATOR_NOT_AVAILABLE, and the client retries.
    """

    __slots__ = ("_timeout_s", "_timer", "_waiting")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        #: (end offset, deadline on the event loop's clock, replies), in ascending order of both
        self._waiting: deque[tuple[int, float, list[tuple[PendingReply, Reply]]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, end_offset: int, replies: list[tuple[PendingReply, Reply]]) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((end_offset, loop.time() + self._timeout_s, replies))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._expire)

    def take_committed(self, high_watermark: int) -> list[tuple[PendingReply, Reply]]:
        """Remove and return the replies whose records are below `high_watermark`."""
        due: list[tuple[PendingReply, Reply]] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            due += self._waiting.popleft()[2]
        return due

    def take_all(self) -> list[PendingReply]:
        """Remove and return all requests that wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        return [pending for _, _, replies in waiting for pending, _ in replies]

    def _expire(self) -> None:
        """Fail the requests whose deadline has passed, and set the timer for the next deadline."""
        loop, waiting = asyncio.get_running_loop(), self._waiting
        now, late = loop.time(), []
        while waiting and waiting[0][1] <= now:
            late += waiting.popleft()[2]
        self._timer = loop.call_at(waiting[0][1], self._expire) if waiting else None
        error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the records were not replicated in time")
        for pending, _ in late:
            pending.fail(error)


class ReplySender:
    """Sends committed replies: direct ones and parked ones, each kind in the order of the decisions."""

    __slots__ = ("_direct", "_is_sending", "_pace", "_parked")

    def __init__(self) -> None:
        self._direct: deque[tuple[PendingReply, Reply]] = deque()
        self._parked: deque[tuple[PendingReply, Reply]] = deque()
        #: true while a turn for more direct replies is running or scheduled
        self._is_sending = False
        #: the turn for more parked replies
        self._pace: asyncio.TimerHandle | None = None

    def send(self, replies: Iterable[tuple[PendingReply, Reply]]) -> None:
        """Send the first replies at once and the others in later turns."""
        for each in replies:
            (self._parked if each[0].is_parked else self._direct).append(each)
        if self._direct and not self._is_sending:
            self._send_direct()
        if self._parked and self._pace is None:
            self._send_parked()

    def send_all(self) -> None:
        """Send all replies now, because the host is unloaded."""
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None
        _send(self._direct, len(self._direct))
        _send(self._parked, len(self._parked))

    def _send_direct(self) -> None:
        self._is_sending = True  # a reply may lead to more replies
        _send(self._direct, PER_TURN)
        self._is_sending = bool(self._direct)
        if self._direct:
            asyncio.get_running_loop().call_soon(self._send_direct)

    def _send_parked(self) -> None:
        self._pace = asyncio.get_running_loop().call_later(PACE_S, self._next_parked)
        _send(self._parked, PER_TURN)

    def _next_parked(self) -> None:
        self._pace = None
        if self._parked:
            self._send_parked()


def _send(replies: deque[tuple[PendingReply, Reply]], most: int) -> None:
    for _ in range(min(len(replies), most)):
        pending, reply = replies.popleft()
        pending.response.resolve(response_of(reply))
