"""Changing who votes, one voter at a time (KIP-853).

A change is a voters record in the log. It is taken on only when this leader has committed a record of its
own epoch and no earlier change is open: so any two voter sets that could both elect a leader overlap.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.raft.control import voters_batch
from penstock.raft.elections import Elections
from penstock.raft.leader import Leader, VoterChange
from penstock.raft.messages import (
    NO_DIRECTORY,
    AddVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
    VoterChangeResponse,
)
from penstock.raft.voters import VoterSet

__all__ = ["Membership"]

#: a new voter must have had everything at some time, and have fetched within the last hour (as in Kafka)
_CAUGHT_UP_MS: Final = 3_600_000
_KRAFT_VERSION: Final = 1


class Membership(Elections):
    """The voter set's side of a node."""

    __slots__ = ()

    def _on_add_voter(self, token: Hashable, request: AddVoterRequest) -> None:
        voter = request.voter
        if voter.key.id < 0 or voter.key.directory_id == NO_DIRECTORY or not voter.endpoints:
            self._answer(token, ErrorCode.INVALID_REQUEST, "a new voter has an id, a directory and endpoints")
        elif not self._is_ready_for_change(token, self.epoch):
            return
        elif self.voters.get(voter.key.id) is not None:
            self._answer(token, ErrorCode.DUPLICATE_VOTER, f"node {voter.key.id} votes already")
        elif not self._speaks(voter):
            self._answer(token, ErrorCode.INVALID_REQUEST, f"node {voter.key.id} is too old")
        elif not self._has_caught_up(voter):
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.id} has not caught up")
        else:
            self._change(token, self.voters.with_voter(voter))
            if not request.ack_when_committed:
                self._answer_change(ErrorCode.NONE)

    def _on_remove_voter(self, token: Hashable, request: RemoveVoterRequest) -> None:
        if not self._is_ready_for_change(token, self.epoch):
            return
        if not self.voters.has(request.voter) or self._is_elsewhere(request.voter):
            self._answer(token, ErrorCode.VOTER_NOT_FOUND, f"{request.voter.id} is no voter there")
        elif len(self.voters) == 1:
            self._answer(token, ErrorCode.INVALID_REQUEST, "the last voter cannot go")
        else:
            self._change(token, self.voters.without(request.voter.id))

    def _is_elsewhere(self, key: ReplicaKey) -> bool:
        """Whether a voter that the voter set has without its directory named another one than `key` does."""
        assert isinstance(self.role, Leader)
        nameless = ReplicaKey(key.id)
        if key == nameless or nameless not in (voter.key for voter in self.voters):
            return False
        if key.id == self.key.id:
            return key != self.key
        replica = self.role.replicas.get(nameless)
        return replica is not None and replica.seen_as not in (nameless, key)

    def _on_update_voter(self, token: Hashable, request: UpdateVoterRequest) -> None:
        voter = request.voter
        if not self._is_ready_for_change(token, request.epoch):
            return
        if not self._speaks(voter) or not voter.endpoints:
            self._answer(token, ErrorCode.INVALID_REQUEST, f"node {voter.key.id} cannot be a voter")
        elif not self.voters.has(voter.key):
            self._answer(token, ErrorCode.VOTER_NOT_FOUND, f"{voter.key.id} is no voter there")
        elif self.voters.get(voter.key.id) == voter:
            self._answer(token, ErrorCode.NONE, "")
        else:
            self._change(token, self.voters.with_voter(voter))

    def _speaks(self, voter: Voter) -> bool:
        return voter.kraft_version_min <= _KRAFT_VERSION <= voter.kraft_version_max

    def _has_caught_up(self, voter: Voter) -> bool:
        assert isinstance(self.role, Leader)
        replica = self.role.replicas.get(voter.key)
        if replica is None or replica.caught_up_ms < 0:
            return False
        return self._now_ms - replica.last_fetch_ms < _CAUGHT_UP_MS

    def _is_ready_for_change(self, token: Hashable, epoch: int) -> bool:
        """Whether a change may start; tells whoever asks why not."""
        error = self._refusal_as_leader(epoch)
        if error != ErrorCode.NONE:
            self._answer(token, error, "")
        elif not self._has_committed_in_epoch():
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed its epoch yet")
        elif self.history.latest_offset >= self.high_watermark:
            self._answer(token, ErrorCode.REQUEST_TIMED_OUT, "an earlier change is not committed yet")
        else:
            return True
        return False

    def _has_committed_in_epoch(self) -> bool:
        return isinstance(self.role, Leader) and self.role.may_commit(self.high_watermark)

    def _change(self, token: Hashable, voters: VoterSet) -> None:
        assert isinstance(self.role, Leader)
        first = self.history.latest_offset < 0
        self.append(voters_batch(voters, int(self._now_ms), first=first))
        deadline_ms = self._now_ms + self.config.request_timeout_ms
        self.role.change = VoterChange(token, self.history.latest_offset, deadline_ms)

    def _record_directories(self) -> None:
        """Have the log name the directories of static voters, as soon as they are known.

        Why: until then a voter on a wiped disk cannot be told from the voter that it was. The node ids stay
        the same, so any two majorities still overlap. Endpoints stay those of the configuration.
        """
        voters = self.voters
        if voters.names_directories or len(voters) == 1 or not self._has_committed_in_epoch():
            return
        assert isinstance(self.role, Leader)
        if self.role.change is not None or self.history.latest_offset >= self.high_watermark:
            return
        keys = {voter.key.id: self._seen_key(voter.key) for voter in voters}
        if all(keys[voter.key.id] == voter.key for voter in voters):
            return
        first = self.history.latest_offset < 0
        named = VoterSet(
            voter._replace(key=keys[voter.key.id], endpoints=() if first else voter.endpoints)
            for voter in voters
        )
        self.append(voters_batch(named, int(self._now_ms), first=first))
        for voter in voters:
            self.role.rename(voter.key, keys[voter.key.id])

    def _seen_key(self, key: ReplicaKey) -> ReplicaKey:
        """The key of a voter with the directory that the voter has named to this leader, if it has."""
        assert isinstance(self.role, Leader)
        if key.directory_id != NO_DIRECTORY:
            return key
        if key.id == self.key.id:
            return self.key
        replica = self.role.replicas.get(key)
        return key if replica is None else replica.seen_as

    def _settle_change(self) -> None:
        """Answer who waits for a change once it is committed, or has waited enough; leave if voted out."""
        role = self.role
        assert isinstance(role, Leader)
        if role.change is not None:
            if role.change.offset < self.high_watermark:
                self._answer_change(ErrorCode.NONE)
            elif self._now_ms >= role.change.deadline_ms:
                self._answer_change(ErrorCode.REQUEST_TIMED_OUT)
        if not self.is_voter and self.history.latest_offset < self.high_watermark:
            self._become_resigned(role)

    def _answer_change(self, error: ErrorCode) -> None:
        assert isinstance(self.role, Leader) and self.role.change is not None
        self._answer(self.role.change.token, error, "")
        self.role.change = None

    def _answer(self, token: Hashable, error: ErrorCode, message: str) -> None:
        self._reply(token, VoterChangeResponse(error, self.epoch, self.leader_id, message))
