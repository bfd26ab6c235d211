"""The follower's side of replication: it fetches, truncates where logs diverge, and appends.

A follower sends the next fetch only when all of its log is on its disk. It truncates to the end offset that
the leader answers for a diverging epoch, and never below its own high watermark.
"""

from __future__ import annotations

from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.ports import Buffer, FileRange
from penstock.raft.control import observe_voters, whole_batches
from penstock.raft.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, LogPoint
from penstock.raft.quorum import Quorum
from penstock.raft.ready import STAYS_OUT, QuorumViolation
from penstock.raft.recovery import LogRecovery
from penstock.raft.roles import Follower, LeaderContact, Unattached

__all__ = ["FollowerReplication"]


class FollowerReplication:
    """Replication from the leader to this node."""

    __slots__ = ("_quorum", "_recovery")

    def __init__(self, quorum: Quorum, recovery: LogRecovery) -> None:
        self._quorum = quorum
        self._recovery = recovery

    def on_fetch_response(self, peer: int, request: FetchRequest, response: FetchResponse) -> None:
        quorum = self._quorum
        if request is not quorum.pending_fetch:
            return
        quorum.pending_fetch = None
        quorum.next_fetch_ms = quorum.now_ms + quorum.config.retry_ms
        quorum.observe(response.epoch, response.leader_id)
        if not self.is_from_leader(peer, request.epoch, response.epoch):
            if peer == quorum.leader_id and response.epoch < quorum.epoch:
                # The leader's disk was wiped or rolled back: it does not know that it led.
                self.leader_left(quorum.backoff())
            self._after_probe()
        elif response.error == ErrorCode.NONE:
            try:
                self._take_fetched(request, response)
            except CorruptMessage:
                return  # damaged on the way: fetched again
            self.leader_answered()
        elif response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.leader_left(quorum.backoff())

    def is_from_leader(self, peer: int, request_epoch: int, response_epoch: int) -> bool:
        """Whether a response is one of this epoch's leader to a request of this epoch."""
        quorum = self._quorum
        if not isinstance(quorum.role, Follower) or peer != quorum.role.leader_id:
            return False
        return request_epoch == response_epoch == quorum.epoch

    def _after_probe(self) -> None:
        quorum = self._quorum
        if isinstance(quorum.role, Follower) and quorum.role.probing:
            quorum.role.probing = False
            quorum.next_fetch_ms = quorum.now_ms

    def leader_answered(self) -> None:
        quorum = self._quorum
        assert isinstance(quorum.role, Follower)
        quorum.role.has_fetched = True
        quorum.contact = LeaderContact(quorum.leader_id, quorum.now_ms)
        quorum.role.probing = False
        quorum.losses = 0
        quorum.deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms
        quorum.next_fetch_ms = quorum.now_ms

    def leader_left(self, delay_ms: float) -> None:
        """The leader of this epoch is gone, as far as this node knows: stand after `delay_ms`."""
        quorum = self._quorum
        quorum.gone.add(quorum.leader_id)
        if isinstance(quorum.role, Follower) and quorum.may_stand:
            quorum.deadline_ms = min(quorum.deadline_ms, quorum.now_ms + delay_ms)

    def _take_fetched(self, request: FetchRequest, response: FetchResponse) -> None:
        quorum = self._quorum
        assert isinstance(quorum.role, Follower) and request.offset == quorum.log.end_offset
        if response.diverging is not None:
            self._truncate(self._common_end(response.diverging))
        elif response.snapshot is not None:
            quorum.role.snapshot, quorum.role.snapshot_bytes = response.snapshot, 0
        else:
            assert not isinstance(response.records, FileRange)
            quorum.role.matches = True
            self._append_replicated(response.records)
            self.learn_high_watermark(response.high_watermark)
            self._recovery.leader_committed(response.high_watermark)

    def _append_replicated(self, records: Buffer) -> None:
        quorum = self._quorum
        size = 0
        for header, batch in whole_batches(records):
            if header.leader_epoch > quorum.epoch:
                raise CorruptMessage(f"a batch of epoch {header.leader_epoch} in epoch {quorum.epoch}")
            size += len(batch)
        if size:
            whole = memoryview(records)[:size]
            quorum.log.append_replicated(whole)
            observe_voters(quorum.history, whole)

    def learn_high_watermark(self, offset: int) -> None:
        quorum = self._quorum
        quorum.high_watermark = max(quorum.high_watermark, min(offset, quorum.log.end_offset))

    def _common_end(self, diverging: LogPoint) -> int:
        """The offset to truncate to: the leader's end of the epoch, or this log's if that is lower."""
        quorum = self._quorum
        ours = quorum.log.end_offset_for_epoch(diverging.epoch)
        if ours.epoch == diverging.epoch:
            return min(ours.offset, diverging.offset)
        return max(ours.offset, quorum.log.start_offset)

    def _truncate(self, offset: int) -> None:
        quorum = self._quorum
        if offset < quorum.high_watermark:
            raise QuorumViolation(
                f"the leader of epoch {quorum.epoch}, node {quorum.leader_id}, lacks committed records: its "
                f"log parts from this one at offset {offset}, here offsets below {quorum.high_watermark} are "
                f"committed. Most likely a majority of the voters went back to older data. {STAYS_OUT}"
            )
        quorum.log.truncate_to(offset)
        end_offset = quorum.log.end_offset
        quorum.history.truncate_to(end_offset)
        quorum.flushed_offset = min(quorum.flushed_offset, end_offset)
        quorum.outbox.truncated(end_offset)

    def fetch_more(self) -> None:
        """Send the next fetch: one at a time, and only when the whole log is on the disk.

        Without a leader, and while probing, it goes to another voter, whose answer names the leader.
        """
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Follower | Unattached) or quorum.pending_fetch is not None:
            return
        if quorum.now_ms < quorum.next_fetch_ms or not quorum.is_flushed:
            return
        following = isinstance(role, Follower) and not role.probing
        node = role.leader_id if isinstance(role, Follower) and following else quorum.random_voter()
        if node is None:
            quorum.next_fetch_ms = quorum.now_ms + quorum.config.retry_ms
            return
        quorum.pending_fetch = self._next_fetch(following)
        quorum.outbox.send(node, quorum.pending_fetch)

    def _next_fetch(self, following: bool) -> FetchRequest | FetchSnapshotRequest:
        quorum = self._quorum
        end, role = quorum.log_end, quorum.role
        if following and isinstance(role, Follower) and role.snapshot is not None:
            return FetchSnapshotRequest(
                self._recovery.fetch_key,
                quorum.epoch,
                role.snapshot,
                role.snapshot_bytes,
                quorum.config.fetch_max_bytes,
            )
        # A leader that has not answered yet is to answer at once, so that this node knows that it leads.
        waits = following and isinstance(role, Follower) and role.has_fetched
        unsure = following and isinstance(role, Follower) and not role.matches
        return FetchRequest(
            self._recovery.fetch_key,
            quorum.epoch,
            end.offset,
            end.epoch,
            quorum.config.fetch_max_wait_ms if waits else 0,
            quorum.config.fetch_max_bytes,
            quorum.high_watermark,
            quorum.log.checksum_before(end.offset) if unsure else -1,
        )

    def on_fetch_failure(self, peer: int) -> None:
        """Fetch again a little later, and from another voter, which may know a new leader."""
        quorum = self._quorum
        quorum.pending_fetch = None
        quorum.next_fetch_ms = quorum.now_ms + quorum.config.retry_ms
        if isinstance(quorum.role, Follower):
            quorum.role.probing = peer == quorum.role.leader_id
