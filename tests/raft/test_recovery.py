"""Replicas that have lost their log, or their disk, one rule per test; mutants show that the rules matter."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.messages import (
    NO_NODE,
    RECOVERING_DIRECTORY,
    FetchRequest,
    FetchResponse,
    LogPoint,
    ReplicaKey,
    Voter,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.ready import QuorumViolation
from penstock.raft.recovery import LogRecovery
from penstock.raft.state import QuorumState, Recovery
from penstock.raft.voters import VoterSet
from tests.amounts import known_first
from tests.raft.invariants import ViolatedInvariant
from tests.raft.losses import play_losses
from tests.raft.scripted import Scripted, key, log_of, records, vote
from tests.raft.simulation import voter

STATIC = VoterSet(Voter(ReplicaKey(n), voter(n).endpoints) for n in (1, 2, 3))
NEW = QuorumState(recovery=Recovery.NEW)
DAMAGED = QuorumState(4, 2).damaged(committed_offset=2)


def granted(response: object) -> bool:
    assert isinstance(response, VoteResponse) and response.error == ErrorCode.NONE
    return response.granted


# -- a damaged log


def test_a_damaged_replica_leaves_the_epoch_that_it_acknowledged_records_in() -> None:
    assert QuorumState(5, NO_NODE, None, Recovery.DAMAGED, 2) == DAMAGED


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_damaged_replica_does_not_vote(pre_vote: bool) -> None:
    node = Scripted(state=DAMAGED)
    assert not granted(node.handle(vote(2, 9, LogPoint(8, 100), pre_vote=pre_vote)))


def test_a_damaged_replica_does_not_stand() -> None:
    node = Scripted(state=DAMAGED)
    for _ in range(20):
        node.wait(1000)
        assert not node.sent(VoteRequest)
        for peer, request in node.sent(FetchRequest):
            node.core.failure(peer, request, node.now_ms)


def test_a_damaged_replica_fetches_as_one_that_does_not_count() -> None:
    _, request = Scripted(state=DAMAGED).follow(2, 6)
    assert request.replica == ReplicaKey(1, RECOVERING_DIRECTORY)
    for voters in (STATIC, VoterSet(voter(n) for n in (1, 2, 3))):
        assert not voters.has(request.replica)


def test_recovery_ends_once_the_leader_has_committed_in_its_own_epoch() -> None:
    node = Scripted(state=DAMAGED)
    node.follow(2, 6)
    node.receive(2, records(1, 1, 6), high_watermark=2)
    node.flush()
    assert node.core.quorum.is_recovering, "older commits may be all that a new leader knows of"
    node.receive(2, records(1, 1, 6, 6, offset=3), high_watermark=4)
    assert node.core.quorum.is_recovering, "what is not on the disk does not count"
    node.flush()
    assert node.ready.save == QuorumState(6, 2)
    assert node.sent(FetchRequest)[0][1].replica == key(1)


def test_recovery_does_not_end_below_the_known_high_watermark_of_this_replica() -> None:
    node = Scripted(state=QuorumState(4).damaged(committed_offset=10))
    node.follow(2, 6)
    node.receive(2, records(1, 6, 6), high_watermark=3)
    node.flush()
    assert node.core.quorum.is_recovering


def test_a_restart_does_not_end_recovery() -> None:
    node = Scripted(state=DAMAGED, log=log_of(1, 1, 5))
    assert node.core.quorum.is_recovering
    assert not granted(node.handle(vote(2, 9, LogPoint(8, 100))))


def test_a_leader_forgets_acknowledgements_from_before_a_voter_lost_its_disk() -> None:
    node = Scripted(voters=5)
    node.elect()
    node.append()
    node.flush()
    node.fetch(2, 2, 1)
    lost = FetchRequest(ReplicaKey(2, RECOVERING_DIRECTORY), 1, 0, 0, 0, 1 << 20, 1 << 62)
    node.handle(lost)
    node.fetch(3, 2, 1)
    assert node.ready.high_watermark == 0, "two of five have it"
    node.fetch(4, 2, 1)
    assert node.ready.high_watermark == 2


# -- a disk that is new


def test_new_disks_elect_one_of_them() -> None:
    node = Scripted(state=NEW, static=STATIC)
    assert granted(node.handle(vote(2, 0, LogPoint(0, 0), pre_vote=True)))
    assert granted(node.handle(vote(2, 1, LogPoint(0, 0))))
    assert node.ready.save == QuorumState(1, NO_NODE, key(2)), "a founder of a cluster has lost nothing"


def test_a_new_disk_becomes_a_candidate_at_once_if_all_others_are_new() -> None:
    node = Scripted(state=NEW, static=STATIC)
    node.wait(30)
    node.grant(2, 3)
    assert node.core.quorum.role.name == "candidate"
    node.grant(2)
    assert node.core.quorum.is_leader and node.ready.save == QuorumState(1, 1, key(1))


def test_a_majority_of_new_disks_waits_for_a_voter_that_may_have_records() -> None:
    node = Scripted(state=NEW, static=STATIC)
    node.wait(30)
    node.grant(2)
    assert node.core.quorum.role.name == "prospective"
    node.wait(1000)
    assert node.core.quorum.role.name == "candidate"


def test_a_new_disk_does_not_vote_for_a_log_that_has_records() -> None:
    """The log may be a stale one, and this replica's predecessor may have acknowledged what it lacks."""
    node = Scripted(state=NEW, static=STATIC)
    assert not granted(node.handle(vote(2, 7, LogPoint(6, 100))))
    assert not granted(node.handle(vote(3, 8, LogPoint(0, 0)))), "nor found a second cluster then"
    node.wait(10_000)
    assert not node.sent(VoteRequest)


@pytest.mark.parametrize("leader", [1, 2])
def test_new_disks_elect_none_of_them_after_contact_with_a_leader(leader: int) -> None:
    """Its disk may be one of the new ones: the voter that answers has followed it, and may have records."""
    node = Scripted(state=NEW, static=STATIC)
    node.wait(0)
    request = node.core.quorum.pending_fetch
    assert isinstance(request, FetchRequest)
    node.answered(3, request, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 2, leader))
    assert not granted(node.handle(vote(2, 2, LogPoint(0, 0), pre_vote=True)))
    assert not granted(node.handle(vote(2, 3, LogPoint(0, 0))))
    for _ in range(20):
        node.wait(1000)
        assert not node.sent(VoteRequest)


def test_a_new_disk_in_an_old_cluster_counts_when_it_has_everything() -> None:
    node = Scripted(state=NEW, static=STATIC)
    _, request = node.follow(2, 6)
    assert request.replica == ReplicaKey(1, RECOVERING_DIRECTORY)
    node.receive(2, records(1, 1, 6), high_watermark=1)
    node.flush()
    assert not granted(node.handle(vote(3, 7, LogPoint(6, 100))))
    node.follow(2, 8)
    node.receive(2, records(1, 1, 6, 8, offset=3), high_watermark=4)
    node.flush()
    assert not node.core.quorum.is_recovering


def test_a_follower_does_not_wait_for_a_leader_whose_disk_was_wiped() -> None:
    node = Scripted(state=QuorumState(4, 2), log=log_of(1, 4))
    node.wait(30)
    node.grant(2, 3, granted=False)
    assert node.core.quorum.role.name == "follower"
    node.wait(60)
    request = node.core.quorum.pending_fetch
    assert isinstance(request, FetchRequest)
    node.answered(2, request, FetchResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, 0, NO_NODE))
    node.wait(100)
    assert node.sent(VoteRequest), "long before the fetch timeout"


def test_a_leader_records_the_directories_of_static_voters() -> None:
    node = Scripted(static=STATIC)
    node.elect()
    node.flush()
    node.fetch(2, 1, 1)
    assert list(node.core.quorum.voters) == [Voter(key(1)), Voter(key(2)), Voter(ReplicaKey(3))]
    node.flush()
    for peer in (2, 3):
        node.fetch(peer, node.log.end_offset, 1)
    assert [each.key for each in node.core.quorum.voters] == [key(1), key(2), key(3)]
    assert not node.core.quorum.voters.has(ReplicaKey(3, b"another disk 16b"))


def test_a_node_alone_records_nothing() -> None:
    node = Scripted(static=VoterSet([Voter(ReplicaKey(1))]))
    node.wait(0)
    node.flush()
    assert node.core.quorum.is_leader and node.log.end_offset == 1


# -- what the disk knows to be committed


def test_nothing_is_truncated_below_the_high_watermark_of_before_a_restart() -> None:
    log = log_of(1, 1, 1)
    log.committed_offset = 2
    node = Scripted(log=log, state=QuorumState(3))
    node.follow(2, 3)
    with pytest.raises(QuorumViolation, match="lacks committed records"):
        node.core._following._truncate(1)
    node.core._following._truncate(2)


# -- the simulation finds what goes wrong without these rules


def _recover_at_once(self: LogRecovery, high_watermark: int) -> None:
    self._end = 0


@pytest.mark.parametrize(
    ("method", "replacement", "rule", "found_by"),
    [
        pytest.param("may_vote_for", lambda *_: True, "leader completeness", 21, id="votes in recovery"),
        pytest.param(
            "fetch_key",
            property(lambda self: self._quorum.key),
            "high watermark <= the flushed end of a majority",
            7,
            id="counts in recovery",
        ),
        pytest.param(
            "leader_committed",
            _recover_at_once,
            "recovery ends with everything that is committed",
            2,
            id="recovers at once",
        ),
        pytest.param(
            "_is_of_this_epoch",
            lambda *_: True,
            "recovery ends with everything that is committed",
            15,
            id="believes old commits",
        ),
    ],
)
def test_the_simulation_finds_replicas_that_recover_too_soon(
    monkeypatch: pytest.MonkeyPatch, method: str, replacement: object, rule: str, found_by: int
) -> None:
    """`found_by`: the seed that found it when this was written."""
    monkeypatch.setattr(LogRecovery, method, replacement)
    for seed in known_first([*range(40), *range(140, 150)], found_by):
        try:
            play_losses(seed)
        except (ViolatedInvariant, QuorumViolation) as e:
            if rule in str(e):
                return
    raise AssertionError(f"no seed breaks: {rule}")
