"""The fetches of a follower that keeps up: of a few partitions of a topic, and only how far it is is new.

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

from penstock.broker.base.context import Context
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.sessions import FULL, LAST_EPOCH, FollowedPartition, ReplicaSession
from penstock.model.errors import ApiError
from penstock.net.deferred import Deferred
from penstock.wire.apis.fetch import FetchResponse
from penstock.wire.replica_fetch import ReplicaAsk, Told, write_answer
from penstock.wire.replica_form import MOST, PARTITION_FIELDS, AskForm

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
        #: of the request that waits
        self._deferred: Deferred[Any]
        self._missing = 0
        self._due = False
        self._deadline = 0.0
        #: goes off at a deadline, perhaps of a request before: one timer, however many there are
        self._timer: asyncio.TimerHandle | None = None

    @staticmethod
    def may_take(ask: ReplicaAsk) -> bool:
        """Whether a request has the limits and the form of the usual ones."""
        waits = ask.max_wait_ms > 0 and ask.min_bytes > 0 and ask.max_bytes > 0
        names = 0 < len(ask.wanted) <= MOST and len({wanted[0] for wanted in ask.wanted}) == 1
        return waits and names and ask.is_usual and ask.session_epoch > FULL

    def fits(self, ask: ReplicaAsk) -> bool:
        """Whether a request is one of those that are known here."""
        return self._form.fits(self.context.client_id, ask)

    # -- asking

    def takes(self, frame: memoryview) -> tuple[int, Any] | None:
        """A request's correlation id and its answer; None, and nothing has happened, if it is not ours."""
        form, session = self._form, self.session
        unpack = form.shapes.get(len(frame))
        if unpack is None or session.parked is not None:
            return None
        head, correlation_id, same, epoch, topics, topic_id, named, *fields, tail = unpack(frame)
        if (
            epoch != session.epoch
            or same != form.same
            or tail != form.tail
            or head != form.head
            or topics != 2
            or epoch == LAST_EPOCH
        ):
            return None
        heard: dict[FollowedPartition, tuple[Leadership, int, int, int]] = {}
        for at in range(0, len(fields), PARTITION_FIELDS):
            index, leader_epoch, offset, last_epoch, start, most, tags = fields[at : at + PARTITION_FIELDS]
            followed = session.partitions.get((topic_id, index))
            if (
                followed is None
                or leader_epoch != followed.leader_epoch
                or most != followed.max_bytes
                or tags
            ):
                return None
            leadership = _place(followed, offset, last_epoch)
            if leadership is None:
                return None
            heard[followed] = (leadership, offset, last_epoch, start)
        if named != len(heard) + 1:
            return None
        now_ms = int(self.context.broker.clock.monotonic() * 1000)
        session.epoch = epoch + 1
        session.fetched_at_ms = now_ms
        for followed, (leadership, offset, last_epoch, start) in heard.items():
            followed.fetch_offset = offset
            followed.last_fetched_epoch = last_epoch
            followed.log_start_offset = start
            session.ready[followed] = None
            try:
                leadership.fetched(session.replica, session.broker_epoch, offset, start, now_ms)
            except ApiError:
                # It is heard of again, and told why not.
                followed.told = None
        if self._is_all_quiet():
            return correlation_id, self._wait()
        told = self._read(self._ask.min_bytes)
        if told is not None:
            return correlation_id, (write_answer, (session.id, told))
        return correlation_id, self._general(self.context, self._ask, session, now_ms).run()

    def _is_all_quiet(self) -> bool:
        """Whether there is nothing to tell but how far partitions are, which is not worth an answer."""
        for followed in self.session.ready:
            partition = followed.known_to
            if partition is None or followed.fetch_offset < partition.log.end_offset:
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
            told = self._read(0)
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

    def _read(self, least: int) -> list[Told] | None:
        """What to tell of all that has news; None, and nothing has happened, if it is unusual, or little."""
        session, broker = self.session, self.context.broker
        if len(session.ready) > _MOST:
            return None
        found = []
        size = 0
        for followed in session.ready:
            partition = followed.known_to
            if partition is None:
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
        if size < least:
            return None
        broker.metrics.replication_bytes_out += size
        told: list[Told] = []
        for followed, high_watermark, start, records in found:
            if followed.tell(high_watermark, start, records):
                told.append((followed.topic_id, followed.index, high_watermark, start, records))
        return told


def _place(followed: FollowedPartition, offset: int, last_epoch: int) -> Leadership | None:
    """The leadership that knows the follower, where its log up to `offset` is a prefix of ours; else None."""
    partition = followed.known_to
    if partition is None:
        return None
    log = partition.log
    # Whose last record is of the same epoch as ours has a prefix of our log, up to its end.
    if log.leader_epochs.latest != last_epoch or not log.log_start_offset <= offset <= log.end_offset:
        return None
    return followed.told
