"""The simulation can find what it looks for: with each guard taken away, an invariant breaks soon.

A guard is a small method of the core, or a duty of the driver. `python -m tests.raft.test_mutations` prints
the table of what breaks, and after how many seeds.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.leader import Leader
from penstock.raft.messages import FetchRequest, FetchResponse, LogPoint, ReplicaKey, VoteRequest
from penstock.raft.node import RaftNode
from penstock.raft.ready import QuorumViolation
from penstock.raft.roles import Role
from tests.raft.invariants import ViolatedInvariant
from tests.raft.simulation import Simulation

SEEDS_MAX = 300
STEPS = 40


class VotesTwice(RaftNode):
    """Gives its vote to everybody who asks."""

    __slots__ = ()

    def _may_vote(self, candidate: ReplicaKey) -> bool:
        return True


class VotesForAnyLog(RaftNode):
    """Does not compare logs."""

    __slots__ = ()

    def _lacks_nothing(self, request: VoteRequest) -> bool:
        return True


class LeadsOnAfterRestart(RaftNode):
    """Takes its old epoch up again, with what is left of its log."""

    __slots__ = ()

    def _first_role(self) -> Role:
        if self.leader_id == self.key.id:
            return Leader(self.log.end_offset, self._now_ms)
        return super()._first_role()


class FetchesBeforeFlush(RaftNode):
    """Acknowledges what is not on its disk."""

    __slots__ = ()

    def _fetch_more(self) -> None:
        flushed, self.flushed_offset = self.flushed_offset, self.log.end_offset
        super()._fetch_more()
        self.flushed_offset = flushed


class CountsItsUnflushed(RaftNode):
    """A leader whose own records count before they are on its disk."""

    __slots__ = ()

    def _commit(self) -> None:
        flushed, self.flushed_offset = self.flushed_offset, self.log.end_offset
        super()._commit()
        self.flushed_offset = flushed


class CommitsOldEpochs(RaftNode):
    """Commits by counting replicas of another leader's records (Raft, figure 8)."""

    __slots__ = ()

    def _commit(self) -> None:
        assert isinstance(self.role, Leader)
        end_offset = self.role.majority_end_offset(self.voters, self.key, self.flushed_offset)
        self.high_watermark = max(self.high_watermark, end_offset)


class CommitsAlone(RaftNode):
    """Needs no majority."""

    __slots__ = ()

    def _commit(self) -> None:
        self.high_watermark = max(self.high_watermark, self.flushed_offset)


class ServesAnyFetch(RaftNode):
    """Does not compare epochs: every follower's log is a prefix of its own."""

    __slots__ = ()

    def _parting(self, request: FetchRequest) -> None:
        return None


class BelievesBeforeMatching(RaftNode):
    """Takes the leader's high watermark for its own while their logs still part."""

    __slots__ = ()

    def _take_fetched(self, request: FetchRequest, response: FetchResponse) -> None:
        self._learn_high_watermark(response.high_watermark)
        super()._take_fetched(request, response)


class CutsToOwnEnd(RaftNode):
    """Cuts nothing where it knows the epoch, though the leader has less of it."""

    __slots__ = ()

    def _common_end(self, diverging: LogPoint) -> int:
        return self.log.end_offset_for_epoch(diverging.epoch).offset


class PreVoteMovesEpochs(RaftNode):
    """Takes a pre-vote's epoch for its own."""

    __slots__ = ()

    def _on_vote(self, token: Hashable, request: VoteRequest) -> None:
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch)
        super()._on_vote(token, request)


class ChangesVotersAtOnce(RaftNode):
    """Does not wait for the commit of an earlier change."""

    __slots__ = ()

    def _is_ready_for_change(self, token: Hashable, epoch: int) -> bool:
        if self._refusal_as_leader(epoch) == ErrorCode.NONE:
            return True
        return super()._is_ready_for_change(token, epoch)


_LIVENESS = "a leader, and writes, after healing"
#: a rule that breaks without each guard
MUTATIONS: dict[type[RaftNode], str] = {
    VotesTwice: "one vote per voter and epoch",
    VotesForAnyLog: "leader completeness",
    LeadsOnAfterRestart: "(offset, epoch) names one record",
    FetchesBeforeFlush: "high watermark <= the flushed end of a majority",
    CountsItsUnflushed: "high watermark <= the flushed end of a majority",
    CommitsOldEpochs: "commits past a record of its own epoch",
    CommitsAlone: "high watermark <= the flushed end of a majority",
    ServesAnyFetch: "log matching",
    BelievesBeforeMatching: "lacks committed records",
    CutsToOwnEnd: _LIVENESS,
    PreVoteMovesEpochs: "pre-vote changes nothing",
    ChangesVotersAtOnce: "leader completeness",
}


def seeds_to_break(rule: str, core: type[RaftNode], *, saves_first: bool = True) -> int | None:
    """How many seeds it takes until one breaks `rule`; None if that are too many."""
    for seed in range(SEEDS_MAX):
        simulation = Simulation(seed, nodes=3 + seed % 3, voters=3, core=core)
        simulation.saves_first = saves_first
        try:
            simulation.run_chaos(STEPS)
            if rule == _LIVENESS:
                simulation.heal()
        except (ViolatedInvariant, QuorumViolation) as e:
            if rule in str(e):
                return seed + 1
    return None


@pytest.mark.parametrize(
    ("core", "rule"), MUTATIONS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_the_simulation_finds_what_goes_wrong_without_a_guard(core: type[RaftNode], rule: str) -> None:
    assert seeds_to_break(rule, core) is not None


def test_the_simulation_finds_votes_that_were_not_on_the_disk() -> None:
    assert seeds_to_break("one vote per voter and epoch", RaftNode, saves_first=False) is not None


if __name__ == "__main__":
    for mutated, broken in MUTATIONS.items():
        print(f"{mutated.__name__:24} {seeds_to_break(broken, mutated):4} {broken}")
    broken = MUTATIONS[VotesTwice]
    print(f"{'(driver saves nothing)':24} {seeds_to_break(broken, RaftNode, saves_first=False):4} {broken}")
