"""Voters that come and go, one rule per test (KIP-853)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    AddVoterRequest,
    EndEpochRequest,
    Endpoint,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    UpdateVoterRequest,
    Voter,
    VoterChangeResponse,
)
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterSet
from tests.raft.scripted import Scripted, key, log_of
from tests.raft.simulation import Simulation, voter


def leader(voters: int = 3) -> Scripted:
    """A leader that has committed in its epoch, with node 4 as an observer that has everything."""
    node = Scripted(voters=voters)
    node.elect()
    node.flush()
    node.fetch(2, 1, 1)
    node.fetch(4, 1, 1)
    return node


def error(response: object) -> ErrorCode:
    assert isinstance(response, VoterChangeResponse)
    return response.error


def commit(node: Scripted, *peers: int) -> None:
    node.flush()
    for peer in peers:
        node.fetch(peer, node.log.end_offset, node.core.quorum.epoch)


def test_a_caught_up_observer_becomes_a_voter_and_is_answered_at_the_commit() -> None:
    node = leader()
    assert node.handle(AddVoterRequest(voter(4))) is None
    assert node.core.quorum.voters.has(key(4)), "a voter set holds from its append on"
    node.flush()
    node.fetch(2, node.log.end_offset, 1)
    assert node.ready.high_watermark == 1, "three of four are a majority"
    node.fetch(3, node.log.end_offset, 1)
    assert VoterChangeResponse(ErrorCode.NONE, 1, 1) in [reply.response for reply in node.ready.replies]


def test_a_change_without_ack_when_committed_is_answered_at_once() -> None:
    assert error(leader().handle(AddVoterRequest(voter(4), ack_when_committed=False))) == ErrorCode.NONE


def test_a_voter_is_removed_and_no_longer_counts() -> None:
    node = leader()
    assert node.handle(RemoveVoterRequest(key(3))) is None
    commit(node, 2)
    assert VoterChangeResponse(ErrorCode.NONE, 1, 1) in [reply.response for reply in node.ready.replies]
    assert node.ready.voters == VoterSet([voter(1), voter(2)])


def test_a_removed_voter_is_listed_once_as_an_observer() -> None:
    """A voter of the beginning is known without its directory, an observer by it."""
    node = Scripted(static=VoterSet(Voter(ReplicaKey(n), voter(n).endpoints) for n in (1, 2, 3)))
    node.elect()
    commit(node, 2, 3)
    commit(node, 2, 3)
    node.handle(RemoveVoterRequest(key(3)))
    commit(node, 2, 3)
    described = node.core.describe(node.now_ms)
    assert described is not None
    assert [each.key.id for each in described.voters] == [1, 2]
    assert [each.key for each in described.observers] == [key(3)]


def test_voters_of_the_beginning_are_known_by_the_directories_that_they_name() -> None:
    """The configs do not have them: a removal must not hit another disk under the same node id."""
    node = Scripted(static=VoterSet(Voter(ReplicaKey(n), voter(n).endpoints) for n in (1, 2, 3)))
    node.elect()
    commit(node, 2)
    commit(node, 2)
    described = node.core.describe(node.now_ms)
    assert described is not None
    assert [each.key for each in described.voters] == [key(1), key(2), ReplicaKey(3)]
    for id_ in (1, 2):
        refused = node.handle(RemoveVoterRequest(ReplicaKey(id_, b"another disk 16b")))
        assert error(refused) == ErrorCode.VOTER_NOT_FOUND
    assert node.handle(RemoveVoterRequest(key(2))) is None


def test_an_endpoint_changes_with_an_update() -> None:
    node = leader()
    moved = voter(3)._replace(endpoints=(Endpoint("INTERNAL", "elsewhere", 1),))
    assert node.handle(UpdateVoterRequest(moved, 1)) is None
    commit(node, 2)
    assert node.core.quorum.voters.get(3) == moved


def test_a_voter_that_reports_its_directory_does_not_end_the_epoch() -> None:
    """It counts under another key from then on, with what it has acknowledged before."""
    node = Scripted(static=VoterSet(Voter(ReplicaKey(n), voter(n).endpoints) for n in (1, 2)))
    node.elect()
    commit(node, 2)
    assert node.core.quorum.voters.get(2) == Voter(key(2)), "recorded by the leader"
    for _ in range(10):
        node.wait(1000)
        node.fetch(2, node.log.end_offset, 1)
    assert node.core.quorum.is_leader
    commit(node, 2)
    assert node.ready.high_watermark == node.log.end_offset
    node.wait(3000)
    assert not node.core.quorum.is_leader, "silence counts as ever"


def test_an_update_that_changes_nothing_is_done() -> None:
    node = leader()
    assert error(node.handle(UpdateVoterRequest(voter(3), 1))) == ErrorCode.NONE
    assert not node.ready.flush


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (AddVoterRequest(voter(3)), ErrorCode.DUPLICATE_VOTER),
        (AddVoterRequest(voter(5)), ErrorCode.REQUEST_TIMED_OUT),
        (AddVoterRequest(voter(4)._replace(endpoints=())), ErrorCode.INVALID_REQUEST),
        (AddVoterRequest(voter(4)._replace(key=ReplicaKey(4))), ErrorCode.INVALID_REQUEST),
        (AddVoterRequest(voter(4)._replace(kraft_version_max=0)), ErrorCode.INVALID_REQUEST),
        (RemoveVoterRequest(key(4)), ErrorCode.VOTER_NOT_FOUND),
        (RemoveVoterRequest(ReplicaKey(3, b"another disk 16b")), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoterRequest(voter(4), 1), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoterRequest(voter(3), 0), ErrorCode.FENCED_LEADER_EPOCH),
        (UpdateVoterRequest(voter(3)._replace(endpoints=()), 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_make_no_sense_are_refused(request_: Request, expected: ErrorCode) -> None:
    node = leader()
    assert error(node.handle(request_)) == expected
    assert node.core.quorum.voters == VoterSet(map(voter, (1, 2, 3)))


def test_the_last_voter_stays() -> None:
    node = Scripted(voters=1)
    node.wait(0)
    node.flush()
    assert error(node.handle(RemoveVoterRequest(key(1)))) == ErrorCode.INVALID_REQUEST


def test_only_a_leader_changes_voters() -> None:
    assert error(Scripted().handle(RemoveVoterRequest(key(3)))) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_change_at_a_time() -> None:
    node = leader()
    node.handle(RemoveVoterRequest(key(3)))
    assert error(node.handle(RemoveVoterRequest(key(2)))) == ErrorCode.REQUEST_TIMED_OUT
    commit(node, 2)
    assert node.handle(RemoveVoterRequest(key(2))) is None


def test_no_change_before_the_leader_has_committed_in_its_epoch() -> None:
    node = Scripted()
    node.elect()
    assert error(node.handle(RemoveVoterRequest(key(3)))) == ErrorCode.REQUEST_TIMED_OUT


def test_a_change_that_is_not_committed_in_time_times_out_and_stays_open() -> None:
    node = leader()
    node.handle(RemoveVoterRequest(key(3)))
    node.wait(2000)
    assert [error(reply.response) for reply in node.ready.replies] == [ErrorCode.REQUEST_TIMED_OUT]
    assert error(node.handle(RemoveVoterRequest(key(2)))) == ErrorCode.REQUEST_TIMED_OUT


def test_waiting_changes_fail_when_the_leader_resigns() -> None:
    node = leader()
    node.handle(RemoveVoterRequest(key(3)))
    node.core.resign(node.now_ms)
    node.settle()
    assert [error(reply.response) for reply in node.ready.replies] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_leader_that_is_voted_out_leads_until_that_is_committed() -> None:
    node = leader()
    assert node.handle(RemoveVoterRequest(key(1))) is None
    node.flush()
    node.fetch(2, node.log.end_offset, 1)
    assert node.core.quorum.is_leader, "it does not count itself: two others are the majority"
    node.fetch(3, node.log.end_offset, 1)
    assert node.core.quorum.role.name == "resigned"


def test_a_leader_that_was_voted_out_looks_for_the_next_one_as_soon_as_a_majority_knows() -> None:
    """Only voters get BeginQuorumEpoch: for an election timeout, the node would get no records."""
    node = leader()
    node.handle(RemoveVoterRequest(key(1)))
    commit(node, 2, 3)
    assert node.core.quorum.role.name == "resigned"
    for peer, request in node.sent(EndEpochRequest):
        node.answered(peer, request, EpochResponse(ErrorCode.NONE, 1, 1))
    node.wait(30)
    ((handle, _),) = node.sent(FetchRequest)
    assert handle in (2, 3)
    assert node.core.quorum.role.name == "unattached" and node.core.quorum.epoch == 2


def test_a_leader_that_was_voted_out_announces_it_until_a_majority_knows() -> None:
    """A voter that has missed it waits for an election timeout, and there is no leader for as long."""
    node = leader()
    node.handle(RemoveVoterRequest(key(1)))
    commit(node, 2, 3)
    (peer, request), (deaf, _) = node.sent(EndEpochRequest)
    node.answered(peer, request, EpochResponse(ErrorCode.NONE, 1, 1))
    for _ in range(3):
        node.wait(50)
        assert [to for to, _ in node.sent(EndEpochRequest)] == [deaf]
    node.wait(2000)
    assert node.core.quorum.role.name == "unattached" and node.core.quorum.epoch == 2


def test_a_cut_takes_a_voter_set_back() -> None:
    node = leader()
    node.handle(RemoveVoterRequest(key(3)))
    node.core._following._truncate(1)
    assert node.core.quorum.voters == VoterSet(map(voter, (1, 2, 3)))


def test_a_voter_with_an_uncommitted_removal_still_becomes_a_candidate() -> None:
    """Its log may be the only one that can win (Raft dissertation, 4.2.2)."""
    node = leader()
    node.handle(RemoveVoterRequest(key(1)))
    assert not node.core.quorum.is_voter and node.core.quorum.may_stand
    node.fetch(2, node.log.end_offset, 1)
    node.fetch(3, node.log.end_offset, 1)
    assert not node.core.quorum.may_stand


@pytest.mark.parametrize("seed", range(5))
def test_a_candidate_that_is_removed_from_the_voters_follows_again(seed: int) -> None:
    """It is in a later epoch than all others, and they no longer send it theirs, nor wait for its vote."""
    simulation = Simulation(seed, nodes=3)
    assert simulation.run(2_000, simulation._agrees)
    simulation.run(300)
    leader_node = simulation.leader()
    assert leader_node is not None
    outside = simulation.nodes[leader_node.id % 3 + 1]
    simulation.cut = {(a, b) for a in simulation.nodes for b in simulation.nodes if outside.id in (a, b)}
    assert outside.core is not None
    outside.core._elections._become_candidate()
    simulation.settle(outside)
    answers: list[object] = []
    simulation.call(leader_node, RemoveVoterRequest(key(outside.id)), answers.append)
    simulation.run(5_000)
    assert error(answers[0]) == ErrorCode.NONE
    simulation.cut.clear()
    assert simulation.run(3_000, simulation._agrees), simulation.describe()
    simulation.heal()
    assert not outside.core.quorum.is_voter and outside.core.quorum.role.name == "follower"


def test_a_leader_gives_way_to_a_later_epoch_of_a_node_that_does_not_vote() -> None:
    node = leader()
    node.core.request("parked", FetchRequest(key(2), 1, 1, 1, 500, 1, 1), node.now_ms)
    node.core.request("outside", FetchRequest(key(4), 5, 1, 1, 0, 1, 1), node.now_ms)
    node.settle()
    assert node.core.quorum.state == QuorumState(5) == node.ready.save
    refused = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, -1)
    assert {reply.token: reply.response for reply in node.ready.replies} == {
        "parked": refused,
        "outside": refused,
    }
    node.wait(30)
    assert node.core.quorum.role.name == "prospective", "it stands at once: it has everything"


def test_a_voter_in_a_later_epoch_answers_begin_quorum_epoch_with_it() -> None:
    node = leader()
    answer = node.handle(FetchRequest(key(3), 5, 1, 1, 0, 1, 1))
    assert answer == FetchResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, 1, 1)
    assert node.core.quorum.is_leader


def test_a_replica_on_another_disk_is_no_voter() -> None:
    other = Voter(ReplicaKey(1, b"another disk 16b"), voter(1).endpoints)
    node = Scripted(state=QuorumState(1), log=log_of(1))
    node.core.quorum.history.add(5, VoterSet([other, voter(2), voter(3)]))
    assert not node.core.quorum.is_voter


def test_a_static_voter_votes_on_any_disk() -> None:
    assert VoterSet([Voter(ReplicaKey(1))]).has(key(1))


def test_a_quorum_of_one_grows_to_three_and_loses_its_first_node() -> None:
    simulation = Simulation(1, nodes=3, voters=1)
    for node in (2, 3):
        assert simulation.run(2_000, simulation._agrees)
        simulation.run(300)
        answers: list[object] = []
        leader_node = simulation.leader()
        assert leader_node is not None
        simulation.call(leader_node, AddVoterRequest(voter(node)), answers.append)
        assert simulation.run(2_000, lambda answers=answers: bool(answers))  # type: ignore[misc]
        assert error(answers[0]) == ErrorCode.NONE
    simulation.crash(simulation.nodes[1])
    assert simulation.run(5_000, simulation._agrees)
    simulation.heal()
    assert all(node.core is not None and len(node.core.quorum.voters) == 3 for node in simulation.running)
