"""The consensus core: one node of the metadata quorum, as a pure state machine.

The driver's contract. One event at a time: `tick`, `request`, `response`, `failure`, `append`, `flushed`,
`peer_gone`, `resign`, `snapshot_taken`; then `take`, and in this order:

1. `save`, if there is one, is written and synced (`state.encode_quorum_state`).
2. `messages` are sent and `replies` answered. Nothing may leave before 1. A message that gets an answer is
   handed back with it (`response`); one that gets none, for whatever reason, is a `failure`, also when a
   connection was refused, which is a `peer_gone` as well. Fetches may be answered after `max_wait_ms`.
3. If `flush`, the log is synced, without anybody waiting, and `flushed` says how far. A follower fetches on
   only then, so what it acknowledges is on its disk. Truncating while a flush is under way voids it.
4. What is below `high_watermark` is applied; `installed` and `truncated_to` come before that.
5. `tick` is called at `deadline_ms`, or later.

Before the node is made: the log is open and synced, the quorum state is read (an unreadable one stops the
process), and the voters in the log and its snapshot are in the history (`control.observe_voters`). The first
`tick` starts it; a quorum of one leads from there at once. Times are of one clock that never runs backwards.
A `QuorumViolation` from any call means that the node must stop: what it would do next could lose records.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import NamedTuple

from penstock.raft.leader import Leader
from penstock.raft.membership import Membership
from penstock.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    BeginEpochRequest,
    EndEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.ready import Ready
from penstock.raft.roles import Follower, Nominee, Resigned

__all__ = ["QuorumDescription", "RaftNode", "ReplicaDescription"]


class ReplicaDescription(NamedTuple):
    """What DescribeQuorum tells of a replica; -1 for what is not known."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: float
    last_caught_up_ms: float


class QuorumDescription(NamedTuple):
    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaDescription]
    observers: list[ReplicaDescription]


class RaftNode(Membership):
    """A voter or an observer; which, the voter set decides."""

    __slots__ = ()

    # -- events

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        self._now_ms = now_ms
        role = self.role
        if isinstance(role, Leader):
            contact_ms = role.majority_contact_ms(self.voters, self.key, now_ms)
            if now_ms - contact_ms >= self.config.check_quorum_ms:
                self._become_resigned(role)
            elif now_ms >= role.begin_ms:
                role.forget_observers(self.voters, now_ms)
                self._begin_epoch()
        elif now_ms >= self._deadline_ms:
            self._expire()
        elif isinstance(role, Nominee | Resigned) and now_ms >= role.resend_ms:
            role.resend_ms = now_ms + self.config.retry_ms
            if isinstance(role, Nominee):
                self._ask_for_votes()
                self._count_votes()
            else:
                self._send_end_epoch()

    def _expire(self) -> None:
        """The role's time is over."""
        role = self.role
        if isinstance(role, Resigned):
            # Whoever leads next does so in a later epoch; in this one nobody can any more.
            self._become_unattached(self.epoch + 1)
        if not self.may_stand:
            self._fetch = None
            self._deadline_ms = self._now_ms + self.config.fetch_timeout_ms
            if isinstance(role, Follower):
                role.probing = True
        elif isinstance(role, Nominee) and role.pre_vote:
            self._lose(role)
        else:
            if isinstance(role, Follower):
                # Nobody waits for its vote, either.
                self._gone.add(role.leader_id)
            self._stand()

    def request(self, token: Hashable, request: Request, now_ms: float) -> None:
        """A peer asks; the answer is among the `replies`, perhaps much later, by `token`."""
        self._now_ms = now_ms
        match request:
            case FetchRequest():
                self._heard(request.replica.id)
                self._on_fetch(token, request)
            case FetchSnapshotRequest():
                self._heard(request.replica.id)
                self._on_fetch_snapshot(token, request)
            case VoteRequest():
                self._heard(request.candidate.id)
                self._on_vote(token, request)
            case BeginEpochRequest():
                self._on_begin_epoch(token, request)
            case EndEpochRequest():
                self._on_end_epoch(token, request)
            case AddVoterRequest():
                self._on_add_voter(token, request)
            case RemoveVoterRequest():
                self._on_remove_voter(token, request)
            case UpdateVoterRequest():
                self._on_update_voter(token, request)

    def response(self, peer: int, request: Request, response: Response, now_ms: float) -> None:
        """`peer` has answered `request`, which this node sent."""
        self._now_ms = now_ms
        self._heard(peer)
        match request, response:
            case FetchRequest(), FetchResponse():
                self._on_fetch_response(peer, request, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._on_fetch_snapshot_response(peer, request, response)
            case VoteRequest(), VoteResponse():
                self._on_vote_response(peer, request, response)
            case _, EpochResponse():
                self._on_epoch_response(peer, response)

    def failure(self, peer: int, request: Request, now_ms: float) -> None:
        """`request` to `peer` will not be answered. Votes and epochs are sent again by themselves."""
        self._now_ms = now_ms
        if request is self._fetch:
            self._on_fetch_failure(peer)

    # -- consequences

    def take(self) -> Ready:
        """What follows from the events so far; each thing is given out once."""
        if isinstance(self.role, Leader):
            self._commit()
            self._settle_change()
            self._record_directories()
        if isinstance(self.role, Leader):
            self._answer_fetches()
        self._end_recovery()
        self._fetch_more()
        ready = Ready(
            save=self.state if self.state != self._saved else None,
            messages=self._messages,
            replies=self._replies,
            flush=not self._all_flushed(),
            high_watermark=self.high_watermark,
            epoch=self.epoch,
            leader_id=self.leader_id,
            truncated_to=self._truncated_to,
            installed=self._installed,
            voters=self.voters,
            deadline_ms=self._next_deadline(),
        )
        self._saved = self.state
        self._messages, self._replies = [], []
        self._truncated_to = self._installed = None
        return ready

    def _next_deadline(self) -> float:
        role = self.role
        if isinstance(role, Leader):
            contact_ms = role.majority_contact_ms(self.voters, self.key, self._now_ms)
            waiting = [fetch.deadline_ms for fetch in role.parked.values()]
            if role.change is not None:
                waiting.append(role.change.deadline_ms)
            quorum_ms = inf if self._is_only_voter() else contact_ms + self.config.check_quorum_ms
            return min(role.begin_ms, quorum_ms, *waiting)
        if isinstance(role, Nominee | Resigned):
            return min(self._deadline_ms, role.resend_ms)
        fetch_ms = self._fetch_ms if self._fetch is None and self._all_flushed() else inf
        return min(self._deadline_ms, max(fetch_ms, self._now_ms))

    # -- what can be asked

    @property
    def epoch_start_offset(self) -> int | None:
        """Where this leader's epoch starts; None if it does not lead."""
        return self.role.epoch_start_offset if isinstance(self.role, Leader) else None

    def describe(self, now_ms: float) -> QuorumDescription | None:
        """What DescribeQuorum answers; None if this node does not lead."""
        role = self.role
        if not isinstance(role, Leader):
            return None
        own = ReplicaDescription(self.key, self.log.end_offset, now_ms, now_ms)
        voters = [own if self._is_me(voter.key) else _describe(role, voter.key) for voter in self.voters]
        observers = [
            _describe(role, key)
            for key in sorted(role.replicas)
            # Without a directory: as a voter of the beginning was known, until it was removed.
            if not self.voters.has(key) and key.directory_id != NO_DIRECTORY
        ]
        return QuorumDescription(self.leader_id, self.epoch, self.high_watermark, voters, observers)


def _describe(role: Leader, key: ReplicaKey) -> ReplicaDescription:
    replica = role.replicas.get(key)
    if replica is None:
        return ReplicaDescription(key, -1, -1, -1)
    key = replica.seen_as
    return ReplicaDescription(key, replica.end_offset, replica.last_fetch_ms, replica.caught_up_ms)
