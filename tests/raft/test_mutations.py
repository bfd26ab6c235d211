"""The simulation can find what it looks for: with each guard taken away, an invariant breaks soon.

A guard is a small method of the core, or a duty of the driver. `python -m tests.raft.test_mutations` prints
the table of the rules that break, and the first seed that breaks each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple
from unittest import mock

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.elections import Elections
from penstock.raft.follower_replication import FollowerReplication
from penstock.raft.leader import Leader
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.membership import Membership
from penstock.raft.messages import FetchRequest, FetchResponse, LogPoint, VoteRequest
from penstock.raft.quorum import Quorum
from penstock.raft.ready import QuorumViolation
from penstock.raft.roles import Role
from tests.amounts import known_first
from tests.raft.invariants import ViolatedInvariant
from tests.raft.simulation import Simulation

SEEDS_MAX = 300
STEPS = 40
#: the seed that found votes that were not on the disk when this was written
UNSAVED_FOUND_BY = 96
_LIVENESS = "a leader, and writes, after healing"


class Mutation(NamedTuple):
    """A guard of the core, what replaces it, and a rule that breaks without it."""

    owner: type
    method: str
    replacement: Callable[..., Any]
    rule: str
    found_by: int = 0
    """The seed that broke the rule when this was written."""


_first_role, _fetch_more, _commit = (
    Quorum._first_role,
    FollowerReplication.fetch_more,
    LeaderReplication.commit,
)
_take_fetched, _on_vote = FollowerReplication._take_fetched, Elections.on_vote
_is_ready_for_change = Membership._is_ready_for_change


def lead_on_after_restart(self: Quorum) -> Role:
    """Takes its old epoch up again, with the rest of its log."""
    if self.leader_id == self.key.id:
        return Leader(self.log.end_offset, self.now_ms)
    return _first_role(self)


def fetch_before_flush(self: FollowerReplication) -> None:
    """Acknowledges records that are not on its disk."""
    quorum = self._quorum
    flushed, quorum.flushed_offset = quorum.flushed_offset, quorum.log.end_offset
    _fetch_more(self)
    quorum.flushed_offset = flushed


def count_unflushed(self: LeaderReplication) -> None:
    """A leader whose own records count before they are on its disk."""
    quorum = self._quorum
    flushed, quorum.flushed_offset = quorum.flushed_offset, quorum.log.end_offset
    _commit(self)
    quorum.flushed_offset = flushed


def commit_old_epochs(self: LeaderReplication) -> None:
    """Commits by counting replicas of another leader's records (Raft, figure 8)."""
    quorum = self._quorum
    assert isinstance(quorum.role, Leader)
    end_offset = quorum.role.majority_end_offset(quorum.voters, quorum.key, quorum.flushed_offset)
    quorum.high_watermark = max(quorum.high_watermark, end_offset)


def commit_alone(self: LeaderReplication) -> None:
    """Needs no majority."""
    quorum = self._quorum
    quorum.high_watermark = max(quorum.high_watermark, quorum.flushed_offset)


def believe_before_matching(
    self: FollowerReplication, request: FetchRequest, response: FetchResponse
) -> None:
    """Takes the leader's high watermark for its own while their logs still diverge."""
    self.learn_high_watermark(response.high_watermark)
    _take_fetched(self, request, response)


def truncate_to_own_end(self: FollowerReplication, diverging: LogPoint) -> int:
    """Truncates nothing where it knows the epoch, though the leader has less of it."""
    return self._quorum.log.end_offset_for_epoch(diverging.epoch).offset


def move_epoch_by_pre_vote(self: Elections, token: Hashable, request: VoteRequest) -> None:
    """Takes a pre-vote's epoch for its own."""
    if request.epoch > self._quorum.epoch:
        self._quorum.become_unattached(request.epoch)
    _on_vote(self, token, request)


def change_voters_at_once(self: Membership, token: Hashable, epoch: int) -> bool:
    """Does not wait for the commit of an earlier change."""
    if self._leading.refusal(epoch) == ErrorCode.NONE:
        return True
    return _is_ready_for_change(self, token, epoch)


_MAJORITY = "high watermark <= the flushed end of a majority"
MUTATIONS = {
    "votes twice": Mutation(
        Elections, "_may_vote", lambda *_: True, "one vote per voter and epoch", found_by=2
    ),
    "votes for any log": Mutation(
        Elections, "_lacks_nothing", lambda *_: True, "leader completeness", found_by=3
    ),
    "leads on after a restart": Mutation(
        Quorum, "_first_role", lead_on_after_restart, "(offset, epoch) names one record"
    ),
    "fetches before the flush": Mutation(FollowerReplication, "fetch_more", fetch_before_flush, _MAJORITY),
    "counts its unflushed": Mutation(LeaderReplication, "commit", count_unflushed, _MAJORITY, found_by=10),
    "commits old epochs": Mutation(
        LeaderReplication, "commit", commit_old_epochs, "commits past a record of its own epoch"
    ),
    "commits alone": Mutation(LeaderReplication, "commit", commit_alone, _MAJORITY),
    "serves any fetch": Mutation(
        LeaderReplication, "_divergence", lambda *_: None, "log matching", found_by=34
    ),
    "believes before matching": Mutation(
        FollowerReplication, "_take_fetched", believe_before_matching, "lacks committed records", found_by=10
    ),
    "truncates to its own end": Mutation(FollowerReplication, "_common_end", truncate_to_own_end, _LIVENESS),
    "a pre-vote moves the epoch": Mutation(
        Elections, "on_vote", move_epoch_by_pre_vote, "pre-vote changes nothing"
    ),
    "changes voters at once": Mutation(
        Membership, "_is_ready_for_change", change_voters_at_once, "leader completeness", found_by=91
    ),
}


def seed_that_breaks(rule: str, known: int, *, saves_first: bool = True) -> int | None:
    """The first seed that breaks `rule`, `known` before all others; None if there is none."""
    for seed in known_first(range(SEEDS_MAX), known):
        simulation = Simulation(seed, nodes=3 + seed % 3, voters=3)
        simulation.saves_first = saves_first
        try:
            simulation.run_chaos(STEPS)
            if rule == _LIVENESS:
                simulation.heal()
        except (ViolatedInvariant, QuorumViolation) as e:
            if rule in str(e):
                return seed
    return None


def seed_against(mutation: Mutation) -> int | None:
    with mock.patch.object(mutation.owner, mutation.method, mutation.replacement):
        return seed_that_breaks(mutation.rule, mutation.found_by)


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_the_simulation_finds_a_missing_guard(mutation: Mutation) -> None:
    assert seed_against(mutation) is not None


def test_the_simulation_finds_votes_that_were_not_on_the_disk() -> None:
    assert seed_that_breaks("one vote per voter and epoch", UNSAVED_FOUND_BY, saves_first=False) is not None


if __name__ == "__main__":
    for name, mutated in MUTATIONS.items():
        print(f"{name:26} {seed_against(mutated._replace(found_by=0))!s:>4} {mutated.rule}")
    broken = "one vote per voter and epoch"
    print(f"{'(driver saves nothing)':26} {seed_that_breaks(broken, 0, saves_first=False)!s:>4} {broken}")
