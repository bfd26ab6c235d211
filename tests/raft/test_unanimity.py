"""Voters that have forgotten their votes: they elect a leader together with all others, or join one.

The simulation loses and rolls back quorum states on any number of voters, and logs on all but one. Mutants
show that each rule matters. `docs/adr/0066-unanimous-elections.md` has the argument.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.errors import ErrorCode, PenstockError
from penstock.raft import unanimity
from penstock.raft.elections import Elections
from penstock.raft.messages import FetchRequest, LogPoint, ReplicaKey, VoteRequest, VoteResponse
from penstock.raft.quorum import Quorum
from penstock.raft.ready import QuorumViolation
from penstock.raft.recovery import LogRecovery
from penstock.raft.roles import Nominee
from penstock.raft.state import QuorumState, Recovery
from penstock.raft.unanimity import EPOCHS_SKIPPED, Unanimity, state_without_votes
from tests.amounts import amount, known_first
from tests.raft import simulation
from tests.raft.invariants import ViolatedInvariant
from tests.raft.losses import play_forgetful
from tests.raft.scripted import Scripted, key, log_of, records, vote

SEEDS = 160
LOG = LogPoint(4, 2)
UNANIMOUS = 4 + EPOCHS_SKIPPED


def forgetful(node: int = 1, voters: int = 3) -> Scripted:
    """A voter whose log ends in epoch 4, with a quorum state of epoch 2."""
    state = state_without_votes(QuorumState(2, 3, key(3)), 4, key(node))
    return Scripted(node, voters, state=state, log=log_of(1, 4))


def answer(node: Scripted, request: VoteRequest) -> tuple[bool, bool]:
    response = node.handle(request)
    assert isinstance(response, VoteResponse) and response.error == ErrorCode.NONE
    return response.granted, response.conditional


class Votes:
    """The vote requests that a node has just sent, to be answered one by one."""

    def __init__(self, node: Scripted) -> None:
        self._node = node
        self._requests = dict(node.sent(VoteRequest))

    def respond(self, *peers: int, conditional: bool = False, granted: bool = False) -> None:
        for peer in peers:
            request = self._requests[peer]
            response = VoteResponse(ErrorCode.NONE, request.epoch, -1, granted, conditional)
            self._node.answered(peer, request, response)


# -- the voter


def test_a_voter_without_its_votes_is_in_the_epoch_of_its_log() -> None:
    assert forgetful().core.quorum.state == QuorumState(
        4, recovery=Recovery.FORGOTTEN, directory_id=key(1).directory_id
    )
    assert state_without_votes(None, 4, key(1)).epoch == 4


def test_its_votes_are_conditional_and_follow_a_pre_vote_of_the_same_process() -> None:
    node = forgetful()
    assert answer(node, vote(2, UNANIMOUS, LOG)) == (False, False), "this process has no pre-vote of it"
    node = forgetful()
    assert answer(node, vote(2, 4, LOG, pre_vote=True)) == (False, True)
    assert answer(node, vote(2, 5, LOG)) == (False, False), "an election that needs a majority only"
    node = forgetful()
    assert answer(node, vote(2, 4, LOG, pre_vote=True)) == (False, True)
    assert answer(node, vote(3, UNANIMOUS, LOG)) == (False, False), "another candidate"
    node = forgetful()
    assert answer(node, vote(2, 4, LOG, pre_vote=True)) == (False, True)
    assert answer(node, vote(2, UNANIMOUS, LOG)) == (False, True)
    assert node.ready.save == node.core.quorum.state._replace(epoch=UNANIMOUS, voted=key(2))
    assert node.core.quorum.has_forgotten, "the others may not have voted yet"
    assert answer(node, vote(3, UNANIMOUS, LOG)) == (False, False), "one vote per epoch"


def test_a_voter_does_not_vote_for_a_log_that_lacks_records_of_its_own() -> None:
    node = forgetful()
    assert answer(node, vote(2, 4, LogPoint(4, 1), pre_vote=True)) == (False, False)
    assert answer(node, vote(2, 4, LogPoint(3, 9), pre_vote=True)) == (False, False)


def test_a_voter_acknowledges_nothing_to_a_leader_that_it_has_not_elected() -> None:
    _, request = forgetful().follow(2, 5)
    assert request.replica not in (key(1), ReplicaKey(1))


def test_a_voter_counts_for_the_unanimous_leader_and_votes_after_a_record_of_its_epoch() -> None:
    node = forgetful()
    answer(node, vote(2, 4, LOG, pre_vote=True))
    answer(node, vote(2, UNANIMOUS, LOG))
    _, request = node.follow(2, UNANIMOUS)
    assert request.replica == key(1), "what it fetches it has"
    assert node.core.quorum.has_forgotten, "its log may be an old one, too"
    node.receive(2, records(1, 4, UNANIMOUS, offset=2), high_watermark=0)
    assert node.core.quorum.has_forgotten
    node.flush()
    assert not node.core.quorum.is_recovering and node.core.quorum.key == key(1)


def test_a_voter_keeps_its_key_until_it_is_removed_from_the_voters() -> None:
    """Two of three that changed their keys beside a leader that is alone would leave no majority."""
    node = forgetful()
    node.follow(2, 5)
    node.receive(2, records(1, 4, 5, offset=2), high_watermark=3)
    node.flush()
    assert node.core.quorum.caught_up and node.core.quorum.has_forgotten
    assert node.core.quorum.key == key(1)
    new = node.sent(FetchRequest)[0][1].replica
    assert new.id == 1 and new != key(1)


# -- the candidate


def test_a_candidate_that_remembers_needs_no_more_than_a_majority() -> None:
    node = Scripted(state=QuorumState(4), log=log_of(1, 4))
    node.stand()
    pre_votes = Votes(node)
    pre_votes.respond(2, conditional=True)
    assert node.core.quorum.role.name == "prospective"
    pre_votes.respond(3, granted=True)
    assert node.core.quorum.epoch == 5


def test_without_a_majority_that_remembers_all_voters_are_needed() -> None:
    node = Scripted(voters=5, state=QuorumState(4), log=log_of(1, 4))
    node.stand()
    pre_votes = Votes(node)
    for peer in (2, 3, 4):
        pre_votes.respond(peer, conditional=True)
        assert node.core.quorum.role.name == "prospective"
    pre_votes.respond(5, granted=True)
    epoch = node.core.quorum.epoch
    assert node.core.quorum.role.name == "candidate" and UNANIMOUS <= epoch < UNANIMOUS + EPOCHS_SKIPPED
    votes = Votes(node)
    votes.respond(2, 3, 4, conditional=True)
    assert not node.core.quorum.is_leader
    votes.respond(5, granted=True)
    assert node.core.quorum.is_leader


def test_a_candidate_without_its_votes_needs_all_even_beside_a_majority() -> None:
    node = forgetful(voters=5)
    node.stand()
    pre_votes = Votes(node)
    pre_votes.respond(2, 3, 4, granted=True)
    assert node.core.quorum.role.name == "prospective"
    pre_votes.respond(5, conditional=True)
    assert node.core.quorum.epoch >= UNANIMOUS
    votes = Votes(node)
    votes.respond(2, 3, 4, granted=True)
    assert not node.core.quorum.is_leader
    votes.respond(5, conditional=True)
    assert node.ready.leader_id == 1 and node.core.quorum.state.recovery == Recovery.NONE


def test_one_refusal_ends_a_unanimous_election() -> None:
    node = Scripted(state=QuorumState(4), log=log_of(1, 4))
    node.stand()
    Votes(node).respond(2, 3, conditional=True)
    assert node.core.quorum.role.name == "candidate"
    votes = Votes(node)
    votes.respond(2, conditional=True)
    votes.respond(3)
    node.wait(1_100)
    assert node.core.quorum.role.name == "prospective"


# -- whole runs


@pytest.mark.parametrize("first", range(0, SEEDS, 40))
def test_nothing_is_lost_and_all_vote_again_after_any_lost_state(first: int) -> None:
    for seed in range(first, first + amount(40)):
        try:
            play_forgetful(seed)
        except (ViolatedInvariant, PenstockError, AssertionError) as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def test_the_runs_elect_leaders_unanimously(monkeypatch: pytest.MonkeyPatch) -> None:
    won, become_leader = [], Elections._become_leader

    def count(self: Elections, role: Nominee) -> None:
        won.append(role.unanimous)
        become_leader(self, role)

    monkeypatch.setattr(Elections, "_become_leader", count)
    for seed in range(10):
        play_forgetful(seed)
    assert any(won) and not all(won)


# -- mutants

_finish = LogRecovery.finish


def _by_majority(self: Unanimity, role: Nominee) -> bool:
    """Counts conditional votes without waiting for all of them."""
    return len(role.granted | role.conditional) + 1 >= self._quorum.voters.majority


def _unnoticed(found: QuorumState | None, last_epoch: int, own: ReplicaKey) -> QuorumState:
    """Starts with the rest of a quorum state as if it were whole."""
    return QuorumState(max(last_epoch, found.epoch if found else 0), directory_id=own.directory_id)


def _at_once(self: LogRecovery) -> None:
    """Votes again as soon as it follows the leader of all, with whatever log it has."""
    if self._quorum.follows_all:
        self._quorum.votes_again()
    _finish(self)


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "rule", "found_by"),
    [
        pytest.param(Unanimity, "is_won", _by_majority, "leader completeness", 52, id="needs a majority"),
        pytest.param(
            simulation, "state_without_votes", _unnoticed, "one vote per voter and epoch", 14, id="unnoticed"
        ),
        pytest.param(unanimity, "EPOCHS_SKIPPED", 1, "one vote per voter and epoch", 112, id="skips nothing"),
        pytest.param(
            LogRecovery,
            "finish",
            _at_once,
            "recovery ends with everything that is committed",
            1,
            id="at once",
        ),
        pytest.param(
            LogRecovery,
            "fetch_key",
            property(lambda self: self._quorum.key),
            "high watermark <= the flushed end of a majority",
            1,
            id="counts",
        ),
        pytest.param(
            Quorum,
            "electorate",
            property(lambda self: self.voters),
            "all replicas vote again after healing",
            48,
            id="forgets the committed voters",
        ),
    ],
)
def test_the_simulation_finds_a_missing_rule(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mutant: object, rule: str, found_by: int
) -> None:
    """`found_by`: the seed that found it when this was written."""
    monkeypatch.setattr(owner, name, mutant)
    for seed in known_first([*range(60), *range(110, 120)], found_by):
        try:
            play_forgetful(seed)
        except (ViolatedInvariant, QuorumViolation) as e:
            if rule in str(e):
                return
    raise AssertionError(f"no seed breaks: {rule}")
