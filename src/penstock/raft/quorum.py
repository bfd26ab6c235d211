"""A node's place in the quorum: epoch, vote, leader and role, and the transitions between roles.

Invariants: the epoch never falls; an epoch has at most one vote and one leader, and neither changes once it
is set; every change of them is in `Ready.save` of the next `take`. Only the role depends on time.

`Quorum` is the state that replication, elections and membership share. It decides nothing about the log.
"""

from __future__ import annotations

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
    VoterChangeResponse,
)
from penstock.raft.ready import STAYS_OUT, Outbox, QuorumViolation, RaftConfig
from penstock.raft.roles import Follower, LeaderContact, Resigned, Role, Unattached
from penstock.raft.state import QuorumState, Recovery
from penstock.raft.voters import VoterHistory, VoterSet

__all__ = ["Quorum"]


class Quorum:
    """The state of one node of the quorum.

    Why it has more than 25 methods: elections, replication and membership share this state. Each method is
    one transition or one question about it.
    """

    __slots__ = (
        "_rng",
        "caught_up",
        "cluster_exists",
        "config",
        "contact",
        "deadline_ms",
        "flushed_offset",
        "gone",
        "heard",
        "high_watermark",
        "history",
        "log",
        "losses",
        "next_directory_id",
        "next_fetch_ms",
        "now_ms",
        "outbox",
        "pending_fetch",
        "role",
        "started_ms",
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
        self.state = state
        self._rng = rng
        #: the time of the last event, and of the start
        self.now_ms = self.started_ms = now_ms
        #: everything below is committed, as far as this node knows; a snapshot holds committed records only
        self.high_watermark = max(
            log.snapshot.offset if log.snapshot is not None else log.start_offset, log.committed_offset
        )
        #: whether another replica has records, or knows of a leader: then the cluster is not new
        self.cluster_exists = False
        #: whether a replica that has forgotten its votes has everything that its leader has committed
        self.caught_up = False
        #: the id that it votes under once it is removed from the voters
        self.next_directory_id = rng.token(16) if self.has_forgotten else NO_DIRECTORY
        #: everything below is on this node's disk; <= the log's end
        self.flushed_offset = log.end_offset
        #: nodes that seem dead, are silent or have resigned; a message from one of them removes it
        self.gone: set[int] = set()
        #: when each node last sent something
        self.heard: dict[int, float] = {}
        #: elections lost in a row
        self.losses = 0
        #: the fetch that is not answered yet, and when the next one may be sent
        self.pending_fetch: FetchRequest | FetchSnapshotRequest | None = None
        self.next_fetch_ms = now_ms
        self.outbox = Outbox()
        self.role = self._first_role()
        #: with the leader of this epoch; on a leader, with the leader that it followed before
        self.contact = LeaderContact(NO_NODE, now_ms)
        # A pre-vote is harmless: sent at once, it finds the leader or elects one without a wait.
        self.deadline_ms = now_ms + self.jitter()

    # -- identity

    @property
    def key(self) -> ReplicaKey:
        """The key that this replica votes under: that of its disk, unless its state has another one."""
        directory_id, key = self.state.directory_id, self.config.key
        return key if directory_id == NO_DIRECTORY else ReplicaKey(key.id, directory_id)

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
    def electorate(self) -> VoterSet:
        """The voters of the latest set, and of the last one that is known to be committed."""
        committed = self.history.at(self.high_watermark)
        if committed is self.voters:
            return committed
        return VoterSet([*(v for v in committed if self.voters.get(v.key.id) is None), *self.voters])

    @property
    def is_only_voter(self) -> bool:
        return len(self.voters) == 1 and self.is_voter

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_recovering(self) -> bool:
        """Whether this replica may have lost records that it has acknowledged."""
        return self.state.recovery != Recovery.NONE

    @property
    def has_forgotten(self) -> bool:
        """Whether this replica does not know in which epochs it has voted."""
        return self.state.recovery == Recovery.FORGOTTEN

    @property
    def follows_all(self) -> bool:
        """Whether a replica that has forgotten its votes follows the leader that all voters have elected.

        Its own vote for that leader was conditional, so all others have voted for it, too.
        """
        voted = self.state.voted
        return self.has_forgotten and voted is not None and voted.id == self.leader_id

    @property
    def is_fresh(self) -> bool:
        """Whether this replica's disk is new, and the cluster is, too, as far as this replica knows."""
        return self.state.recovery == Recovery.NEW and self.log.end_offset == 0 and not self.cluster_exists

    @property
    def may_stand(self) -> bool:
        """Whether this node may stand for election.

        Voters may. A voter whose removal may not be committed may, too: its log can be the longest.
        """
        if self.is_recovering:
            return self.electorate.has(self.key) if self.has_forgotten else self.is_fresh and self.is_voter
        if self.is_voter:
            return True
        removed_at = self.history.latest_offset
        return removed_at >= self.high_watermark and self.history.at(removed_at).has(self.key)

    @property
    def majority_gone(self) -> bool:
        """Whether no leader is known, and so many voters refused a connection that none can be elected."""
        if self.leader_id not in (NO_NODE, *self.gone):
            return False
        there = sum(voter.key.id not in self.gone for voter in self.voters)
        return there < self.voters.majority

    @property
    def log_end(self) -> LogPoint:
        return LogPoint(self.log.last_epoch, self.log.end_offset)

    @property
    def is_flushed(self) -> bool:
        """Whether the whole log is on the disk."""
        return self.flushed_offset >= self.log.end_offset

    def is_own_key(self, key: ReplicaKey) -> bool:
        return key.id == self.key.id and key.directory_id in (NO_DIRECTORY, self.key.directory_id)

    def hears(self, node: int) -> None:
        """`node` has sent something: its process is alive."""
        self.gone.discard(node)
        self.heard[node] = self.now_ms

    # -- transitions

    def _first_role(self) -> Role:
        """A restarted leader has resigned: it may have lost records of its epoch that it had numbered."""
        if self.leader_id == self.key.id:
            return Resigned((), inf)
        return Unattached() if self.leader_id == NO_NODE else Follower(self.leader_id)

    def enter(self, role: Role, deadline_ms: float) -> None:
        """Replace the role. A leader that ends answers the requests that waited for it."""
        left, self.role = self.role, role
        self.deadline_ms = deadline_ms
        self.pending_fetch = None
        self.next_fetch_ms = self.now_ms
        if isinstance(left, Leader):
            self.contact = LeaderContact(NO_NODE, self.now_ms)
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            for token in left.parked:
                self.outbox.reply(token, FetchResponse(error, self.epoch, self.leader_id))
            if left.change is not None:
                response = VoterChangeResponse(error, self.epoch, self.leader_id)
                self.outbox.reply(left.change.token, response)

    def become_unattached(self, epoch: int, voted: ReplicaKey | None = None) -> None:
        """Enter `epoch` without a leader; `voted` is the vote of this node in it."""
        assert epoch > self.epoch or (epoch == self.epoch and self.leader_id == NO_NODE)
        self.state = self.state._replace(epoch=epoch, leader_id=NO_NODE, voted=voted)
        self.enter(Unattached(), self.election_deadline())

    def become_follower(self, epoch: int, leader_id: int) -> None:
        assert epoch >= self.epoch and leader_id != self.key.id
        is_another = (epoch, leader_id) != (self.epoch, self.leader_id)
        voted = self.state.voted if epoch == self.epoch else None
        self.state = self.state._replace(epoch=epoch, leader_id=leader_id, voted=voted)
        if leader_id in self.gone:
            deadline = self.now_ms + self.backoff()
        else:
            self.losses = 0
            deadline = self.now_ms + self.config.fetch_timeout_ms
        self.enter(Follower(leader_id), deadline)
        if is_another:
            self.contact = LeaderContact(leader_id, self.now_ms)

    def votes_again(self) -> None:
        """All voters have voted in this epoch, this replica included: what it has forgotten is void."""
        self.state = self.state._replace(recovery=Recovery.NONE, recover_to=0)

    def become_resigned(self, role: Leader) -> None:
        """Give the epoch up, and send the other voters a list of successors."""
        successors = role.successors(self.voters, self.key)
        self.enter(Resigned(successors, self.now_ms + self.config.retry_ms), self.election_deadline())
        self.send_end_epoch()

    def send_end_epoch(self) -> None:
        assert isinstance(self.role, Resigned)
        request = EndEpochRequest(self.key.id, self.epoch, self.role.successors)
        for node in sorted(self.role.unacknowledged):
            self.outbox.send(node, request)

    def observe(self, epoch: int, leader_id: int) -> None:
        """Follow the leader that a peer's message names, if it is new. Older epochs change no role."""
        if leader_id != NO_NODE:
            # Leaders start their epoch with a record, this node too if its disk has been replaced since.
            self.cluster_exists = True
        if leader_id == self.key.id:
            leader_id = NO_NODE
        if epoch > self.epoch:
            if leader_id == NO_NODE:
                self.become_unattached(epoch)
            else:
                self.become_follower(epoch, leader_id)
        elif epoch == self.epoch and leader_id != NO_NODE and leader_id != self.leader_id:
            if self.leader_id != NO_NODE:
                raise QuorumViolation(
                    f"{leader_id} and {self.leader_id} both lead epoch {epoch}. Most likely a majority of "
                    f"the voters went back to older data from before that epoch, and offsets below "
                    f"{self.high_watermark} are committed here. {STAYS_OUT}"
                )
            self.become_follower(epoch, leader_id)

    # -- time

    def jitter(self) -> float:
        return 0 if self.is_only_voter else self._rng.uniform(0, self.config.gone_jitter_ms)

    def backoff(self) -> float:
        """A random delay that grows with each lost election, so that two candidates do not tie for ever."""
        longest = min(self.config.gone_jitter_ms * 2 ** min(self.losses, 10), self.config.backoff_max_ms)
        return self._rng.uniform(0, longest)

    def election_deadline(self) -> float:
        if self.is_only_voter:
            return self.now_ms
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout + self._rng.uniform(0, timeout)

    def random_voter(self) -> int | None:
        """Another voter; None if there is none."""
        others = [voter.key.id for voter in self.voters.others(self.key.id)]
        return others[self.random_below(len(others))] if others else None

    def random_below(self, limit: int) -> int:
        """A random number from 0 to before `limit`."""
        return int(self._rng.uniform(0, limit)) % limit
