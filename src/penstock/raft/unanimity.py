"""Elections with voters that have forgotten their votes: they need all voters, not a majority.

A voter whose `quorum-state` is lost, or older than its log, does not know in which epochs it has voted. If it
voted, or acknowledged records, in one of them again, two leaders could be elected by majorities that share
only this voter. It therefore does neither (`Recovery.FORGOTTEN`) until one of these holds:

- A majority that remembers its votes has elected a leader, and this replica has caught up. It then votes
  under a new voter key, under which it has promised nothing.
- All voters of the voter set have elected a leader together. Then no vote that was forgotten can have elected
  a leader that is unknown: every voter that could lead has just voted for this one.

A vote in such an election is conditional: it counts only together with the votes of all others. Its epoch
is above all epochs that any voter knows by a margin, so that no forgotten election had the same one.
`docs/adr/0066-unanimous-elections.md` has the argument.

Owned by: `Elections`.
"""

from __future__ import annotations

from typing import Final

from penstock.raft.messages import ReplicaKey, VoteRequest
from penstock.raft.quorum import Quorum
from penstock.raft.roles import Nominee
from penstock.raft.state import QuorumState, Recovery

__all__ = ["EPOCHS_SKIPPED", "Unanimity", "state_without_votes"]

#: A unanimous election skips at least so many epochs after the last known one, and at random up to twice as
#: many: elections that no disk remembers may have used the next ones.
EPOCHS_SKIPPED: Final = 1000


def state_without_votes(found: QuorumState | None, last_epoch: int, key: ReplicaKey) -> QuorumState:
    """The state of a voter whose votes are lost; `found` is an older one, `last_epoch` that of its log."""
    known = 0 if found is None else found.epoch
    return QuorumState(max(known, last_epoch), recovery=Recovery.FORGOTTEN, directory_id=key.directory_id)


class Unanimity:
    """Conditional votes: gives them, and counts them."""

    __slots__ = ("_announced", "_quorum")

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        #: the epoch of each candidate whose pre-vote this process has answered
        self._announced: dict[int, int] = {}

    # -- the voter

    def would_vote(self, request: VoteRequest) -> None:
        """This voter has given `request` a conditional pre-vote, and may vote in its election."""
        self._announced[request.candidate.id] = request.epoch

    def may_vote(self, request: VoteRequest) -> bool:
        """Whether this is the election that follows a pre-vote which this process has answered.

        Any other may be one from before the restart. The candidate requests votes after all pre-votes, so
        the votes of all others are younger than the restart of this voter.
        """
        announced = self._announced.get(request.candidate.id)
        return announced is not None and 0 <= request.epoch - announced - EPOCHS_SKIPPED < EPOCHS_SKIPPED

    # -- the candidate

    def is_won(self, role: Nominee) -> bool:
        """Whether all voters vote for this node, each with or without a condition."""
        quorum = self._quorum
        voters = quorum.electorate
        others = {voter.key.id for voter in voters.others(quorum.key.id)}
        return voters.has(quorum.key) and others <= role.granted | role.conditional

    def next_epoch(self) -> int:
        """The epoch of the next unanimous election."""
        return self._quorum.epoch + EPOCHS_SKIPPED + self._quorum.random_below(EPOCHS_SKIPPED)
