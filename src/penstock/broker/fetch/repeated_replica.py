"""Fetches that a follower repeats while it keeps up: a few partitions of one topic, with new positions only.

A replicated batch takes two of them, so their cost is the leader's cost of replication. Such a request is
recognised by its bytes (`ReplicaFetchTemplate`). Its position is reported to a leadership that has accepted
the follower before. It waits, and is answered with the batch that was appended last.

An error, another epoch, a position that has to be checked, a throttle, or bytes that are not in memory go to
the general pipeline. A request that is not repeated leaves no trace; one that is leaves the session as the
general pipeline would.

Owned by the event loop's thread.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.base import repeated
from penstock.broker.base.access import Access
from penstock.broker.base.context import Context
from penstock.broker.fetch.pipeline import WaitingFetch
from penstock.broker.fetch.replica_fetch import ReplicaEnvironment, ReplicaFetch
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.sessions import (
    FULL,
    LAST_EPOCH,
    FollowedPartition,
    ReplicaSession,
    ReplicaSessions,
)
from penstock.model.errors import ApiError
from penstock.security.acls import Operation
from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.repeated_replica_fetch import PARTITION_FIELDS, ReplicaFetchTemplate
from penstock.wire.replica_fetch import VERSIONS as RESPONSE_VERSIONS
from penstock.wire.replica_fetch import FetchedPartition, write_response

__all__ = ["RepeatedReplicaFetches", "ReplicaFetchLearner"]

#: the most partitions with news that are read here
_MOST: Final = 8


class RepeatedReplicaFetches(WaitingFetch):
    """The requests of one session on one connection (`penstock.broker.base.repeated.RepeatedRequests`)."""

    __slots__ = ("_environment", "_epoch", "_max_wait_s", "_request", "_template", "route", "session")

    keeps_timer = True

    def __init__(
        self,
        context: Context,
        environment: ReplicaEnvironment,
        session: ReplicaSession,
        request: FetchRequest,
        template: ReplicaFetchTemplate,
    ) -> None:
        """`request` is one of the requests, which all have the same limits."""
        self.route = (FETCH.key, context.version)
        self.context = context
        self.session = session
        self._environment = environment
        self._request = request
        self._max_wait_s = request.max_wait_ms / 1000
        self._template = template
        #: the epoch of the rights for which the follower is known to have ClusterAction
        self._epoch: object = None
        self.prepare_wait(environment.call_soon)

    def fits(self, context: Context, session: ReplicaSession, request: FetchRequest) -> bool:
        """Returns true if a request is one of those that are recognised here."""
        if session is not self.session or context.version != self.context.version:
            return False
        return self._template.fits(self.context.client_id, request)

    # -- requests

    def take(self, frame: memoryview) -> tuple[int, Any] | None:
        template, session = self._template, self.session
        if self._environment.access is not None and not self._is_allowed(self._environment.access):
            return None
        unpack = template.shapes.get(len(frame))
        if unpack is None or session.waiting is not None:
            return None
        head, correlation_id, same, epoch, topics, topic_id, named, *fields, tail = unpack(frame)
        if (
            epoch != session.epoch
            or same != template.same
            or tail != template.tail
            or head != template.head
            or topics != 2
            or epoch == LAST_EPOCH
        ):
            return None
        positions: dict[FollowedPartition, tuple[Leadership, int, int, int]] = {}
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
            partition, leadership = followed.led_partition, followed.accepted_by
            if partition is None or leadership is None:
                return None
            log = partition.log
            # A log whose last record has the same epoch as ours is a prefix of ours, up to our end.
            start_offset, end_offset = log.local_log_start_offset, log.end_offset
            if log.leader_epochs.latest != last_epoch or not start_offset <= offset <= end_offset:
                return None
            positions[followed] = (leadership, offset, last_epoch, start)
        if named != len(positions) + 1:
            return None
        return correlation_id, self._serve(positions)

    def _is_allowed(self, access: Access) -> bool:
        """Whether the follower still has ClusterAction. The general pipeline answers one that has not."""
        if access.epoch is not self._epoch:
            if not access.allows_on_cluster(self.context, Operation.CLUSTER_ACTION, quiet=True):
                return False
            self._epoch = access.epoch
        return True

    def _serve(self, positions: dict[FollowedPartition, tuple[Leadership, int, int, int]]) -> Any:
        """Update the session as `ReplicaSession.update`, report the positions, and answer or wait."""
        session, request = self.session, self._request
        now_ms = int(self._environment.clock.monotonic() * 1000)
        session.epoch += 1
        session.fetched_at_ms = now_ms
        replica, broker_epoch, ready = session.replica, session.broker_epoch, session.ready
        for followed, (leadership, offset, last_epoch, start) in positions.items():
            followed.fetch_offset = offset
            followed.last_fetched_epoch = last_epoch
            followed.log_start_offset = start
            ready[followed] = None
            try:
                leadership.fetched(replica, broker_epoch, offset, start, now_ms)
            except ApiError:
                # The general pipeline reports the position again, and answers with the error.
                followed.accepted_by = None
        for followed in ready:
            partition = followed.led_partition
            if partition is None or followed.fetch_offset < partition.log.end_offset:
                break
        else:
            # All partitions are read to their end, and watermarks alone do not end a wait.
            return self.start_wait(request.min_bytes, self._max_wait_s)
        fetched = self._read(request.min_bytes)
        if fetched is not None:
            return write_response, (session.id, fetched)
        fetch = ReplicaFetch(self.context, self._environment, session, request)
        return fetch.run(request.min_bytes, request.max_wait_ms)

    def forget(self) -> None:
        self.close_wait()

    # -- waiting

    def subscribe(self) -> None:
        self.session.waiting = self

    def unsubscribe(self) -> None:
        if self.session.waiting is self:
            self.session.waiting = None

    # -- responses

    def answer_now(self) -> Any:
        fetched = self._read(0)
        if fetched is not None:
            return write_response, (self.session.id, fetched)
        return ReplicaFetch(self.context, self._environment, self.session, self._request).answer_now()

    def _read(self, least: int) -> list[FetchedPartition] | None:
        """Read all partitions with news; None, without effect, for an unusual one or less than `least`."""
        session = self.session
        if len(session.ready) > _MOST:
            return None
        found = []
        size = 0
        for followed in session.ready:
            partition = followed.led_partition
            if partition is None:
                return None
            log, records = partition.log, b""
            if followed.fetch_offset < log.end_offset:
                newest = log.newest(followed.fetch_offset)
                if newest is None or self._environment.throttles.holds_leader(partition, session.replica):
                    return None
                if size and size + len(newest) > min(self._request.max_bytes, followed.max_bytes):
                    return None
                size += len(newest)
                records = newest
            found.append((followed, log.high_watermark, log.explained_start, records))
        if size < least:
            return None
        self._environment.metrics.replication_bytes_out += size
        fetched: list[FetchedPartition] = []
        for followed, high_watermark, start, records in found:
            if followed.mark_sent(high_watermark, start, records):
                fetched.append((followed.topic_id, followed.index, high_watermark, start, records))
        return fetched


class ReplicaFetchLearner:
    """Learns the fetches of all followers of a broker."""

    __slots__ = ("_environment", "_sessions")

    #: the versions whose requests may be repeated
    versions = tuple(version for version in ReplicaFetchTemplate.VERSIONS if version in RESPONSE_VERSIONS)

    def __init__(self, sessions: ReplicaSessions, environment: ReplicaEnvironment) -> None:
        self._sessions = sessions
        self._environment = environment

    def learn(self, context: Context, request: FetchRequest, frame: memoryview, body_at: int) -> None:
        """See `penstock.broker.base.repeated.Learn`."""
        waits = request.max_wait_ms > 0 and request.min_bytes > 0 and request.max_bytes > 0
        if not waits or request.session_epoch <= FULL or not repeated.ENABLED:
            return
        session = self._sessions.get(request.session_id)
        if session is None:
            return
        known = context.connection.memo
        if isinstance(known, RepeatedReplicaFetches) and known.fits(context, session, request):
            return
        template = ReplicaFetchTemplate.of(context.version, context.client_id, request)
        if template is not None:
            context.connection.memo = RepeatedReplicaFetches(
                context, self._environment, session, request, template
            )
