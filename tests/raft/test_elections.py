"""Elections, one rule per test (KIP-595, KIP-996; the Raft paper's sections 5.2 and 5.4)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    EndEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    LogPoint,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.ready import QuorumViolation
from penstock.raft.state import QuorumState
from tests.raft.memory_log import MemoryLog
from tests.raft.scripted import Scripted, key, log_of, vote
from tests.raft.simulation import Simulation

NOTHING = LogPoint(0, 0)


def granted(response: object) -> bool:
    assert isinstance(response, VoteResponse)
    return response.granted


# -- votes


def test_a_vote_is_saved_in_the_same_step_as_its_answer() -> None:
    node = Scripted()
    assert granted(node.handle(vote(2, 1, NOTHING)))
    assert node.ready.save == QuorumState(1, NO_NODE, key(2))


def test_a_vote_is_given_once_per_epoch() -> None:
    node = Scripted()
    assert granted(node.handle(vote(2, 1, NOTHING)))
    assert not granted(node.handle(vote(3, 1, NOTHING)))
    assert granted(node.handle(vote(2, 1, NOTHING))), "a repeated request is no second vote"
    assert granted(node.handle(vote(3, 2, NOTHING)))


def test_a_vote_outlives_a_restart() -> None:
    node = Scripted(state=QuorumState(1, NO_NODE, key(2)))
    assert not granted(node.handle(vote(3, 1, NOTHING)))
    assert granted(node.handle(vote(2, 1, NOTHING)))


def test_a_vote_is_for_a_replica_with_its_disk() -> None:
    node = Scripted(state=QuorumState(1, NO_NODE, key(2)))
    reborn = vote(2, 1, NOTHING)._replace(candidate=ReplicaKey(2, b"another disk 16b"))
    assert not granted(node.handle(reborn))


def test_no_vote_in_an_epoch_that_has_a_leader() -> None:
    node = Scripted(state=QuorumState(4, 3))
    response = node.handle(vote(2, 4, NOTHING))
    assert response == VoteResponse(ErrorCode.NONE, 4, 3, False)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (LogPoint(2, 2), True),
        (LogPoint(2, 3), True),
        (LogPoint(3, 1), True),
        (LogPoint(2, 1), False),
        (LogPoint(1, 9), False),
    ],
)
def test_votes_go_to_logs_that_lack_nothing(candidate: LogPoint, expected: bool) -> None:
    assert granted(Scripted(log=log_of(1, 2)).handle(vote(2, 9, candidate))) is expected


def test_a_later_epoch_is_entered_even_if_the_vote_is_refused() -> None:
    node = Scripted(log=log_of(1, 2))
    assert not granted(node.handle(vote(2, 9, NOTHING)))
    assert node.ready.save == QuorumState(9)


def test_an_earlier_epoch_is_fenced() -> None:
    node = Scripted(state=QuorumState(5, 3))
    assert node.handle(vote(2, 4, NOTHING)) == VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, 3, False)
    assert node.handle(BeginEpochRequest(2, 4, key(1))) == EpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, 3)
    assert node.handle(EndEpochRequest(2, 4, ())) == EpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, 3)


def test_requests_for_another_disk_are_refused() -> None:
    node = Scripted()
    elsewhere = ReplicaKey(1, b"another disk 16b")
    response = node.handle(vote(2, 1, NOTHING)._replace(voter=elsewhere))
    assert isinstance(response, VoteResponse) and response.error == ErrorCode.INVALID_VOTER_KEY
    response = node.handle(BeginEpochRequest(2, 1, elsewhere))
    assert isinstance(response, EpochResponse) and response.error == ErrorCode.INVALID_VOTER_KEY


@pytest.mark.parametrize("end", [LogPoint(-1, 0), LogPoint(0, -1), LogPoint(3, 0)])
def test_a_candidate_whose_log_cannot_be_is_refused(end: LogPoint) -> None:
    node = Scripted()
    response = node.handle(vote(2, 3, end))
    assert response == VoteResponse(ErrorCode.INVALID_REQUEST, 0, NO_NODE, False)
    assert node.ready.save is None


# -- pre-votes


def test_a_pre_vote_changes_nothing() -> None:
    node = Scripted()
    assert granted(node.handle(vote(2, 7, NOTHING, pre_vote=True)))
    assert node.ready.save is None
    assert node.core.quorum.state == QuorumState()


def test_a_prospective_stays_in_its_epoch_until_a_majority_would_vote() -> None:
    node = Scripted(voters=5)
    node.stand()
    assert node.ready.save is None
    assert [peer for peer, request in node.sent(VoteRequest) if request.pre_vote] == [2, 3, 4, 5]
    handle = node.sent(VoteRequest)
    node.answered(2, handle[0][1], VoteResponse(ErrorCode.NONE, 0, NO_NODE, True))
    assert node.core.quorum.role.name == "prospective"
    node.answered(3, handle[1][1], VoteResponse(ErrorCode.NONE, 0, NO_NODE, True))
    assert node.core.quorum.role.name == "candidate"
    assert node.ready.save == QuorumState(1, NO_NODE, key(1))


def test_a_follower_with_a_live_leader_refuses_pre_votes() -> None:
    node = Scripted()
    node.follow(3, 1)
    assert granted(node.handle(vote(2, 1, NOTHING, pre_vote=True))), "it has not heard from it yet"
    node.receive(3)
    assert not granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))


def test_a_follower_grants_pre_votes_once_it_saw_its_leader_gone() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.receive(3)
    node.core.peer_gone(3, node.now_ms)
    assert granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))
    assert not granted(node.handle(vote(2, 1, NOTHING))), "a hint never gives a vote in a leader's epoch"


def test_a_message_of_a_peer_takes_back_that_it_is_gone() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.core.peer_gone(3, node.now_ms)
    node.settle()
    node.handle(BeginEpochRequest(3, 1, key(1)))
    node.receive(3)
    assert not granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))


def test_a_majority_is_gone_when_it_refused_connections_and_no_leader_is_left() -> None:
    node = Scripted()

    def is_gone() -> bool:
        return node.core.quorum.majority_gone

    node.follow(3, 1)
    assert not is_gone()
    node.core.peer_gone(2, node.now_ms)
    assert not is_gone(), "the leader may be reached"
    node.core.peer_gone(3, node.now_ms)
    assert is_gone()
    node.handle(vote(2, 1, NOTHING, pre_vote=True))
    assert not is_gone(), "two of three can elect a leader"


def test_a_leader_refuses_pre_votes() -> None:
    node = Scripted()
    node.elect()
    assert not granted(node.handle(vote(2, 1, LogPoint(1, 99), pre_vote=True)))


def test_a_prospective_that_loses_follows_its_leader_again() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.stand()
    node.grant(2, 3, granted=False)
    assert (node.core.quorum.role.name, node.core.quorum.leader_id, node.core.quorum.epoch) == (
        "follower",
        3,
        1,
    )


def test_an_answer_that_names_a_leader_ends_the_election() -> None:
    node = Scripted()
    node.stand()
    peer, request = node.sent(VoteRequest)[0]
    node.answered(peer, request, VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 6, 3, False))
    assert node.ready.save == QuorumState(6, 3)
    assert [to for to, _ in node.sent(FetchRequest)] == [3]


def test_answers_to_another_election_do_not_count() -> None:
    node = Scripted()
    node.stand()
    (peer, pre_vote), _ = node.sent(VoteRequest)
    node.grant(2)
    assert node.core.quorum.role.name == "candidate"
    node.answered(peer, pre_vote, VoteResponse(ErrorCode.NONE, 0, NO_NODE, True))
    assert node.core.quorum.role.name == "candidate"


def test_unanswered_votes_are_requested_again() -> None:
    node = Scripted()
    node.stand()
    node.wait(60)
    assert [peer for peer, _ in node.sent(VoteRequest)] == [2, 3]


# -- leading


def test_an_epoch_starts_with_a_leader_change_that_is_flushed_and_announced() -> None:
    node = Scripted()
    node.elect()
    assert node.ready.save == QuorumState(1, 1, key(1))
    assert node.ready.flush
    assert [to for to, _ in node.sent(BeginEpochRequest)] == [2, 3]
    assert node.log.last_epoch == 1 and node.log.end_offset == 1
    assert node.core.epoch_start_offset == 0


def test_a_quorum_of_one_leads_at_its_first_tick() -> None:
    node = Scripted(voters=1)
    node.wait(0)
    assert node.core.quorum.is_leader
    assert node.flush().high_watermark == 1
    again = Scripted(voters=1, state=node.core.quorum.state, log=node.log)
    again.wait(0)
    assert again.core.quorum.is_leader and again.core.quorum.epoch > 1


def test_a_restarted_leader_has_resigned_and_does_not_vote_in_its_epoch() -> None:
    node = Scripted(state=QuorumState(5, 1, key(1)), log=log_of(5))
    assert node.core.quorum.role.name == "resigned"
    assert not granted(node.handle(vote(2, 5, LogPoint(4, 9))))
    assert granted(node.handle(vote(2, 5, LogPoint(5, 9), pre_vote=True)))
    node.wait(50)
    assert node.core.quorum.epoch == 6 and not node.core.quorum.is_leader


def test_a_leader_that_a_majority_does_not_fetch_from_resigns() -> None:
    node = Scripted()
    node.elect()
    node.wait(2000)
    node.fetch(2, 0, 0)
    node.wait(2999)
    assert node.core.quorum.is_leader
    node.wait(1)
    assert node.core.quorum.role.name == "resigned"
    assert [to for to, _ in node.sent(EndEpochRequest)] == [2, 3]


def test_voters_that_do_not_fetch_get_begin_quorum_epoch_again() -> None:
    node = Scripted()
    node.elect()
    node.fetch(2, 0, 0)
    node.wait(500)
    node.fetch(2, 0, 0)
    node.wait(500)
    assert [to for to, _ in node.sent(BeginEpochRequest)] == [3]


def test_a_leader_steps_down_for_a_later_epoch() -> None:
    node = Scripted()
    node.elect()
    assert node.fetch(3, 1, 1, wait_ms=500) is None
    node.handle(vote(2, 2, LogPoint(1, 1)))
    assert node.core.quorum.role.name == "unattached"
    assert node.ready.save == QuorumState(2, NO_NODE, key(2))
    answers = [reply.response for reply in node.ready.replies]
    assert FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, NO_NODE) in answers, "the fetch that waited"


def test_two_leaders_in_one_epoch_stop_the_node() -> None:
    node = Scripted()
    node.follow(3, 1)
    with pytest.raises(QuorumViolation, match="both lead epoch 1"):
        node.handle(BeginEpochRequest(2, 1, key(1)))


# -- leaving


def test_a_leader_that_resigns_names_the_best_successors_first() -> None:
    node = Scripted()
    node.elect()
    node.fetch(3, 1, 1)
    node.core.resign(node.now_ms)
    node.settle()
    assert node.sent(EndEpochRequest)[0][1].successors == (key(3), key(2))
    assert node.core.quorum.state == QuorumState(1, 1, key(1))


def test_the_end_of_an_epoch_is_sent_until_it_is_acknowledged() -> None:
    node = Scripted()
    node.elect()
    node.core.resign(node.now_ms)
    peer, request = node.settle().messages[0]
    node.answered(peer, request, EpochResponse(ErrorCode.NONE, 1, 1))
    node.wait(60)
    assert [to for to, _ in node.sent(EndEpochRequest)] == [3]


def test_the_first_successor_becomes_a_candidate_at_once_and_the_others_would_vote() -> None:
    first, second = Scripted(), Scripted(node=2)
    for node in (first, second):
        node.follow(3, 1)
        node.receive(3)
        node.handle(EndEpochRequest(3, 1, (key(1), key(2))))
    first.wait(0)
    assert first.core.quorum.role.name == "prospective"
    second.wait(0)
    assert second.core.quorum.role.name == "follower"
    assert granted(second.handle(vote(1, 1, NOTHING, pre_vote=True, voter=2)))


def test_the_resignation_of_a_leader_is_trusted() -> None:
    node = Scripted()
    _, request = node.follow(3, 1)
    node.answered(3, request, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 3))
    node.wait(31)
    assert node.core.quorum.role.name == "prospective"


def test_voters_become_candidates_soon_after_their_leader_is_gone() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.receive(3)
    node.core.peer_gone(3, node.now_ms)
    assert node.settle().deadline_ms <= node.now_ms + 30
    node.wait(30)
    assert node.core.quorum.role.name == "prospective"


def test_a_refusal_counts_at_once_where_the_rest_is_gone() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.core.peer_gone(3, node.now_ms)
    node.wait(31)
    node.grant(2, granted=False)
    assert node.core.quorum.role.name == "follower"
    assert node.ready.deadline_ms < node.now_ms + 100, "and it retries soon"


@pytest.mark.parametrize("voters", [3, 5])
def test_a_dead_leader_is_replaced_within_a_few_round_trips(voters: int) -> None:
    for seed in range(10):
        simulation = Simulation(seed, nodes=voters)
        assert simulation.run(500, simulation._agrees), "a cold start is as fast"
        simulation.run(700)
        dead = simulation.leader()
        assert dead is not None
        simulation.crash(dead)
        died_ms = simulation.now_ms
        for node in simulation.running:
            assert node.core is not None
            node.core.peer_gone(dead.id, died_ms)
            simulation.settle(node)
        assert simulation.run(300, simulation._agrees), f"seed {seed}"


def test_a_wrong_suspicion_costs_an_election_and_no_record() -> None:
    simulation = Simulation(3, nodes=3)
    assert simulation.run(2_000, simulation._agrees)
    leader = simulation.leader()
    assert leader is not None
    offset = simulation.append(leader, b"kept")
    simulation.run(200)
    for node in simulation.running:
        assert node.core is not None
        node.core.peer_gone(leader.id, simulation.now_ms)
        simulation.settle(node)
    simulation.run(500)
    simulation.heal()
    assert offset in simulation.invariants.committed


def test_an_observer_never_becomes_a_candidate() -> None:
    node = Scripted(node=9)
    node.follow(3, 1)
    for _ in range(5):
        node.wait(10_000)
    assert node.core.quorum.role.name == "follower"
    assert node.sent(VoteRequest) == []


def test_an_observer_queries_other_voters_when_its_leader_does_not_answer() -> None:
    node = Scripted(node=9)
    _, request = node.follow(3, 1)
    node.core.failure(3, request, node.now_ms)
    node.settle()
    node.wait(60)
    ((peer, probe),) = node.sent(FetchRequest)
    assert peer in (1, 2, 3) and probe.max_wait_ms == 0
    node.answered(peer, probe, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 2, 2))
    assert [to for to, _ in node.sent(FetchRequest)] == [2]


def test_an_empty_node_fetches_at_once() -> None:
    node = Scripted(log=MemoryLog())
    assert [request.max_wait_ms for _, request in node.sent(FetchRequest)] == [0]
    assert node.ready.deadline_ms <= 30
