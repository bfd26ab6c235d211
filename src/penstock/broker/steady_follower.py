"""The fetches of a follower that keeps up: each names one partition, and nothing is new but how far it is.

A replicated batch is two of them, so what they cost is what replication costs the leader. Such a request is
known by its bytes (`AskForm`), it is heard of where a leadership has heard of the follower before, it waits,
and is answered with what a client appended last. Whatever is out of the ordinary, be it an error, another
epoch, a position that has to be judged, a throttle or bytes that are not in memory, is left to the general
`ReplicaFetch`: a request that is none of ours leaves no trace, one that is leaves the session as that would.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from penstock.broker.context import Context
from penstock.broker.replica_sessions import FULL, LAST_EPOCH, FollowedPartition, ReplicaSession
from penstock.model.errors import ApiError
from penstock.net.deferred import Deferred
from penstock.wire.apis.fetch import FetchResponse
from penstock.wire.replica_fetch import ReplicaAsk, Told, write_answer
from penstock.wire.replica_form import AskForm, name_of

__all__ = ["SteadyFollower"]

#: partitions with news: more of them are no usual answer
_MOST: Final = 8


class General(Protocol):
    """A fetch as any may be. What it answers is a response, (writer, content), or a Deferred of either."""

    def run(self) -> Any:
        """The answer, which may come when the fetch has waited."""
        ...

    def read(self) -> Any:
        """The answer with what there is now."""
        ...


#: makes one, of what was asked in a session at a time
MakeGeneral: TypeAlias = Callable[[Context, ReplicaAsk, ReplicaSession, int], General]


class SteadyFollower:
    """One session on one connection, and the one request of it that may be waiting."""

    __slots__ = (
        "_ask",
        "_deadline",
        "_deferred",
        "_due",
        "_form",
        "_general",
        "_known",
        "_loop",
        "_missing",
        "_timer",
        "context",
        "session",
    )

    def __init__(
        self, context: Context, ask: ReplicaAsk, session: ReplicaSession, general: MakeGeneral
    ) -> None:
        """`ask` is one of the requests, which all have the same limits."""
        self.session = session
        self.context = context
        self._ask = ask
        self._general = general
        self._form = AskForm(context.client_id, ask)
        self._loop = asyncio.get_running_loop()
        #: by their names in requests
        self._known: dict[bytes, FollowedPartition] = {}
        #: of the request that waits
        self._deferred: Deferred[Any]
        self._missing = 0
        self._due = False
        self._deadline = 0.0
        #: goes off at a deadline, perhaps of a request before: one timer, however many there are
        self._timer: asyncio.TimerHandle | None = None

    @staticmethod
    def may_take(ask: ReplicaAsk) -> bool:
        """Whether a request, which names one partition, has the limits and the form of the usual ones."""
        waits = ask.max_wait_ms > 0 and ask.min_bytes > 0 and ask.max_bytes > 0
        return waits and ask.is_usual and ask.session_epoch > FULL

    def learn(self, ask: ReplicaAsk, followed: FollowedPartition) -> bool:
        """Know a partition that was just asked for; False where the request has other limits."""
        if not self._form.fits(self.context.client_id, ask):
            return False
        self._known[name_of(followed.topic_id, followed.index)] = followed
        return True

    # -- asking

    def takes(self, frame: memoryview) -> tuple[int, Any] | None:
        """A request's correlation id and its answer; None, and nothing has happened, if it is not ours."""
        form, session = self._form, self.session
        if len(frame) != form.size or session.parked is not None:
            return None
        head, correlation_id, same, epoch, name, leader_epoch, offset, last_epoch, start, tail = form.unpack(
            frame
        )
        followed = self._known.get(name)
        if (
            followed is None
            or epoch != session.epoch
            or same != form.same
            or tail != form.tail
            or head != form.head
            or epoch == LAST_EPOCH
        ):
            return None
        partition, leadership = followed.partition, followed.told
        if (
            partition is None
            or leadership is None
            or leadership is not partition.leadership
            or leader_epoch != followed.leader_epoch
            or partition.flusher.health.offline is not None
        ):
            return None
        log = partition.log
        end = log.end_offset
        # Whose last record is of the same epoch as ours has a prefix of our log, up to its end.
        if log.leader_epochs.latest != last_epoch or not log.log_start_offset <= offset <= end:
            return None
        now_ms = int(self.context.broker.clock.monotonic() * 1000)
        session.epoch = epoch + 1
        session.fetched_at_ms = now_ms
        followed.fetch_offset = offset
        followed.last_fetched_epoch = last_epoch
        followed.log_start_offset = start
        try:
            leadership.fetched(session.replica, session.broker_epoch, offset, start, now_ms)
        except ApiError:
            # It is heard of again, and told why not.
            followed.told = None
        ready = session.ready
        ready[followed] = None
        if offset == end and followed.told is not None and (len(ready) == 1 or self._is_all_quiet()):
            return correlation_id, self._wait()
        return correlation_id, self._general(self.context, self._ask, session, now_ms).run()

    def _is_all_quiet(self) -> bool:
        """Whether there is nothing to tell but how far partitions are, which is not worth an answer."""
        for followed in self.session.ready:
            partition, leadership = followed.partition, followed.told
            if (
                partition is None
                or leadership is None
                or leadership is not partition.leadership
                or followed.fetch_offset < partition.log.end_offset
            ):
                return False
        return True

    # -- waiting

    def _wait(self) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self._deferred = deferred
        deferred.on_cancel = self._unpark
        self._missing = self._ask.min_bytes
        self._due = False
        self.session.parked = self
        self._deadline = self._loop.time() + self._ask.max_wait_ms / 1000
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._time_passed)
        return deferred

    def more(self, size: int) -> None:
        """One of the partitions has news; answer after this turn of the loop, with all that it brings."""
        self._missing -= size
        if self._missing <= 0 and not self._due:
            self._due = True
            self._loop.call_soon(self._finish)

    def superseded(self) -> None:
        """The next request of the session is here: this one gets what there is, which is nothing."""
        self._unpark()
        self._deferred.resolve(FetchResponse(session_id=self.session.id))

    def _unpark(self) -> None:
        if self.session.parked is self:
            self.session.parked = None

    def _time_passed(self) -> None:
        self._timer = None
        if self.session.parked is not self:
            return
        if self._loop.time() < self._deadline:
            # It was set for a request that has been answered long ago.
            self._timer = self._loop.call_at(self._deadline, self._time_passed)
        else:
            self._finish()

    # -- answering

    def _finish(self) -> None:
        session = self.session
        if session.parked is not self:
            return
        session.parked = None
        deferred = self._deferred
        try:
            told = self._read()
            if told is not None:
                deferred.resolve((write_answer, (session.id, told)))
                return
            now_ms = int(self.context.broker.clock.monotonic() * 1000)
            answer = self._general(self.context, self._ask, session, now_ms).read()
        except Exception as e:  # noqa: BLE001 - nobody else would tell the follower that waits
            self.context.failed(e)
            return
        if isinstance(answer, Deferred):
            answer.then(deferred.resolve)
        else:
            deferred.resolve(answer)

    def _read(self) -> list[Told] | None:
        """What is to be told of all that has news; None, and nothing has happened, if it is not the usual."""
        session, broker = self.session, self.context.broker
        if len(session.ready) > _MOST:
            return None
        found = []
        size = 0
        for followed in session.ready:
            partition, leadership = followed.partition, followed.told
            if (
                partition is None
                or leadership is None
                or leadership is not partition.leadership
                or partition.flusher.health.offline is not None
            ):
                return None
            log, records = partition.log, b""
            if followed.fetch_offset < log.end_offset:
                newest = log.newest(followed.fetch_offset)
                if newest is None or broker.replicas.throttles.holds_leader(partition, session.replica):
                    return None
                if size and size + len(newest) > min(self._ask.max_bytes, followed.max_bytes):
                    return None
                size += len(newest)
                records = newest
            found.append((followed, log.high_watermark, log.log_start_offset, records))
        broker.metrics.replication_bytes_out += size
        told: list[Told] = []
        for followed, high_watermark, start, records in found:
            if followed.tell(high_watermark, start, records):
                told.append((followed.topic_id, followed.index, high_watermark, start, records))
        return told
