"""The consensus core: one node of the metadata quorum, as a pure state machine.

The driver's contract. One event at a time: `tick`, `request`, `response`, `failure`, `append`, `flushed`,
`peer_gone`, `resign`, `snapshot_taken`; then `take`, and in this order:

1. `save`, if there is one, is written and synced (`state.encode_quorum_state`).
2. `messages` are sent and `replies` answered, never before 1. The answer to a message comes back as
   `response`; a message without an answer is a `failure`, and after a refused connection a `peer_gone` as
   well. Fetches may be answered after `max_wait_ms`.
3. If `flush`, the log is synced in the background, and `flushed` reports how far. A follower fetches again
   only then, so everything that it acknowledges is on its disk. A truncation voids a flush that is under way.
4. Records below `high_watermark` are applied; `installed` and `truncated_to` come before that.
5. `tick` is called at `deadline_ms`, or later.

Before the node is made: the log is open and synced, the quorum state is read (an unreadable one stops the
process), and the voters in the log and its snapshot are in the history (`control.observe_voters`). The first
`tick` starts it; a quorum of one leads from there at once. Times are of one clock that never runs backwards.
After a `QuorumViolation` from any call the node must stop: its next step could lose records.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import NamedTuple

from penstock.ports import Rng
from penstock.raft.elections import Elections
from penstock.raft.follower_replication import FollowerReplication
from penstock.raft.leader import Leader
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.log import RaftLog
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
    LogPoint,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.quorum import Quorum
from penstock.raft.ready import Outbox, RaftConfig, Ready
from penstock.raft.recovery import LogRecovery
from penstock.raft.roles import Follower, Nominee, Resigned
from penstock.raft.snapshots import SnapshotTransfer
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterHistory

__all__ = ["QuorumDescription", "RaftNode", "ReplicaDescription"]


class ReplicaDescription(NamedTuple):
    """A replica as DescribeQuorum shows it; -1 stands for an unknown value."""

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


class RaftNode:
    """A voter or an observer, depending on the voter set."""

    __slots__ = (
        "_elections",
        "_following",
        "_leading",
        "_membership",
        "_recovery",
        "_saved",
        "_snapshots",
        "quorum",
    )

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        state: QuorumState,
        history: VoterHistory,
        rng: Rng,
        now_ms: float,
    ) -> None:
        self.quorum = quorum = Quorum(config, log, state, history, rng, now_ms)
        self._saved = state
        self._recovery = LogRecovery(quorum)
        self._leading = LeaderReplication(quorum, self._recovery)
        self._following = FollowerReplication(quorum, self._recovery)
        self._snapshots = SnapshotTransfer(quorum, self._leading, self._following)
        self._elections = Elections(quorum, self._recovery, self._leading, self._following)
        self._membership = Membership(quorum, self._leading)

    # -- events

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        quorum = self.quorum
        quorum.now_ms = now_ms
        role = quorum.role
        if isinstance(role, Leader):
            contact_ms = role.majority_contact_ms(quorum.voters, quorum.key, now_ms)
            if now_ms - contact_ms >= quorum.config.check_quorum_ms:
                quorum.become_resigned(role)
            elif now_ms >= role.begin_ms:
                role.forget_observers(quorum.voters, now_ms)
                self._elections.begin_epoch()
        elif now_ms >= quorum.deadline_ms:
            self._expire()
        elif isinstance(role, Nominee | Resigned) and now_ms >= role.resend_ms:
            role.resend_ms = now_ms + quorum.config.retry_ms
            if isinstance(role, Nominee):
                self._elections.request_votes()
                self._elections.count_votes()
            else:
                quorum.send_end_epoch()

    def _expire(self) -> None:
        """The role's deadline has passed."""
        quorum = self.quorum
        role = quorum.role
        if isinstance(role, Resigned):
            # The next leader has a later epoch; this one can have none any more.
            quorum.become_unattached(quorum.epoch + 1)
        if not quorum.may_stand:
            quorum.pending_fetch = None
            quorum.deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms
            if isinstance(role, Follower):
                role.probing = True
        elif isinstance(role, Nominee) and role.pre_vote:
            self._elections.lose(role)
        else:
            if isinstance(role, Follower):
                # Its vote is not waited for, either.
                quorum.gone.add(role.leader_id)
            self._elections.stand()

    def request(self, token: Hashable, request: Request, now_ms: float) -> None:
        """A peer's request; the answer is among the `replies`, perhaps much later, with this `token`."""
        self.quorum.now_ms = now_ms
        match request:
            case FetchRequest():
                self.quorum.hears(request.replica.id)
                self._leading.on_fetch(token, request)
            case FetchSnapshotRequest():
                self.quorum.hears(request.replica.id)
                self._snapshots.on_fetch_snapshot(token, request)
            case VoteRequest():
                self.quorum.hears(request.candidate.id)
                self._elections.on_vote(token, request)
            case BeginEpochRequest():
                self._elections.on_begin_epoch(token, request)
            case EndEpochRequest():
                self._elections.on_end_epoch(token, request)
            case AddVoterRequest():
                self._membership.on_add_voter(token, request)
            case RemoveVoterRequest():
                self._membership.on_remove_voter(token, request)
            case UpdateVoterRequest():
                self._membership.on_update_voter(token, request)

    def response(self, peer: int, request: Request, response: Response, now_ms: float) -> None:
        """`peer` has answered `request`, which this node sent."""
        self.quorum.now_ms = now_ms
        self.quorum.hears(peer)
        match request, response:
            case FetchRequest(), FetchResponse():
                self._following.on_fetch_response(peer, request, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._snapshots.on_fetch_snapshot_response(peer, request, response)
            case VoteRequest(), VoteResponse():
                self._elections.on_vote_response(peer, request, response)
            case _, EpochResponse():
                self._elections.on_epoch_response(peer, response)

    def failure(self, peer: int, request: Request, now_ms: float) -> None:
        """`request` to `peer` will not be answered. Votes and epoch changes are sent again by themselves."""
        self.quorum.now_ms = now_ms
        if request is self.quorum.pending_fetch:
            self._following.on_fetch_failure(peer)

    def append(self, batches: bytearray) -> int:
        """Append as the leader. Returns the offset of the first record."""
        return self._leading.append(batches)

    def flushed(self, end_offset: int, now_ms: float) -> None:
        """Everything in the log below `end_offset` is on the disk."""
        quorum = self.quorum
        quorum.now_ms = now_ms
        quorum.flushed_offset = max(quorum.flushed_offset, min(end_offset, quorum.log.end_offset))

    def peer_gone(self, node: int, now_ms: float) -> None:
        """`node` refused a connection, so its process is probably dead. A wrong hint does no harm."""
        self.quorum.now_ms = now_ms
        self._elections.peer_gone(node)

    def resign(self, now_ms: float) -> None:
        """Give up leadership, if this node has it; the other voters elect a successor at once."""
        self.quorum.now_ms = now_ms
        if isinstance(self.quorum.role, Leader):
            self.quorum.become_resigned(self.quorum.role)

    def snapshot_taken(self, snapshot: LogPoint) -> None:
        """The driver has a snapshot on the disk; records below its end may be deleted.

        The snapshot names `history.at(snapshot.offset)` as the voters (`control.voters_batch`).
        """
        self._snapshots.taken(snapshot)

    # -- consequences

    def take(self) -> Ready:
        """The consequences of the events so far; each is returned once."""
        quorum = self.quorum
        if quorum.is_leader:
            self._leading.commit()
            self._membership.settle_change()
            self._membership.record_directories()
        if quorum.is_leader:
            self._leading.answer_fetches()
        self._recovery.finish()
        self._following.fetch_more()
        outbox, quorum.outbox = quorum.outbox, Outbox()
        ready = Ready(
            save=quorum.state if quorum.state != self._saved else None,
            messages=outbox.messages,
            replies=outbox.replies,
            flush=not quorum.is_flushed,
            high_watermark=quorum.high_watermark,
            epoch=quorum.epoch,
            leader_id=quorum.leader_id,
            truncated_to=outbox.truncated_to,
            installed=outbox.installed,
            voters=quorum.voters,
            deadline_ms=self.next_deadline_ms(),
        )
        self._saved = quorum.state
        return ready

    def next_deadline_ms(self) -> float:
        """When `tick` is due at the latest."""
        quorum = self.quorum
        role = quorum.role
        if isinstance(role, Leader):
            contact_ms = role.majority_contact_ms(quorum.voters, quorum.key, quorum.now_ms)
            waiting = [fetch.deadline_ms for fetch in role.parked.values()]
            if role.change is not None:
                waiting.append(role.change.deadline_ms)
            if quorum.is_only_voter:
                # Without observers there is no node to tell of the epoch, and none to forget.
                return min([role.begin_ms if role.replicas else inf, *waiting])
            return min(role.begin_ms, contact_ms + quorum.config.check_quorum_ms, *waiting)
        if isinstance(role, Nominee | Resigned):
            return min(quorum.deadline_ms, role.resend_ms)
        fetch_ms = quorum.next_fetch_ms if quorum.pending_fetch is None and quorum.is_flushed else inf
        return min(quorum.deadline_ms, max(fetch_ms, quorum.now_ms))

    # -- descriptions

    def has_heard(self, node: int) -> bool:
        """Returns true if this node leads, and `node` was in contact with it since."""
        role = self.quorum.role
        return isinstance(role, Leader) and role.has_heard(node)

    @property
    def epoch_start_offset(self) -> int | None:
        """Where this leader's epoch starts; None if it does not lead."""
        role = self.quorum.role
        return role.epoch_start_offset if isinstance(role, Leader) else None

    def describe(self, now_ms: float) -> QuorumDescription | None:
        """The answer to DescribeQuorum; None if this node does not lead."""
        quorum = self.quorum
        role = quorum.role
        if not isinstance(role, Leader):
            return None
        own = ReplicaDescription(quorum.key, quorum.log.end_offset, now_ms, now_ms)
        voters = [
            own if quorum.is_own_key(voter.key) else _describe(role, voter.key) for voter in quorum.voters
        ]
        observers = [
            _describe(role, key)
            for key in sorted(role.replicas)
            # Without a directory: a static voter before its removal.
            if not quorum.voters.has(key) and key.directory_id != NO_DIRECTORY
        ]
        return QuorumDescription(quorum.leader_id, quorum.epoch, quorum.high_watermark, voters, observers)


def _describe(role: Leader, key: ReplicaKey) -> ReplicaDescription:
    replica = role.replicas.get(key)
    if replica is None:
        return ReplicaDescription(key, -1, -1, -1)
    key = replica.seen_as
    return ReplicaDescription(key, replica.end_offset, replica.last_fetch_ms, replica.caught_up_ms)
