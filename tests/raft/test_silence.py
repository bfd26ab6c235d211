"""A leader that says nothing any more: it is replaced in one round, however its voters time out."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    FetchRequest,
    FetchResponse,
    LogPoint,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.roles import LeaderContact
from tests.amounts import amount
from tests.raft.scripted import Scripted, key, log_of, vote
from tests.raft.simulation import SimulatedNode, Simulation

NOTHING = LogPoint(0, 0)
SEEDS = 25


def granted(response: object) -> bool:
    assert isinstance(response, VoteResponse)
    return response.granted


def silenced(node: int = 1, voters: int = 3) -> Scripted:
    """A voter whose leader 3 has just been silent for the fetch timeout."""
    scripted = Scripted(node, voters)
    scripted.follow(3, 1)
    scripted.receive(3)
    scripted.wait(2000)
    assert scripted.core.quorum.role.name == "prospective"
    return scripted


# -- the candidates that voters believe


def test_a_voter_without_contact_to_its_leader_for_half_the_timeout_would_vote() -> None:
    """The first one that times out need not wait for the last."""
    node = Scripted()
    node.follow(3, 1)
    node.receive(3)
    node.wait(999)
    assert not granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))
    node.wait(1)
    assert granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))
    node.receive(3)
    assert not granted(node.handle(vote(2, 1, NOTHING, pre_vote=True))), "it was only slow"


def test_of_two_simultaneous_candidates_the_lower_id_continues() -> None:
    first, second = silenced(1), silenced(2)
    assert not granted(first.handle(vote(2, 1, NOTHING, pre_vote=True)))
    assert granted(second.handle(vote(1, 1, NOTHING, pre_vote=True, voter=2)))


def test_a_prospective_node_that_lost_a_round_grants_pre_votes() -> None:
    """Others may not hear it, and it would stand in their way for ever."""
    node = silenced(1)
    node.grant(2, granted=False)
    node.wait(60)
    assert node.core.quorum.role.name == "prospective"
    assert granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))


def test_a_better_log_goes_before_a_lower_id() -> None:
    node = silenced(1)
    assert granted(node.handle(vote(2, 1, LogPoint(1, 9), pre_vote=True)))


def test_a_candidate_grants_pre_votes() -> None:
    """Its own vote is given: a candidate of the next epoch may end the election."""
    node = silenced(1)
    node.grant(2)
    assert node.core.quorum.role.name == "candidate"
    assert granted(node.handle(vote(2, 2, NOTHING, pre_vote=True)))


# -- rounds without a winner


def test_a_split_vote_is_followed_by_another_round_at_once() -> None:
    """No candidate waits for the vote of the silent leader."""
    node = silenced(1)
    node.grant(2)
    node.grant(2, granted=False)
    assert node.core.quorum.role.name == "candidate"
    assert node.ready.deadline_ms <= node.now_ms + 60


def test_a_refused_candidate_retries_soon() -> None:
    node = silenced(1)
    node.grant(2, granted=False)
    assert node.core.quorum.role.name == "follower"
    assert node.ready.deadline_ms <= node.now_ms + 60


def test_the_refusal_of_the_leader_itself_ends_an_election() -> None:
    """It lives and answers: no other silent node has to be waited for."""
    node = silenced(1, voters=5)
    ((_, request),) = [sent for sent in node.sent(VoteRequest) if sent[0] == 3]
    node.answered(3, request, VoteResponse(ErrorCode.NONE, 1, 3, False))
    assert (node.core.quorum.role.name, node.core.quorum.leader_id) == ("follower", 3)
    assert [to for to, _ in node.sent(FetchRequest)] == [3]
    node.wait(1999)
    assert node.core.quorum.role.name == "follower", "it has a whole fetch timeout again"


def test_a_leader_that_does_not_know_that_it_led_is_replaced() -> None:
    """Its disk was replaced: it refuses in the name of another replica, and knows no leader."""
    node = silenced(1)
    handle = dict(node.sent(VoteRequest))
    node.answered(3, handle[3], VoteResponse(ErrorCode.INVALID_VOTER_KEY, 1, NO_NODE, False))
    node.answered(2, handle[2], VoteResponse(ErrorCode.NONE, 1, NO_NODE, True))
    assert node.core.quorum.role.name == "candidate"


def test_a_leader_that_only_refuses_is_replaced() -> None:
    """It shows that it lives, but answers no request: it is believed once more, not for ever."""
    node = silenced(1, voters=5)
    refusal = VoteResponse(ErrorCode.NONE, 1, 3, False)
    node.answered(3, dict(node.sent(VoteRequest))[3], refusal)
    assert node.core.quorum.role.name == "follower"
    node.wait(2000)
    handle = dict(node.sent(VoteRequest))
    node.answered(3, handle[3], refusal)
    for voter in (2, 4):
        node.answered(voter, handle[voter], VoteResponse(ErrorCode.NONE, 1, NO_NODE, True))
    assert node.core.quorum.role.name == "candidate"


def test_a_leader_that_announces_its_leadership_may_be_cut_off_from_requests() -> None:
    node = silenced(1)
    node.handle(BeginEpochRequest(3, 1, key(1)))
    assert (node.core.quorum.role.name, node.core.quorum.leader_id) == ("follower", 3)
    assert node.ready.deadline_ms <= node.now_ms + 30, "only an answer shows that it hears"
    assert granted(node.handle(vote(2, 1, NOTHING, pre_vote=True)))


# -- a new leader is recognised


def test_the_first_fetch_from_a_leader_is_answered_at_once() -> None:
    node = Scripted()
    _, first = node.follow(3, 1)
    node.receive(3)
    ((_, second),) = node.sent(FetchRequest)
    assert (first.max_wait_ms, second.max_wait_ms) == (0, 500)


def test_a_response_to_an_earlier_request_is_no_contact_with_the_later_leader() -> None:
    """A voter without a leader sent a fetch to 2, a candidate then. By now 2 leads, and has announced it."""
    node = Scripted()
    node.handle(vote(2, 1, NOTHING))
    node.settle()
    handle = node.core.quorum.pending_fetch
    assert isinstance(handle, FetchRequest)
    node.handle(BeginEpochRequest(2, 1, key(1)))
    assert node.core.quorum.pending_fetch == handle, "the same words"
    node.answered(2, handle, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, NO_NODE))
    node.wait(1000)
    assert (node.core.quorum.role.name, node.core.quorum.leader_id) == ("follower", 2)


# -- how long it has been silent


def test_a_new_leader_keeps_the_last_contact_with_the_earlier_one() -> None:
    node = silenced(1)
    node.grant(2)
    node.wait(300)
    node.grant(2)
    assert node.core.quorum.is_leader
    assert node.core.quorum.contact == LeaderContact(3, 0)


def test_to_follow_the_same_leader_again_is_no_news_of_it() -> None:
    node = silenced(1)
    node.grant(2, granted=False)
    assert node.core.quorum.contact == LeaderContact(3, 0)
    node.wait(100)
    node.handle(BeginEpochRequest(2, 2, key(1)))
    assert node.core.quorum.contact == LeaderContact(2, 2100)


def test_a_leader_that_is_elected_again_forgets_earlier_followers() -> None:
    node = Scripted(log=log_of(1))
    node.follow(3, 1)
    node.receive(3)
    node.elect()
    node.core.resign(node.now_ms)
    node.settle()
    node.wait(2000)
    node.grant(2)
    node.grant(2)
    assert node.core.quorum.is_leader
    assert node.core.quorum.contact.node == NO_NODE


# -- quorums


def silence(simulation: Simulation, leader: SimulatedNode, kind: str) -> None:
    """Cut a leader off: both ways, or so that it only hears (mute), or only speaks (deaf)."""
    others = [node for node in simulation.nodes if node != leader.id]
    if kind != "deaf":
        simulation.cut |= {(leader.id, node) for node in others}
    if kind != "mute":
        simulation.cut |= {(node, leader.id) for node in others}


def seconds_without_leader(seed: int, voters: int, kind: str, latency_ms: tuple[float, float]) -> float:
    """From the silence of the leader until another one has committed the start of its epoch."""
    simulation = Simulation(seed, nodes=voters)
    simulation.latency_ms = latency_ms
    assert simulation.run(10_000, simulation._agrees)
    simulation.run(simulation.random.uniform(1000, 3000))
    silent = simulation.leader()
    assert silent is not None
    silence(simulation, silent, kind)
    began_ms = simulation.now_ms

    def is_replaced() -> bool:
        leader = simulation.leader()
        if leader is None or leader is silent:
            return False
        core = leader.core
        assert core is not None and core.epoch_start_offset is not None
        return core.quorum.high_watermark > core.epoch_start_offset

    assert simulation.run(20_000, is_replaced)
    return (simulation.now_ms - began_ms) / 1000


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize(
    ("kind", "latency_ms", "within_s"),
    [
        ("cut off", (0.2, 8.0), 2.1),
        ("mute", (0.2, 8.0), 2.1),
        # What it answers to the fetches that it has already got comes through, up to half a second later.
        ("deaf", (0.2, 8.0), 2.6),
        ("cut off", (10.0, 60.0), 2.6),
    ],
)
def test_a_silent_leader_is_replaced_in_one_round(
    voters: int, kind: str, latency_ms: tuple[float, float], within_s: float
) -> None:
    for seed in range(amount(SEEDS)):
        took_s = seconds_without_leader(seed, voters, kind, latency_ms)
        assert took_s < within_s, f"seed {seed}"
