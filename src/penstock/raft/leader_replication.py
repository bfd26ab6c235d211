"""The leader's side of replication: it appends, answers fetches, and commits what a majority has on disk.

A follower fetches from the end of its log, and only when all of it is on its disk, so a fetch offset *is* an
acknowledgement. Where the logs diverge, the leader answers with its largest epoch at or below the follower's,
and the end offset of that epoch.
"""

from __future__ import annotations

from collections.abc import Hashable

from penstock.model.errors import ErrorCode, NotLeaderOrFollower
from penstock.raft.control import observe_voters
from penstock.raft.leader import Leader, ParkedFetch
from penstock.raft.messages import FetchRequest, FetchResponse, LogPoint
from penstock.raft.quorum import Quorum
from penstock.raft.recovery import LogRecovery

__all__ = ["LeaderReplication"]


class LeaderReplication:
    """Replication from this node to its followers, while it leads."""

    __slots__ = ("_quorum", "_recovery")

    def __init__(self, quorum: Quorum, recovery: LogRecovery) -> None:
        self._quorum = quorum
        self._recovery = recovery

    def append(self, batches: bytearray) -> int:
        """Append as the leader. Returns the offset of the first record."""
        quorum = self._quorum
        if not isinstance(quorum.role, Leader):
            raise NotLeaderOrFollower(f"node {quorum.key.id} does not lead epoch {quorum.epoch}")
        base_offset = quorum.log.append(batches, quorum.epoch)
        observe_voters(quorum.history, batches)
        return base_offset

    def on_fetch(self, token: Hashable, request: FetchRequest) -> None:
        quorum = self._quorum
        error = ErrorCode.INVALID_REQUEST
        if request.offset >= 0 and 0 <= request.last_epoch <= request.epoch and request.max_wait_ms >= 0:
            self._give_way(request)
            error = self.refusal(request.epoch)
        if error != ErrorCode.NONE:
            quorum.outbox.reply(token, FetchResponse(error, quorum.epoch, quorum.leader_id))
            return
        assert isinstance(quorum.role, Leader)
        if request.replica.is_replica:
            self._acknowledge(quorum.role, request)
        quorum.role.parked[token] = ParkedFetch(request, quorum.now_ms + request.max_wait_ms)

    def _acknowledge(self, role: Leader, request: FetchRequest) -> None:
        quorum = self._quorum
        self._recovery.void_acknowledgements(request.replica)
        replica = role.replica(request.replica, quorum.voters, quorum.now_ms)
        if self._divergence(request) is None:
            replica.fetched(request.offset, quorum.log.end_offset, quorum.now_ms)
        else:
            replica.contact_ms = quorum.now_ms

    def _give_way(self, request: FetchRequest) -> None:
        """End this epoch if a replica outside the voter set is in a later one.

        Such a replica is a voter that was removed while it stood for election. Its epoch cannot go back, so
        it can follow a leader of a later epoch only. A voter that is ahead shows it in its answer to
        BeginQuorumEpoch; the leader sends none to replicas outside the voter set.
        """
        quorum = self._quorum
        if not request.replica.is_replica:
            return
        if quorum.is_leader and request.epoch > quorum.epoch and not quorum.voters.has(request.replica):
            quorum.become_unattached(request.epoch)
            # No other node stands, and this log has everything.
            quorum.deadline_ms = quorum.now_ms + quorum.jitter()

    def refusal(self, epoch: int) -> ErrorCode:
        """The error for a request to the leader of `epoch`, if this node is not that leader."""
        quorum = self._quorum
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if quorum.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _divergence(self, request: FetchRequest) -> FetchResponse | None:
        """The answer to a follower whose log is not a prefix of this one; None if it is one."""
        quorum = self._quorum
        log, snapshot = quorum.log, quorum.log.snapshot
        answer = self._response()
        if snapshot is not None and self._needs_snapshot(request, snapshot):
            return answer._replace(snapshot=snapshot)
        if request.offset == log.start_offset == 0:
            return None
        known = log.end_offset_for_epoch(request.last_epoch)
        if known.epoch != request.last_epoch or known.offset < request.offset:
            return answer._replace(diverging=known)
        if request.last_checksum >= 0 and log.checksum_before(request.offset) not in (
            -1,
            request.last_checksum,
        ):
            # Voters that went back to older data have used the epoch a second time.
            return answer._replace(diverging=log.end_offset_for_epoch(request.last_epoch - 1))
        return None

    def _needs_snapshot(self, request: FetchRequest, snapshot: LogPoint) -> bool:
        """Whether the log no longer has the records that the follower needs, or the one before them."""
        start = self._quorum.log.start_offset
        if request.offset < start or request.offset == 0:
            return True
        return request.offset == start and LogPoint(request.last_epoch, start) != snapshot

    def answer_fetches(self) -> None:
        """Answer the fetches that have new records or a new high watermark to get, or whose wait is over."""
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        end_offset, high_watermark = quorum.log.end_offset, quorum.high_watermark
        for token, (request, deadline_ms) in list(quorum.role.parked.items()):
            has_news = request.offset != end_offset or request.high_watermark < high_watermark
            if has_news or quorum.now_ms >= deadline_ms:
                del quorum.role.parked[token]
                quorum.outbox.reply(token, self._divergence(request) or self._records_for(request))

    def _records_for(self, request: FetchRequest) -> FetchResponse:
        return self._response()._replace(records=self._quorum.log.read(request.offset, request.max_bytes))

    def _response(self) -> FetchResponse:
        quorum = self._quorum
        return FetchResponse(
            ErrorCode.NONE, quorum.epoch, quorum.leader_id, quorum.high_watermark, quorum.log.start_offset
        )

    def commit(self) -> None:
        """Advance the high watermark to the offset below which a majority has everything on disk."""
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        end_offset = quorum.role.majority_end_offset(quorum.voters, quorum.key, quorum.flushed_offset)
        if end_offset > quorum.high_watermark and quorum.role.may_commit(end_offset):
            quorum.high_watermark = end_offset
