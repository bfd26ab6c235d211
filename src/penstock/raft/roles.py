"""The roles of a node and the state of each. The transitions are in `docs/internals/raft.md`.

A role is discarded when it ends. Epoch, vote and leader outlive it, in the `QuorumState`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from penstock.raft.leader import Leader
from penstock.raft.messages import LogPoint, ReplicaKey

__all__ = ["Follower", "LeaderContact", "Nominee", "Resigned", "Role", "Unattached"]


class LeaderContact(NamedTuple):
    """The last contact with the leader that a node followed last: a response, or BeginQuorumEpoch."""

    node: int
    at_ms: float


class Unattached:
    """Knows no leader of its epoch; may have voted in it."""

    __slots__ = ()
    name: Final = "unattached"


class Nominee:
    """Requests votes.

    As a prospective (pre-votes, which change nothing), or as the candidate of a new epoch.
    """

    __slots__ = ("conditional", "granted", "pre_vote", "rejected", "resend_ms", "unanimous")

    def __init__(self, pre_vote: bool, resend_ms: float, *, unanimous: bool = False) -> None:
        self.pre_vote = pre_vote
        #: whether this candidate needs all votes, and conditional ones count
        self.unanimous = unanimous
        self.granted: set[int] = set()
        self.conditional: set[int] = set()
        self.rejected: set[int] = set()
        #: when requests without a response are sent again
        self.resend_ms = resend_ms

    @property
    def name(self) -> str:
        return "prospective" if self.pre_vote else "candidate"


class Follower:
    """Fetches from the leader of its epoch; a voter or an observer."""

    __slots__ = ("has_fetched", "leader_id", "matches", "probing", "snapshot", "snapshot_bytes")
    name: Final = "follower"

    def __init__(self, leader_id: int) -> None:
        self.leader_id = leader_id
        #: whether the leader has answered: pre-votes are refused then, as long as it goes on
        self.has_fetched = False
        #: whether the leader has the very batch that this node's log ends with
        self.matches = False
        #: whether the next fetch goes to another voter, to learn of a new leader
        self.probing = False
        #: the snapshot that is being fetched, and how much of it is here
        self.snapshot: LogPoint | None = None
        self.snapshot_bytes = 0


class Resigned:
    """Led its epoch and never will again: it may have lost records that it had numbered."""

    __slots__ = ("resend_ms", "successors", "unacknowledged")
    name: Final = "resigned"

    def __init__(self, successors: tuple[ReplicaKey, ...], resend_ms: float) -> None:
        #: best first
        self.successors = successors
        #: voters that do not know yet
        self.unacknowledged = {key.id for key in successors}
        self.resend_ms = resend_ms


Role: TypeAlias = Unattached | Nominee | Leader | Follower | Resigned
