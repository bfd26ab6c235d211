"""Who a node is in its quorum: epoch, vote, leader and role, and how one becomes the other.

Invariants: the epoch never falls; in one epoch there is at most one vote and one leader, and neither changes
once it is set; every change of them is in `Ready.save` of the next `take`. Only the role knows time.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from penstock.model.errors import ErrorCode
from penstock.ports import Rng
from penstock.raft.leader import Leader
from penstock.raft.log import RaftLog
from penstock.raft.messages import (
    NO_DIRECTORY,
    NO_NODE,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    LogPoint,
    ReplicaKey,
    Request,
    Response,
    VoterChangeResponse,
)
from penstock.raft.ready import STAYS_OUT, Message, QuorumViolation, RaftConfig, Reply
from penstock.raft.roles import Follower, LeaderContact, Resigned, Role, Unattached
from penstock.raft.state import QuorumState, Recovery
from penstock.raft.voters import VoterHistory, VoterSet

__all__ = ["Quorum"]


class Quorum:
    """A node's place in the quorum, without what it says and hears."""

    __slots__ = (
        "_behind",
        "_cluster_exists",
        "_deadline_ms",
        "_fetch",
        "_fetch_ms",
        "_gone",
        "_installed",
        "_losses",
        "_messages",
        "_now_ms",
        "_recovery_end",
        "_replies",
        "_rng",
        "_saved",
        "_started_ms",
        "_truncated_to",
        "config",
        "contact",
        "flushed_offset",
        "high_watermark",
        "history",
        "log",
        "role",
        "state",
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
        self.config = config
        self.log = log
        self.history = history
        self.state = self._saved = state
        self._rng = rng
        self._now_ms = self._started_ms = now_ms
        #: everything below is committed, as far as this node knows; a snapshot holds committed records only
        self.high_watermark = max(
            log.snapshot.offset if log.snapshot is not None else log.start_offset, log.committed_offset
        )
        #: whether another replica has shown that it has records: then the cluster is not new
        self._cluster_exists = False
        #: voters that were last heard of in epochs below that of a committed record
        self._behind: set[int] = set()
        #: where recovery ends, once the leader has told it
        self._recovery_end: int | None = None
        #: everything below is on this node's disk; <= the log's end
        self.flushed_offset = log.end_offset
        #: nodes believed dead, or silent, or that said farewell: a hint, which their next message takes back
        self._gone: set[int] = set()
        #: elections lost in a row
        self._losses = 0
        #: the fetch that is not answered yet, and when the next may go out
        self._fetch: FetchRequest | FetchSnapshotRequest | None = None
        self._fetch_ms = now_ms
        self._messages: list[Message] = []
        self._replies: list[Reply] = []
        self._truncated_to: int | None = None
        self._installed: LogPoint | None = None
        self.role = self._first_role()
        #: with the leader of this epoch; where this node leads, with the one before it, if it followed that
        self.contact = LeaderContact(NO_NODE, now_ms)
        # Asking at once is harmless (pre-vote), and finds the leader or makes one without waiting.
        self._deadline_ms = now_ms + self._jitter()

    # -- who is who

    @property
    def key(self) -> ReplicaKey:
        return self.config.key

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        return self.state.leader_id

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.key)

    @property
    def is_recovering(self) -> bool:
        """Whether this replica may have lost records that it has acknowledged."""
        return self.state.recovery != Recovery.NONE

    @property
    def is_fresh(self) -> bool:
        """Whether this replica's disk is new, and the cluster is, too, as far as this replica knows."""
        return self.state.recovery == Recovery.NEW and self.log.end_offset == 0 and not self._cluster_exists

    @property
    def may_stand(self) -> bool:
        """Voters stand, and so does one whose removal may not be committed: its log may be the longest."""
        if self.is_recovering:
            return self.is_fresh and self.is_voter
        if self.is_voter:
            return True
        removed_at = self.history.latest_offset
        return removed_at >= self.high_watermark and self.history.at(removed_at).has(self.key)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def majority_gone(self) -> bool:
        """Whether no leader is known, and so many voters refused a connection that none can be elected."""
        if self.leader_id not in (NO_NODE, *self._gone):
            return False
        there = sum(voter.key.id not in self._gone for voter in self.voters)
        return there < self.voters.majority

    @property
    def log_end(self) -> LogPoint:
        return LogPoint(self.log.last_epoch, self.log.end_offset)

    def _is_me(self, key: ReplicaKey) -> bool:
        return key.id == self.key.id and key.directory_id in (NO_DIRECTORY, self.key.directory_id)

    # -- transitions

    def _first_role(self) -> Role:
        """A restarted leader has resigned: it may have lost records that it had numbered in its epoch."""
        if self.leader_id == self.key.id:
            return Resigned((), inf)
        return Unattached() if self.leader_id == NO_NODE else Follower(self.leader_id)

    def _enter(self, role: Role, deadline_ms: float) -> None:
        """Leave the role so far: what waits for a leader that is no more is told so."""
        left, self.role = self.role, role
        self._deadline_ms = deadline_ms
        self._fetch = None
        self._fetch_ms = self._now_ms
        if isinstance(left, Leader):
            self.contact = LeaderContact(NO_NODE, self._now_ms)
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            for token in left.parked:
                self._reply(token, FetchResponse(error, self.epoch, self.leader_id))
            if left.change is not None:
                self._reply(left.change.token, VoterChangeResponse(error, self.epoch, self.leader_id))

    def _become_unattached(self, epoch: int, voted: ReplicaKey | None = None) -> None:
        """Be in `epoch` without a leader, perhaps having voted."""
        assert epoch > self.epoch or (epoch == self.epoch and self.leader_id == NO_NODE)
        self.state = self.state._replace(epoch=epoch, leader_id=NO_NODE, voted=voted)
        self._enter(Unattached(), self._election_deadline())

    def _become_follower(self, epoch: int, leader_id: int) -> None:
        assert epoch >= self.epoch and leader_id != self.key.id
        is_another = (epoch, leader_id) != (self.epoch, self.leader_id)
        voted = self.state.voted if epoch == self.epoch else None
        self.state = self.state._replace(epoch=epoch, leader_id=leader_id, voted=voted)
        if leader_id in self._gone:
            deadline = self._now_ms + self._backoff()
        else:
            self._losses = 0
            deadline = self._now_ms + self.config.fetch_timeout_ms
        self._enter(Follower(leader_id), deadline)
        if is_another:
            self.contact = LeaderContact(leader_id, self._now_ms)

    def _become_resigned(self, role: Leader) -> None:
        """Give the epoch up, tell the others, and propose who should follow."""
        successors = role.successors(self.voters, self.key)
        self._enter(Resigned(successors, self._now_ms + self.config.retry_ms), self._election_deadline())
        self._send_end_epoch()

    def _send_end_epoch(self) -> None:
        assert isinstance(self.role, Resigned)
        request = EndEpochRequest(self.key.id, self.epoch, self.role.successors)
        for node in sorted(self.role.unacknowledged):
            self._send(node, request)

    def _observe(self, epoch: int, leader_id: int) -> None:
        """Somebody says who leads `epoch`; follow if that is news. Older epochs are nobody's news."""
        if leader_id == self.key.id:
            leader_id = NO_NODE
        if epoch > self.epoch:
            if leader_id == NO_NODE:
                self._become_unattached(epoch)
            else:
                self._become_follower(epoch, leader_id)
        elif epoch == self.epoch and leader_id != NO_NODE and leader_id != self.leader_id:
            if self.leader_id != NO_NODE:
                raise QuorumViolation(
                    f"{leader_id} and {self.leader_id} both lead epoch {epoch}. Most likely a majority of "
                    f"the voters went back to older data from before that epoch, and offsets below "
                    f"{self.high_watermark} are committed here. {STAYS_OUT}"
                )
            self._become_follower(epoch, leader_id)

    def _heard(self, node: int) -> None:
        self._gone.discard(node)

    # -- time

    def _is_only_voter(self) -> bool:
        return len(self.voters) == 1 and self.is_voter

    def _jitter(self) -> float:
        return 0 if self._is_only_voter() else self._rng.uniform(0, self.config.gone_jitter_ms)

    def _backoff(self) -> float:
        """Longer with each election lost, so that rivals part."""
        longest = min(self.config.gone_jitter_ms * 2 ** min(self._losses, 10), self.config.backoff_max_ms)
        return self._rng.uniform(0, longest)

    def _election_deadline(self) -> float:
        if self._is_only_voter():
            return self._now_ms
        timeout = self.config.election_timeout_ms
        return self._now_ms + timeout + self._rng.uniform(0, timeout)

    # -- outbox

    def _send(self, node: int, request: Request) -> None:
        self._messages.append(Message(node, request))

    def _reply(self, token: Hashable, response: Response) -> None:
        self._replies.append(Reply(token, response))
