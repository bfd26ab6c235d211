"""How records travel: the leader appends, followers fetch, and a majority's disks commit.

A follower asks from the end of its log, and only when all of it is on its disk, so a fetch offset *is* an
acknowledgement. Where logs part, the leader answers with the largest epoch at or below the follower's and
its end; the follower cuts its log there, never below its high watermark.
"""

from __future__ import annotations

from collections.abc import Hashable

from penstock.model.errors import CorruptMessage, ErrorCode, NotLeaderOrFollower
from penstock.ports import Buffer, FileRange
from penstock.raft.control import observe_voters, whole_batches
from penstock.raft.leader import Leader, ParkedFetch
from penstock.raft.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, LogPoint
from penstock.raft.ready import STAYS_OUT, QuorumViolation
from penstock.raft.recovery import Recovering
from penstock.raft.roles import Follower, LeaderContact, Unattached

__all__ = ["Replication"]


class Replication(Recovering):
    """The log's side of a node."""

    __slots__ = ()

    # -- as the leader

    def append(self, batches: bytearray) -> int:
        """Append as the leader; the first record's offset. Committed once the high watermark is past it."""
        if not isinstance(self.role, Leader):
            raise NotLeaderOrFollower(f"node {self.key.id} does not lead epoch {self.epoch}")
        base_offset = self.log.append(batches, self.epoch)
        observe_voters(self.history, batches)
        return base_offset

    def flushed(self, end_offset: int, now_ms: float) -> None:
        """Everything in the log below `end_offset` is on the disk."""
        self._now_ms = now_ms
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.log.end_offset))

    def _on_fetch(self, token: Hashable, request: FetchRequest) -> None:
        error = ErrorCode.INVALID_REQUEST
        if request.offset >= 0 and 0 <= request.last_epoch <= request.epoch and request.max_wait_ms >= 0:
            self._give_way(request)
            error = self._refusal_as_leader(request.epoch)
        if error != ErrorCode.NONE:
            self._reply(token, FetchResponse(error, self.epoch, self.leader_id))
            return
        assert isinstance(self.role, Leader)
        self._void_acknowledgements(request.replica)
        replica = self.role.replica(request.replica, self.voters, self._now_ms)
        if self._parting(request) is None:
            replica.fetched(request.offset, self.log.end_offset, self._now_ms)
        else:
            replica.contact_ms = self._now_ms
        self.role.parked[token] = ParkedFetch(request, self._now_ms + request.max_wait_ms)

    def _give_way(self, request: FetchRequest) -> None:
        """End the epoch if somebody outside is ahead of it: a voter that was removed while it stood.

        It cannot go back, and follows nobody until all are where it is. Of a voter that is ahead the leader
        hears when it tells it who leads; this one is told nothing any more.
        """
        if self.is_leader and request.epoch > self.epoch and not self.voters.has(request.replica):
            self._become_unattached(request.epoch)
            # Nobody else is standing, and this log has everything.
            self._deadline_ms = self._now_ms + self._jitter()

    def _refusal_as_leader(self, epoch: int) -> ErrorCode:
        """Why what was asked of the leader of `epoch` is not for this node."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _parting(self, request: FetchRequest) -> FetchResponse | None:
        """What to tell a follower whose log is not a prefix of this one; None where it is."""
        log, snapshot = self.log, self.log.snapshot
        answer = self._fetch_answer()
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
        """Whether what the follower lacks, or has last, is older than what is left of the log."""
        start = self.log.start_offset
        if request.offset < start or request.offset == 0:
            return True
        return request.offset == start and LogPoint(request.last_epoch, start) != snapshot

    def _answer_fetches(self) -> None:
        """Answer every fetch that there is something to tell, or that has waited long enough."""
        assert isinstance(self.role, Leader)
        end_offset, high_watermark = self.log.end_offset, self.high_watermark
        for token, (request, deadline_ms) in list(self.role.parked.items()):
            news = request.offset != end_offset or request.high_watermark < high_watermark
            if news or self._now_ms >= deadline_ms:
                del self.role.parked[token]
                self._reply(token, self._parting(request) or self._records_for(request))

    def _records_for(self, request: FetchRequest) -> FetchResponse:
        return self._fetch_answer()._replace(records=self.log.read(request.offset, request.max_bytes))

    def _fetch_answer(self) -> FetchResponse:
        return FetchResponse(
            ErrorCode.NONE, self.epoch, self.leader_id, self.high_watermark, self.log.start_offset
        )

    def _commit(self) -> None:
        """Move the high watermark to where a majority's disks are."""
        assert isinstance(self.role, Leader)
        end_offset = self.role.majority_end_offset(self.voters, self.key, self.flushed_offset)
        if end_offset > self.high_watermark and self.role.may_commit(end_offset):
            self.high_watermark = end_offset

    # -- as a follower

    def _on_fetch_response(self, peer: int, request: FetchRequest, response: FetchResponse) -> None:
        if request is not self._fetch:
            return
        self._fetch = None
        self._fetch_ms = self._now_ms + self.config.retry_ms
        self._observe(response.epoch, response.leader_id)
        if not self._is_from_leader(peer, request.epoch, response.epoch):
            if peer == self.leader_id and response.epoch < self.epoch:
                # Its disk was wiped, or went back: it does not know that it led.
                self._leader_left(self._backoff())
            self._after_probe()
        elif response.error == ErrorCode.NONE:
            try:
                self._take_fetched(request, response)
            except CorruptMessage:
                return  # damaged on the way: asked for again
            self._leader_answered()
        elif response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._leader_left(self._backoff())

    def _is_from_leader(self, peer: int, request_epoch: int, response_epoch: int) -> bool:
        """Whether an answer is one of this epoch's leader to a question asked in this epoch."""
        if not isinstance(self.role, Follower) or peer != self.role.leader_id:
            return False
        return request_epoch == response_epoch == self.epoch

    def _after_probe(self) -> None:
        if isinstance(self.role, Follower) and self.role.probing:
            self.role.probing = False
            self._fetch_ms = self._now_ms

    def _leader_answered(self) -> None:
        assert isinstance(self.role, Follower)
        self.role.has_fetched = True
        self.contact = LeaderContact(self.leader_id, self._now_ms)
        self.role.probing = False
        self._losses = 0
        self._deadline_ms = self._now_ms + self.config.fetch_timeout_ms
        self._fetch_ms = self._now_ms

    def _leader_left(self, delay_ms: float) -> None:
        """The leader of this epoch is no more, as far as anybody can tell: stand after `delay_ms`."""
        self._gone.add(self.leader_id)
        if isinstance(self.role, Follower) and self.may_stand:
            self._deadline_ms = min(self._deadline_ms, self._now_ms + delay_ms)

    def _take_fetched(self, request: FetchRequest, response: FetchResponse) -> None:
        assert isinstance(self.role, Follower) and request.offset == self.log.end_offset
        if response.diverging is not None:
            self._truncate(self._common_end(response.diverging))
        elif response.snapshot is not None:
            self.role.snapshot, self.role.snapshot_bytes = response.snapshot, 0
        else:
            assert not isinstance(response.records, FileRange)
            self.role.matches = True
            self._append_replicated(response.records)
            self._learn_high_watermark(response.high_watermark)
            self._leader_told(response.high_watermark)

    def _append_replicated(self, records: Buffer) -> None:
        size = 0
        for header, batch in whole_batches(records):
            if header.leader_epoch > self.epoch:
                raise CorruptMessage(f"a batch of epoch {header.leader_epoch} in epoch {self.epoch}")
            size += len(batch)
        if size:
            whole = memoryview(records)[:size]
            self.log.append_replicated(whole)
            observe_voters(self.history, whole)

    def _learn_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log.end_offset))

    def _common_end(self, diverging: LogPoint) -> int:
        """Where to cut: the leader's end of the epoch, or ours if we have less of it."""
        ours = self.log.end_offset_for_epoch(diverging.epoch)
        if ours.epoch == diverging.epoch:
            return min(ours.offset, diverging.offset)
        return max(ours.offset, self.log.start_offset)

    def _truncate(self, offset: int) -> None:
        if offset < self.high_watermark:
            raise QuorumViolation(
                f"the leader of epoch {self.epoch}, node {self.leader_id}, lacks committed records: its log "
                f"parts from this one at offset {offset}, here offsets below {self.high_watermark} are "
                f"committed. Most likely a majority of the voters went back to older data. {STAYS_OUT}"
            )
        self.log.truncate_to(offset)
        end_offset = self.log.end_offset
        self.history.truncate_to(end_offset)
        self.flushed_offset = min(self.flushed_offset, end_offset)
        if self._truncated_to is None or end_offset < self._truncated_to:
            self._truncated_to = end_offset

    def _fetch_more(self) -> None:
        """Ask for what follows, or who leads: one question at a time, with all so far on the disk."""
        role = self.role
        if not isinstance(role, Follower | Unattached) or self._fetch is not None:
            return
        if self._now_ms < self._fetch_ms or not self._all_flushed():
            return
        following = isinstance(role, Follower) and not role.probing
        others = [voter.key.id for voter in self.voters.others(self.key.id)]
        if isinstance(role, Follower) and following:
            node = role.leader_id
        elif others:
            node = others[int(self._rng.uniform(0, len(others))) % len(others)]
        else:
            self._fetch_ms = self._now_ms + self.config.retry_ms
            return
        self._fetch = self._next_fetch(following)
        self._send(node, self._fetch)

    def _all_flushed(self) -> bool:
        return self.flushed_offset >= self.log.end_offset

    def _next_fetch(self, following: bool) -> FetchRequest | FetchSnapshotRequest:
        end, role = self.log_end, self.role
        # One that has not answered yet is to do so at once, so that this node knows that it leads.
        waits = following and isinstance(role, Follower) and role.has_fetched
        unsure = following and isinstance(role, Follower) and not role.matches
        return FetchRequest(
            self._fetch_key,
            self.epoch,
            end.offset,
            end.epoch,
            self.config.fetch_max_wait_ms if waits else 0,
            self.config.fetch_max_bytes,
            self.high_watermark,
            self.log.checksum_before(end.offset) if unsure else -1,
        )

    def _on_fetch_failure(self, peer: int) -> None:
        """No answer: ask again a little later, and somebody else, who may know of a new leader."""
        self._fetch = None
        self._fetch_ms = self._now_ms + self.config.retry_ms
        if isinstance(self.role, Follower):
            self.role.probing = peer == self.role.leader_id
