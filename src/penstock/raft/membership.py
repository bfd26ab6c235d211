"""Changes of the voter set, one voter at a time (KIP-853).

A change is a voters record in the log. The leader accepts one only when it has committed a record of its own
epoch and no earlier change is open, so any two voter sets that could both elect a leader overlap.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.raft.control import voters_batch
from penstock.raft.leader import Leader, VoterChange
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
    VoterChangeResponse,
)
from penstock.raft.quorum import Quorum
from penstock.raft.voters import VoterSet

__all__ = ["Membership"]

#: a new voter must have had everything at some time, and have fetched within the last hour (as in Kafka)
_CAUGHT_UP_MS: Final = 3_600_000
_KRAFT_VERSION: Final = 1


class Membership:
    """Changes the voter set, as the leader."""

    __slots__ = ("_leading", "_quorum")

    def __init__(self, quorum: Quorum, leading: LeaderReplication) -> None:
        self._quorum = quorum
        self._leading = leading

    def on_add_voter(self, token: Hashable, request: AddVoterRequest) -> None:
        quorum = self._quorum
        voter = request.voter
        if voter.key.id < 0 or voter.key.directory_id == NO_DIRECTORY or not voter.endpoints:
            self._answer(
                token, ErrorCode.INVALID_REQUEST, "a new voter needs an id, a directory id and endpoints"
            )
        elif not self._is_ready_for_change(token, quorum.epoch):
            return
        elif quorum.voters.get(voter.key.id) is not None:
            self._answer(token, ErrorCode.DUPLICATE_VOTER, f"node {voter.key.id} is already a voter")
        elif not self._speaks(voter):
            self._answer(token, ErrorCode.INVALID_REQUEST, f"node {voter.key.id} is too old")
        elif not self._has_caught_up(voter):
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.id} has not caught up")
        else:
            self._change(token, quorum.voters.with_voter(voter))
            if not request.ack_when_committed:
                self._answer_change(ErrorCode.NONE)

    def on_remove_voter(self, token: Hashable, request: RemoveVoterRequest) -> None:
        quorum = self._quorum
        if not self._is_ready_for_change(token, quorum.epoch):
            return
        if not quorum.voters.has(request.voter) or self._is_elsewhere(request.voter):
            self._answer(
                token,
                ErrorCode.VOTER_NOT_FOUND,
                f"node {request.voter.id} is not a voter with this directory id",
            )
        elif len(quorum.voters) == 1:
            self._answer(token, ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
        else:
            self._change(token, quorum.voters.without(request.voter.id))

    def _is_elsewhere(self, key: ReplicaKey) -> bool:
        """Whether a voter without a directory in the voter set has named another directory than `key` has."""
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        nameless = ReplicaKey(key.id)
        if key == nameless or nameless not in (voter.key for voter in quorum.voters):
            return False
        if key.id == quorum.key.id:
            return key != quorum.key
        replica = quorum.role.replicas.get(nameless)
        return replica is not None and replica.seen_as not in (nameless, key)

    def on_update_voter(self, token: Hashable, request: UpdateVoterRequest) -> None:
        quorum = self._quorum
        voter = request.voter
        if not self._is_ready_for_change(token, request.epoch):
            return
        if not self._speaks(voter) or not voter.endpoints:
            self._answer(token, ErrorCode.INVALID_REQUEST, f"node {voter.key.id} cannot be a voter")
        elif not quorum.voters.has(voter.key):
            self._answer(
                token, ErrorCode.VOTER_NOT_FOUND, f"node {voter.key.id} is not a voter with this directory id"
            )
        elif quorum.voters.get(voter.key.id) == voter:
            self._answer(token, ErrorCode.NONE, "")
        else:
            self._change(token, quorum.voters.with_voter(voter))

    def _speaks(self, voter: Voter) -> bool:
        return voter.kraft_version_min <= _KRAFT_VERSION <= voter.kraft_version_max

    def _has_caught_up(self, voter: Voter) -> bool:
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        replica = quorum.role.replicas.get(voter.key)
        if replica is None or replica.caught_up_ms < 0:
            return False
        return quorum.now_ms - replica.last_fetch_ms < _CAUGHT_UP_MS

    def _is_ready_for_change(self, token: Hashable, epoch: int) -> bool:
        """Whether a change may start; if not, the request is answered with the reason."""
        quorum = self._quorum
        error = self._leading.refusal(epoch)
        if error != ErrorCode.NONE:
            self._answer(token, error, "")
        elif not self._has_committed_in_epoch():
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed its epoch yet")
        elif quorum.history.latest_offset >= quorum.high_watermark:
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, "an earlier change is not committed yet")
        else:
            return True
        return False

    def _has_committed_in_epoch(self) -> bool:
        quorum = self._quorum
        return isinstance(quorum.role, Leader) and quorum.role.may_commit(quorum.high_watermark)

    def _change(self, token: Hashable, voters: VoterSet) -> None:
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        first = quorum.history.latest_offset < 0
        self._leading.append(voters_batch(voters, int(quorum.now_ms), first=first))
        deadline_ms = quorum.now_ms + quorum.config.request_timeout_ms
        quorum.role.change = VoterChange(token, quorum.history.latest_offset, deadline_ms)

    def record_directories(self) -> None:
        """Record the directories of static voters in the log, as soon as they are known.

        Until then a voter on a wiped disk cannot be distinguished from the voter that it was. The node ids
        stay the same, so any two majorities still overlap. Endpoints stay those of the configuration.
        """
        quorum = self._quorum
        voters = quorum.voters
        if voters.names_directories or len(voters) == 1 or not self._has_committed_in_epoch():
            return
        assert isinstance(quorum.role, Leader)
        if quorum.role.change is not None or quorum.history.latest_offset >= quorum.high_watermark:
            return
        keys = {voter.key.id: self._seen_key(voter.key) for voter in voters}
        if all(keys[voter.key.id] == voter.key for voter in voters):
            return
        first = quorum.history.latest_offset < 0
        named = VoterSet(
            voter._replace(key=keys[voter.key.id], endpoints=() if first else voter.endpoints)
            for voter in voters
        )
        self._leading.append(voters_batch(named, int(quorum.now_ms), first=first))
        for voter in voters:
            quorum.role.rename(voter.key, keys[voter.key.id])

    def _seen_key(self, key: ReplicaKey) -> ReplicaKey:
        """The key of a voter with the directory that it has fetched under, if it has fetched."""
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        if key.directory_id != NO_DIRECTORY:
            return key
        if key.id == quorum.key.id:
            return quorum.key
        replica = quorum.role.replicas.get(key)
        return key if replica is None else replica.seen_as

    def settle_change(self) -> None:
        """Answer a change that is committed or has timed out; resign once this node is removed."""
        quorum = self._quorum
        role = quorum.role
        assert isinstance(role, Leader)
        if role.change is not None:
            if role.change.offset < quorum.high_watermark:
                self._answer_change(ErrorCode.NONE)
            elif quorum.now_ms >= role.change.deadline_ms:
                self._answer_change(ErrorCode.REQUEST_TIMED_OUT)
        if not quorum.is_voter and quorum.history.latest_offset < quorum.high_watermark:
            quorum.become_resigned(role)

    def _answer_change(self, error: ErrorCode) -> None:
        quorum = self._quorum
        assert isinstance(quorum.role, Leader) and quorum.role.change is not None
        self._answer(quorum.role.change.token, error, "")
        quorum.role.change = None

    def _answer(self, token: Hashable, error: ErrorCode, message: str) -> None:
        quorum = self._quorum
        quorum.outbox.reply(token, VoterChangeResponse(error, quorum.epoch, quorum.leader_id, message))
