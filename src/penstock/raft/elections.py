"""Elections: pre-vote, vote, the beginning and the end of an epoch (KIP-595, KIP-996).

A vote is given once per epoch, to a log that lacks nothing of ours, and is on the disk before it is sent. A
pre-vote promises nothing and changes nothing: it asks whether a majority would vote, and voters that hear
from a leader say no. Believing a leader gone (`peer_gone`) only makes a voter ask, and say yes, sooner.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from penstock.model.errors import ErrorCode
from penstock.raft.control import leader_change_batch
from penstock.raft.leader import Leader
from penstock.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    EndEpochRequest,
    EpochResponse,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.roles import Follower, Nominee, Resigned
from penstock.raft.snapshots import Snapshots

__all__ = ["Elections"]


class Elections(Snapshots):
    """The voter's side of a node."""

    __slots__ = ()

    # -- voting

    def _on_vote(self, token: Hashable, request: VoteRequest) -> None:
        self._hear_of_log(request)
        error = self._refusal_of_vote(request)
        granted = False
        if error == ErrorCode.NONE and request.pre_vote:
            granted = self._may_give_vote(request) and self._would_vote(request)
        elif error == ErrorCode.NONE:
            if request.epoch > self.epoch:
                self._become_unattached(request.epoch)
            granted = (
                self._may_give_vote(request)
                and self._may_vote(request.candidate)
                and self._lacks_nothing(request)
            )
            if granted:
                self._become_unattached(request.epoch, voted=request.candidate)
                self._found_cluster()
        self._reply(token, VoteResponse(error, self.epoch, self.leader_id, granted))

    def _refusal_of_vote(self, request: VoteRequest) -> ErrorCode:
        newest = request.epoch if request.pre_vote else request.epoch - 1
        if not 0 <= request.log_end.epoch <= newest or request.log_end.offset < 0:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE if self._is_me(request.voter) else ErrorCode.INVALID_VOTER_KEY

    def _would_vote(self, request: VoteRequest) -> bool:
        if isinstance(self.role, Leader) or self._trusts_leader() or self._goes_first(request):
            return False
        return self._lacks_nothing(request)

    def _trusts_leader(self) -> bool:
        """Whether this node hears from its leader, so that an election would only disturb."""
        role = self.role
        if not isinstance(role, Follower) or not role.has_fetched or role.leader_id in self._gone:
            return False
        return self._now_ms - self.contact.at_ms < self.config.trust_ms

    def _goes_first(self, request: VoteRequest) -> bool:
        """Whether this node asks for pre-votes just now, with as good a log: of two, one has to go on alone.

        Followers of a silent leader time out together. Each would promise the other its vote, and then give
        it to itself. Only once: who has lost a round may not be heard by others.
        """
        role = self.role
        if not isinstance(role, Nominee) or not role.pre_vote or self._losses:
            return False
        if request.log_end != self.log_end:
            return False
        return self.key.id < request.candidate.id

    def _may_vote(self, candidate: ReplicaKey) -> bool:
        """Whether this epoch's vote is still to be had, or was the candidate's before."""
        return self.leader_id == NO_NODE and self.state.voted in (None, candidate)

    def _lacks_nothing(self, request: VoteRequest) -> bool:
        """Whether the candidate's log has all that ours has, and so all that may be committed."""
        return request.log_end >= self.log_end

    # -- standing

    def _stand(self) -> None:
        """Ask whether a majority would vote for this node."""
        self._enter(Nominee(True, self._now_ms + self.config.retry_ms), self._election_deadline())
        self._ask_for_votes()
        self._count_votes()

    def _become_candidate(self) -> None:
        self.state = self.state._replace(epoch=self.epoch + 1, leader_id=NO_NODE, voted=self.key)
        self._enter(Nominee(False, self._now_ms + self.config.retry_ms), self._election_deadline())
        self._ask_for_votes()
        self._count_votes()

    def _ask_for_votes(self) -> None:
        """Ask those who have not answered yet."""
        role = self.role
        assert isinstance(role, Nominee)
        for voter in self.voters.others(self.key.id):
            if voter.key.id not in role.granted and voter.key.id not in role.rejected:
                request = VoteRequest(self.key, self.epoch, self.log_end, role.pre_vote, voter.key)
                self._send(voter.key.id, request)

    def _on_vote_response(self, peer: int, request: VoteRequest, response: VoteResponse) -> None:
        self._hear_of_epoch(peer, response)
        self._observe(response.epoch, response.leader_id)
        role = self.role
        if not isinstance(role, Nominee) or role.pre_vote != request.pre_vote or request.epoch != self.epoch:
            return
        if response.granted and response.error == ErrorCode.NONE:
            role.granted.add(peer)
        else:
            role.rejected.add(peer)
        silent_ms = self._now_ms - self.contact.at_ms
        if peer in role.rejected and peer == self.leader_id and silent_ms < self.config.check_quorum_ms:
            # It lives and leads on: there is nothing more to ask, unless it goes on saying nothing else.
            self._lose(role)
        else:
            self._count_votes()

    def _count_votes(self) -> None:
        role, voters = self.role, self.voters
        assert isinstance(role, Nominee)
        others = {voter.key.id for voter in voters.others(self.key.id)}
        granted = self.is_voter + len(others & role.granted)
        # Nobody waits for the dead once somebody has said no.
        rejected = len(others & (role.rejected | self._gone - role.granted)) if role.rejected else 0
        if granted >= voters.majority:
            if role.pre_vote:
                if granted == len(voters) or not self._awaits_older_voters():
                    self._become_candidate()
            else:
                self._become_leader(role)
        elif rejected > len(voters) - voters.majority:
            self._lose(role)

    def _awaits_older_voters(self) -> bool:
        """Returns true while a voter that has records could still show itself to a majority of new disks."""
        return self.is_fresh and self._now_ms - self._started_ms < self.config.election_timeout_ms

    def _lose(self, role: Nominee) -> None:
        """A prospective goes back to where it was, a candidate waits a little and asks again."""
        self._losses += 1
        if not role.pre_vote:
            self._deadline_ms = min(self._deadline_ms, self._now_ms + self._backoff())
        elif self.leader_id not in (NO_NODE, self.key.id):
            self._become_follower(self.epoch, self.leader_id)
        else:
            self._become_unattached(self.epoch, self.state.voted)
            self._deadline_ms = self._now_ms + self._backoff()

    # -- leading

    def _become_leader(self, role: Nominee) -> None:
        self.state = self.state._replace(leader_id=self.key.id)
        self._found_cluster()
        self._losses = 0
        self._enter(Leader(self.log.end_offset, self._now_ms), inf)
        granted = {voter.key.id for voter in self.voters if voter.key.id in role.granted} | {self.key.id}
        self.append(leader_change_batch(self.key.id, self.epoch, self.voters, granted, int(self._now_ms)))
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Tell every voter that has not fetched for a while who leads."""
        role = self.role
        assert isinstance(role, Leader)
        patience_ms = self.config.begin_epoch_ms
        for voter in self.voters.others(self.key.id):
            last_fetch_ms = role.replica(voter.key, self.voters, self._now_ms).last_fetch_ms
            if last_fetch_ms < 0 or self._now_ms - last_fetch_ms >= patience_ms:
                self._send(voter.key.id, BeginEpochRequest(self.key.id, self.epoch, voter.key))
        role.begin_ms = self._now_ms + patience_ms

    def _on_begin_epoch(self, token: Hashable, request: BeginEpochRequest) -> None:
        error = ErrorCode.NONE
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not self._is_me(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            if (request.epoch, request.leader_id) != (self.epoch, self.leader_id):
                # One that leads on may be deaf: only its answers show that it is not.
                self._heard(request.leader_id)
            self._observe(request.epoch, request.leader_id)
            if isinstance(self.role, Nominee) and self.leader_id == request.leader_id:
                self._become_follower(self.epoch, request.leader_id)
        self._reply(token, EpochResponse(error, self.epoch, self.leader_id))

    # -- leaving

    def resign(self, now_ms: float) -> None:
        """Give up leadership, if this node has it, and tell the others so that they elect another at once."""
        self._now_ms = now_ms
        if isinstance(self.role, Leader):
            self._become_resigned(self.role)

    def _on_end_epoch(self, token: Hashable, request: EndEpochRequest) -> None:
        error = ErrorCode.NONE
        if request.epoch < self.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        else:
            self._observe(request.epoch, request.leader_id)
            if self.leader_id == request.leader_id:
                self._leader_left(self._turn(request.successors))
        self._reply(token, EpochResponse(error, self.epoch, self.leader_id))

    def _turn(self, successors: tuple[ReplicaKey, ...]) -> float:
        """How long to leave the field to better successors."""
        for position, key in enumerate(successors):
            if self._is_me(key):
                return position * self.config.gone_jitter_ms
        return self.config.backoff_max_ms

    def _on_epoch_response(self, peer: int, response: EpochResponse) -> None:
        self._observe(response.epoch, response.leader_id)
        role = self.role
        if not isinstance(role, Resigned) or response.epoch != self.epoch:
            return
        role.unacknowledged.discard(peer)
        told = len(role.successors) - len(role.unacknowledged)
        if told >= self.voters.majority and not self.may_stand:
            # Whoever was voted out is not told by the next leader: it looks for it once there may be one.
            self._deadline_ms = min(self._deadline_ms, self._now_ms + self.config.gone_jitter_ms)

    def peer_gone(self, node: int, now_ms: float) -> None:
        """`node` refused a connection, so its process is probably dead. A hint: wrong ones do no harm."""
        self._now_ms = now_ms
        self._gone.add(node)
        if isinstance(self.role, Follower) and self.role.leader_id == node:
            self._leader_left(self._backoff())
        elif isinstance(self.role, Nominee):
            self._count_votes()
