"""Elections: pre-vote, vote, the beginning and the end of an epoch (KIP-595, KIP-996).

A node votes once per epoch, for a log that has everything that its own has, and the vote is on the disk
before it is sent. A pre-vote promises nothing and changes nothing: it finds out whether a majority would
vote, and voters whose leader answers them refuse it. A hint that a leader is gone (`peer_gone`) only makes a
voter stand, and grant pre-votes, sooner.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from penstock.model.errors import ErrorCode
from penstock.raft.control import leader_change_batch
from penstock.raft.follower_replication import FollowerReplication
from penstock.raft.leader import Leader
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    EndEpochRequest,
    EpochResponse,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.quorum import Quorum
from penstock.raft.recovery import LogRecovery
from penstock.raft.roles import Follower, Nominee, Resigned
from penstock.raft.unanimity import Unanimity

__all__ = ["Elections"]


class Elections:
    """Votes, stands for election, and starts and ends epochs."""

    __slots__ = ("_following", "_leading", "_quorum", "_recovery", "_unanimity")

    def __init__(
        self,
        quorum: Quorum,
        recovery: LogRecovery,
        leading: LeaderReplication,
        following: FollowerReplication,
    ) -> None:
        self._quorum = quorum
        self._recovery = recovery
        self._leading = leading
        self._following = following
        self._unanimity = Unanimity(quorum)

    # -- voting

    def on_vote(self, token: Hashable, request: VoteRequest) -> None:
        quorum = self._quorum
        self._recovery.note_log(request)
        error = self._refusal_of_vote(request)
        granted = False
        conditional = error == ErrorCode.NONE and quorum.has_forgotten and self._votes_conditionally(request)
        if quorum.has_forgotten:
            pass
        elif error == ErrorCode.NONE and request.pre_vote:
            granted = self._recovery.may_vote_for(request) and self._would_vote(request)
        elif error == ErrorCode.NONE:
            if request.epoch > quorum.epoch:
                quorum.become_unattached(request.epoch)
            granted = (
                self._recovery.may_vote_for(request)
                and self._may_vote(request.candidate)
                and self._lacks_nothing(request)
            )
            if granted:
                quorum.become_unattached(request.epoch, voted=request.candidate)
                self._recovery.cluster_founded()
        response = VoteResponse(error, quorum.epoch, quorum.leader_id, granted, conditional)
        quorum.outbox.reply(token, response)

    def _votes_conditionally(self, request: VoteRequest) -> bool:
        """The vote, or pre-vote, of a voter that has forgotten its votes."""
        quorum = self._quorum
        if request.pre_vote:
            granted = quorum.electorate.has(quorum.key) and self._would_vote(request)
            if granted:
                self._unanimity.would_vote(request)
            return granted
        if request.epoch > quorum.epoch:
            quorum.become_unattached(request.epoch)
        granted = (
            self._unanimity.may_vote(request)
            and self._may_vote(request.candidate)
            and self._lacks_nothing(request)
        )
        if granted:
            quorum.become_unattached(request.epoch, voted=request.candidate)
        return granted

    def _refusal_of_vote(self, request: VoteRequest) -> ErrorCode:
        quorum = self._quorum
        newest = request.epoch if request.pre_vote else request.epoch - 1
        if not 0 <= request.log_end.epoch <= newest or request.log_end.offset < 0:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE if quorum.is_own_key(request.voter) else ErrorCode.INVALID_VOTER_KEY

    def _would_vote(self, request: VoteRequest) -> bool:
        if isinstance(self._quorum.role, Leader) or self._trusts_leader() or self._goes_first(request):
            return False
        return self._lacks_nothing(request)

    def _trusts_leader(self) -> bool:
        """Whether the leader answers this node, so that an election would only disturb."""
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Follower) or not role.has_fetched or role.leader_id in quorum.gone:
            return False
        return quorum.now_ms - quorum.contact.at_ms < quorum.config.trust_ms

    def _goes_first(self, request: VoteRequest) -> bool:
        """Whether this node requests pre-votes itself, with an equal log and the lower id.

        Followers of a silent leader time out together. Each would grant the other its pre-vote, and then vote
        for itself, so one of two has to wait. This holds for the first round only: after a lost round, other
        nodes may not hear this one.
        """
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Nominee) or not role.pre_vote or quorum.losses:
            return False
        if request.log_end != quorum.log_end:
            return False
        return quorum.key.id < request.candidate.id

    def _may_vote(self, candidate: ReplicaKey) -> bool:
        """Whether this node has not voted in this epoch, or has voted for the candidate."""
        quorum = self._quorum
        return quorum.leader_id == NO_NODE and quorum.state.voted in (None, candidate)

    def _lacks_nothing(self, request: VoteRequest) -> bool:
        """Whether the candidate's log has everything that this one has, and so everything committed."""
        return request.log_end >= self._quorum.log_end

    # -- standing

    def stand(self) -> None:
        """Find out by pre-votes whether a majority would vote for this node."""
        quorum = self._quorum
        quorum.enter(Nominee(True, quorum.now_ms + quorum.config.retry_ms), quorum.election_deadline())
        self.request_votes()
        self.count_votes()

    def _become_candidate(self, *, unanimous: bool = False) -> None:
        quorum = self._quorum
        epoch = self._unanimity.next_epoch() if unanimous else quorum.epoch + 1
        quorum.state = quorum.state._replace(epoch=epoch, leader_id=NO_NODE, voted=quorum.key)
        role = Nominee(False, quorum.now_ms + quorum.config.retry_ms, unanimous=unanimous)
        quorum.enter(role, quorum.election_deadline())
        self.request_votes()
        self.count_votes()

    def request_votes(self) -> None:
        """Send Vote to the voters that have not answered yet."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Nominee)
        is_regular = not (role.unanimous or role.conditional or quorum.has_forgotten)
        voters = quorum.voters if is_regular else quorum.electorate
        for voter in voters.others(quorum.key.id):
            if voter.key.id not in role.granted | role.rejected | role.conditional:
                request = VoteRequest(quorum.key, quorum.epoch, quorum.log_end, role.pre_vote, voter.key)
                quorum.outbox.send(voter.key.id, request)

    def on_vote_response(self, peer: int, request: VoteRequest, response: VoteResponse) -> None:
        quorum = self._quorum
        self._recovery.note_epoch(peer, response)
        quorum.observe(response.epoch, response.leader_id)
        role = quorum.role
        if (
            not isinstance(role, Nominee)
            or role.pre_vote != request.pre_vote
            or request.epoch != quorum.epoch
        ):
            return
        if response.granted and response.error == ErrorCode.NONE:
            role.granted.add(peer)
        elif response.conditional and response.error == ErrorCode.NONE:
            role.conditional.add(peer)
        else:
            role.rejected.add(peer)
        silent_ms = quorum.now_ms - quorum.contact.at_ms
        leads = peer == quorum.leader_id == response.leader_id
        if peer in role.rejected and leads and silent_ms < quorum.config.check_quorum_ms:
            # The leader lives. Only one that has not answered fetches for long is voted out all the same.
            # One that names another leader, or none, has lost its disk: it does not lead any more.
            self.lose(role)
        else:
            self.count_votes()

    def count_votes(self) -> None:
        quorum = self._quorum
        role, voters = quorum.role, quorum.voters
        assert isinstance(role, Nominee)
        others = {voter.key.id for voter in voters.others(quorum.key.id)}
        forgetful = len(others & role.conditional) + quorum.has_forgotten
        granted = quorum.is_voter - quorum.has_forgotten + len(others & role.granted)
        # After a first refusal, voters that are gone count as refusals.
        gone = quorum.gone - role.granted - role.conditional if role.rejected else set()
        rejected = len(others & (role.rejected | gone))
        if granted >= voters.majority and not quorum.has_forgotten and not role.unanimous:
            if not role.pre_vote:
                self._become_leader(role)
            elif granted == len(voters) or not self._awaits_older_voters():
                self._become_candidate()
        elif self._unanimity.is_won(role) and (role.pre_vote or role.unanimous):
            if role.pre_vote:
                self._become_candidate(unanimous=True)
            else:
                self._become_leader(role)
        elif rejected and (role.unanimous or rejected + forgetful > len(voters) - voters.majority):
            self.lose(role)

    def _awaits_older_voters(self) -> bool:
        """Returns true while a voter that has records may still appear before a majority of new disks."""
        quorum = self._quorum
        return quorum.is_fresh and quorum.now_ms - quorum.started_ms < quorum.config.election_timeout_ms

    def lose(self, role: Nominee) -> None:
        """A prospective returns to its former role; a candidate stands again after a backoff."""
        quorum = self._quorum
        quorum.losses += 1
        if not role.pre_vote:
            quorum.deadline_ms = min(quorum.deadline_ms, quorum.now_ms + quorum.backoff())
        elif quorum.leader_id not in (NO_NODE, quorum.key.id):
            quorum.become_follower(quorum.epoch, quorum.leader_id)
        else:
            quorum.become_unattached(quorum.epoch, quorum.state.voted)
            quorum.deadline_ms = quorum.now_ms + quorum.backoff()

    # -- leading

    def _become_leader(self, role: Nominee) -> None:
        quorum = self._quorum
        quorum.state = quorum.state._replace(leader_id=quorum.key.id)
        if role.unanimous:
            quorum.votes_again()
        self._recovery.cluster_founded()
        quorum.losses = 0
        votes = role.granted | role.conditional
        quorum.enter(Leader(quorum.log.end_offset, quorum.now_ms, frozenset(votes)), inf)
        granted = {voter.key.id for voter in quorum.voters if voter.key.id in votes} | {quorum.key.id}
        batch = leader_change_batch(quorum.key.id, quorum.epoch, quorum.voters, granted, int(quorum.now_ms))
        self._leading.append(batch)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Send BeginQuorumEpoch to every voter that has not fetched for a while."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader)
        patience_ms = quorum.config.begin_epoch_ms
        for voter in quorum.voters.others(quorum.key.id):
            last_fetch_ms = role.replica(voter.key, quorum.voters, quorum.now_ms).last_fetch_ms
            if last_fetch_ms < 0 or quorum.now_ms - last_fetch_ms >= patience_ms:
                quorum.outbox.send(voter.key.id, BeginEpochRequest(quorum.key.id, quorum.epoch, voter.key))
        role.begin_ms = quorum.now_ms + patience_ms

    def on_begin_epoch(self, token: Hashable, request: BeginEpochRequest) -> None:
        quorum = self._quorum
        error = ErrorCode.NONE
        if request.epoch < quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not quorum.is_own_key(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            if (request.epoch, request.leader_id) != (quorum.epoch, quorum.leader_id):
                # A leader that sends but does not answer stays gone: only a new leader undoes the hint.
                quorum.gone.discard(request.leader_id)
            quorum.observe(request.epoch, request.leader_id)
            if isinstance(quorum.role, Nominee) and quorum.leader_id == request.leader_id:
                quorum.become_follower(quorum.epoch, request.leader_id)
        quorum.outbox.reply(token, EpochResponse(error, quorum.epoch, quorum.leader_id))

    # -- leaving

    def on_end_epoch(self, token: Hashable, request: EndEpochRequest) -> None:
        quorum = self._quorum
        error = ErrorCode.NONE
        if request.epoch < quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            quorum.observe(request.epoch, request.leader_id)
            if quorum.leader_id == request.leader_id:
                self._following.leader_left(self._turn(request.successors))
        quorum.outbox.reply(token, EpochResponse(error, quorum.epoch, quorum.leader_id))

    def _turn(self, successors: tuple[ReplicaKey, ...]) -> float:
        """How long to wait for the successors that the leader prefers to this node."""
        quorum = self._quorum
        for position, key in enumerate(successors):
            if quorum.is_own_key(key):
                return position * quorum.config.gone_jitter_ms
        return quorum.config.backoff_max_ms

    def on_epoch_response(self, peer: int, response: EpochResponse) -> None:
        quorum = self._quorum
        quorum.observe(response.epoch, response.leader_id)
        role = quorum.role
        if not isinstance(role, Resigned) or response.epoch != quorum.epoch:
            return
        role.unacknowledged.discard(peer)
        acknowledged = len(role.successors) - len(role.unacknowledged)
        if acknowledged >= quorum.voters.majority and not quorum.may_stand:
            # A removed voter gets no BeginQuorumEpoch: it looks for the next leader by itself.
            quorum.deadline_ms = min(quorum.deadline_ms, quorum.now_ms + quorum.config.gone_jitter_ms)

    def peer_gone(self, node: int) -> None:
        """`node` refused a connection, so its process is probably dead. A wrong hint does no harm."""
        quorum = self._quorum
        quorum.gone.add(node)
        if isinstance(quorum.role, Follower) and quorum.role.leader_id == node:
            self._following.leader_left(quorum.backoff())
        elif isinstance(quorum.role, Nominee):
            self.count_votes()
