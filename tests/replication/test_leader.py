"""Each rule of the leader, as a small story. design.md has the rules, KIPs in names their origin."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, NotLeaderOrFollower, UnknownLeaderEpoch
from penstock.replication.leader import IsrMember, IsrProposal, LeaderState, Reaction
from penstock.replication.progress import FollowerProgress
from tests.replication.leaders import MAX_LAG_MS, Cluster, Registered, fetch


def joining(leader: LeaderState, replica: int = 3, offset: int = 10, now_ms: int = 0) -> IsrProposal:
    proposal = leader.follower_fetched(replica, 100 + replica, offset, 0, now_ms)
    assert proposal is not None
    return proposal


# -- the high watermark


def test_high_watermark_is_the_smallest_end_offset_of_the_isr() -> None:
    leader = Cluster().leader()
    leader.local_end_advanced(20, 0)
    fetch(leader, 2, 15)
    assert leader.high_watermark == 10
    fetch(leader, 3, 12)
    assert leader.high_watermark == 12


def test_the_high_watermark_counts_only_synced_records_of_the_leader() -> None:
    leader = Cluster().leader()
    fetch(leader, 2, 15)
    fetch(leader, 3, 15)
    assert leader.high_watermark == 10
    leader.local_end_advanced(14, 0)
    assert leader.high_watermark == 14


def test_high_watermark_never_moves_back_with_a_follower_that_lost_its_end() -> None:
    leader = Cluster().leader()
    leader.local_end_advanced(12, 0)
    fetch(leader, 2, 12)
    fetch(leader, 3, 12)
    fetch(leader, 3, 4)
    assert leader.high_watermark == 12


def test_maximal_isr_a_replica_holds_the_high_watermark_back_from_the_moment_its_addition_is_sent() -> None:
    cluster = Cluster()
    leader = cluster.leader(isr=(1, 2))
    fetch(leader, 2, 10)
    joining(leader)
    cluster.brokers[3].fenced = True  # so that only the addition in flight counts
    leader.local_end_advanced(20, MAX_LAG_MS * 2)
    leader.follower_fetched(2, 102, 20, 0, MAX_LAG_MS * 2)
    assert leader.high_watermark == 10


def test_a_member_being_removed_counts_until_the_metadata_has_it_removed() -> None:
    leader = Cluster().leader()
    leader.local_end_advanced(20, 0)
    late = MAX_LAG_MS + 1
    fetch(leader, 2, 20, late)
    shrink = leader.tick(late)
    assert shrink is not None
    assert [m.broker for m in shrink.isr] == [1, 2]
    assert leader.high_watermark == 10

    leader.accepted(shrink, 21, 5, (1, 2), late)
    assert leader.high_watermark == 10
    leader.metadata_changed(21, (1, 2, 3), (1, 2), late)
    assert leader.high_watermark == 20 and leader.proposal is None


def test_kip_966_nothing_is_committed_without_a_member_that_a_larger_minimum_has_made_eligible() -> None:
    """The controller agrees by the minimum that the log has; this leader has not read so far yet."""
    leader = Cluster().leader(isr=(1, 2), min_isr=1)
    leader.local_end_advanced(20, 0)
    late = MAX_LAG_MS + 1
    shrink = leader.tick(late)
    assert shrink is not None
    leader.accepted(shrink, 21, 5, (1,), late)
    leader.min_isr_changed(2, late)
    leader.metadata_changed(21, (1, 2, 3), (1,), late)
    assert leader.isr == {1} and leader.high_watermark == 10


def test_no_advance_while_the_committed_isr_is_below_min_isr() -> None:
    leader = Cluster().leader(isr=(1,))
    leader.local_end_advanced(20, 0)
    assert leader.high_watermark == 10
    joined = joining(leader, 2, offset=20)
    assert leader.high_watermark == 10, "an addition in flight does not count as committed"
    leader.accepted(joined, 21, 5, (1, 2), 0)
    assert leader.high_watermark == 20


def test_a_smaller_min_isr_commits_records_that_waited_for_a_larger_one() -> None:
    leader = Cluster().leader(isr=(1,))
    leader.local_end_advanced(20, 0)
    leader.min_isr_changed(1, 0)
    assert leader.high_watermark == 20


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    leader = Cluster().leader(replicas=(1,), isr=(1,), min_isr=2)
    leader.local_end_advanced(20, 0)
    assert leader.enough_replicas()
    assert leader.high_watermark == 20


def test_high_watermark_waits_for_a_caught_up_replica_that_is_about_to_join() -> None:
    cluster = Cluster()
    cluster.brokers[3].in_controlled_shutdown = True
    leader = cluster.leader(isr=(1, 2))
    fetch(leader, 3, 10)  # caught up, not yet eligible
    cluster.brokers[3].in_controlled_shutdown = False
    leader.local_end_advanced(20, 1)
    fetch(leader, 2, 20, 1)
    assert leader.high_watermark == 10
    leader.local_end_advanced(21, MAX_LAG_MS + 1)
    assert leader.high_watermark == 20, "but not for ever"


def test_a_replica_that_the_controller_removed_from_the_isr_is_not_waited_for() -> None:
    """Its disk may be full: that it kept up until just now does not count."""
    leader = Cluster().leader(isr=(1, 2, 3))
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    leader.local_end_advanced(20, 1)
    fetch(leader, 2, 20, 1)
    leader.metadata_changed(leader.partition_epoch + 1, (1, 2, 3), (1, 2), 2)
    assert leader.high_watermark == 20
    joining(leader, 3, 20, 3)
    leader.local_end_advanced(30, 4)
    fetch(leader, 2, 30, 4)
    assert leader.high_watermark == 20, "it is back, and about to join"


# -- joining the ISR


def test_fetches_from_before_a_follower_left_the_isr_do_not_bring_it_back() -> None:
    """A request speaks for all partitions of its session, be it that some have stopped meanwhile."""
    leader = Cluster().leader(isr=(1, 2, 3))
    fetch(leader, 2, 10, 5)
    fetch(leader, 3, 10, 5)
    leader.metadata_changed(leader.partition_epoch + 1, (1, 2, 3), (1, 2), 7)
    fetch(leader, 3, 10, 6)
    leader.local_end_advanced(20, 8)
    fetch(leader, 2, 20, 8)
    assert leader.high_watermark == 20, "nor does a request wait for it"
    joining(leader, 3, 20, 9)


def test_a_follower_that_reached_the_end_joins_with_its_broker_epoch() -> None:
    leader = Cluster().leader(isr=(1, 2))
    fetch(leader, 2, 10)
    proposal = joining(leader)
    assert proposal == IsrProposal(5, 20, (IsrMember(1, 101), IsrMember(2, 102), IsrMember(3, 103)))
    assert leader.maximal_isr() == {1, 2, 3}
    assert leader.isr == {1, 2}


def test_a_member_that_has_not_fetched_yet_is_proposed_by_the_controllers_word() -> None:
    proposal = joining(Cluster().leader(isr=(1, 2)))
    assert proposal.isr[1] == IsrMember(2, -1)


def test_epoch_start_a_follower_below_it_does_not_join_though_it_reached_the_high_watermark() -> None:
    leader = Cluster().leader(isr=(1, 2), end_offset=10, high_watermark=4)
    fetch(leader, 3, 9)
    joining(leader, offset=10)


def test_a_follower_below_the_high_watermark_does_not_join() -> None:
    leader = Cluster().leader(isr=(1, 2))
    leader.local_end_advanced(20, 0)
    fetch(leader, 2, 20)
    assert leader.high_watermark == 20
    fetch(leader, 3, 19)


@pytest.mark.parametrize(
    "registered",
    [None, Registered(103, fenced=True), Registered(103, in_controlled_shutdown=True), Registered(102)],
)
def test_fenced_and_unregistered_brokers_do_not_join_the_isr(registered: Registered | None) -> None:
    cluster = Cluster()
    leader = cluster.leader(isr=(1, 2))
    del cluster.brokers[3]
    if registered is not None:
        cluster.brokers[3] = registered
    fetch(leader, 3, 10)


def test_kip_903_a_fetch_of_an_incarnation_that_is_gone_is_refused() -> None:
    cluster = Cluster()
    leader = cluster.leader(isr=(1, 2))
    cluster.brokers[3].epoch = 200
    with pytest.raises(NotLeaderOrFollower):
        leader.follower_fetched(3, 103, 10, 0, 0)
    assert leader.followers[3].broker_epoch is None


def test_a_broker_that_is_not_a_replica_has_to_retry() -> None:
    with pytest.raises(UnknownLeaderEpoch):
        Cluster().leader(replicas=(1, 2), isr=(1, 2)).follower_fetched(3, 103, 10, 0, 0)


# -- leaving the ISR


def test_a_follower_that_always_fetches_from_the_previous_end_is_caught_up() -> None:
    leader = Cluster().leader(replicas=(1, 2), isr=(1, 2))
    for step in range(10):
        now = step * MAX_LAG_MS
        fetch(leader, 2, 10 + step, now)
        leader.local_end_advanced(11 + step, now)
        assert leader.tick(now) is None


def test_a_follower_that_falls_behind_leaves_after_the_lag_time() -> None:
    leader = Cluster().leader(replicas=(1, 2), isr=(1, 2))
    fetch(leader, 2, 10)
    leader.local_end_advanced(1000, 0)
    fetch(leader, 2, 11, MAX_LAG_MS)
    assert leader.tick(MAX_LAG_MS) is None
    shrink = leader.tick(MAX_LAG_MS + 1)
    assert shrink is not None
    assert shrink.isr == (IsrMember(1, 101),)


def test_an_idle_follower_at_the_end_stays_for_ever() -> None:
    leader = Cluster().leader(replicas=(1, 2), isr=(1, 2))
    fetch(leader, 2, 10)
    assert leader.tick(MAX_LAG_MS * 100) is None


# -- requests to the controller (KIP-497)


def test_one_proposal_in_flight() -> None:
    leader = Cluster().leader(isr=(1,))
    joining(leader, 2)
    fetch(leader, 3, 10)
    assert leader.tick(MAX_LAG_MS * 2) is None


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_cannot_have_been_applied_is_withdrawn(code: ErrorCode) -> None:
    leader = Cluster().leader(isr=(1, 2))
    assert leader.rejected(joining(leader), code, 0) is Reaction.WITHDRAWN
    assert leader.maximal_isr() == {1, 2}
    joining(leader)


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.STEP_DOWN),
        (ErrorCode.NEW_LEADER_ELECTED, Reaction.STEP_DOWN),
        (ErrorCode.INVALID_UPDATE_VERSION, Reaction.AWAIT_METADATA),
        (ErrorCode.INVALID_REQUEST, Reaction.AWAIT_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, Reaction.AWAIT_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Reaction.AWAIT_METADATA),
        (ErrorCode.NOT_CONTROLLER, Reaction.RETRY),
        (ErrorCode.STALE_BROKER_EPOCH, Reaction.RETRY),
        (ErrorCode.NETWORK_EXCEPTION, Reaction.RETRY),
    ],
)
def test_a_proposal_that_may_have_been_applied_stays_in_flight(code: ErrorCode, reaction: Reaction) -> None:
    leader = Cluster().leader(isr=(1, 2))
    proposal = joining(leader)
    assert leader.rejected(proposal, code, 0) is reaction
    assert leader.proposal is proposal
    assert leader.maximal_isr() == {1, 2, 3}


def test_a_proposal_sent_twice_and_refused_once_may_still_be_granted() -> None:
    """Found by simulation: the copy that was believed lost reaches the controller after the refusal."""
    cluster = Cluster()
    leader = cluster.leader(isr=(1, 2))
    proposal = joining(leader)
    assert leader.rejected(proposal, ErrorCode.NETWORK_EXCEPTION, 0) is Reaction.RETRY
    assert leader.rejected(proposal, ErrorCode.INELIGIBLE_REPLICA, 0) is Reaction.WITHDRAWN
    cluster.brokers[3].fenced = True  # so that nothing but the doubt makes it count
    leader.local_end_advanced(20, 1)
    fetch(leader, 2, 20, 1)
    assert leader.maximal_isr() == {1, 2, 3}
    assert leader.high_watermark == 10

    assert leader.tick(MAX_LAG_MS) is None
    assert leader.high_watermark == 20, "by now no copy can be under way"


def test_a_proposal_that_was_sent_again_on_its_way_may_still_be_granted() -> None:
    leader = Cluster().leader(isr=(1, 2))
    proposal = joining(leader)
    leader.sent_again(proposal)
    leader.rejected(proposal, ErrorCode.INELIGIBLE_REPLICA, 0)
    assert leader.maximal_isr() == {1, 2, 3}


def test_a_newer_partition_epoch_ends_the_doubt() -> None:
    leader = Cluster().leader(isr=(1, 2))
    proposal = joining(leader)
    leader.rejected(proposal, ErrorCode.NETWORK_EXCEPTION, 0)
    leader.rejected(proposal, ErrorCode.INELIGIBLE_REPLICA, 0)
    leader.metadata_changed(21, (1, 2, 3), (1, 2), 0)
    assert leader.maximal_isr() == {1, 2}


def test_newer_metadata_decides_and_the_late_answer_changes_nothing() -> None:
    leader = Cluster().leader(isr=(1, 2))
    proposal = joining(leader)
    leader.metadata_changed(22, (1, 2, 3), (1,), 0)
    leader.accepted(proposal, 21, 5, (1, 2, 3), 0)
    assert leader.rejected(proposal, ErrorCode.INVALID_UPDATE_VERSION, 0) is Reaction.WITHDRAWN
    assert leader.isr == {1}
    assert leader.partition_epoch == 22
    assert leader.proposal is None


def test_metadata_we_know_already_does_not_drop_a_proposal() -> None:
    leader = Cluster().leader(isr=(1, 2))
    proposal = joining(leader)
    leader.metadata_changed(20, (1, 2, 3), (1, 2), 0)
    assert leader.proposal is proposal
    leader.accepted(proposal, 21, 6, (1, 2, 3), 0)
    assert leader.isr == {1, 2}, "an answer about another leader epoch is not ours"
    leader.accepted(proposal, 21, 5, (1, 2, 3), 0)
    assert leader.isr == {1, 2, 3}


def test_replicas_come_and_go_with_a_reassignment_and_keep_their_progress() -> None:
    leader = Cluster().leader()
    fetch(leader, 2, 10)
    leader.metadata_changed(21, (1, 2, 4), (1, 2), 0)
    assert sorted(leader.followers) == [2, 4]
    assert leader.followers[2].end_offset == 10


# -- acks=all, ListOffsets, DeleteRecords


def test_acks_all_is_refused_before_the_append_when_the_isr_is_too_small() -> None:
    assert Cluster().leader(isr=(1, 2)).enough_replicas()
    assert not Cluster().leader(isr=(1,)).enough_replicas()


def test_acks_all_waits_for_the_high_watermark_and_looks_at_the_isr_again() -> None:
    leader = Cluster().leader(isr=(1, 2))
    leader.local_end_advanced(12, 0)
    assert leader.acknowledgement(12) is None
    fetch(leader, 2, 12)
    assert leader.acknowledgement(12) is ErrorCode.NONE
    leader.metadata_changed(21, (1, 2, 3), (1,), 0)
    assert leader.acknowledgement(12) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_list_offsets_latest_waits_until_the_high_watermark_reached_the_epochs_start() -> None:
    leader = Cluster().leader(isr=(1, 2), end_offset=10, high_watermark=4)
    assert not leader.latest_offset_known()
    fetch(leader, 2, 10)
    assert leader.latest_offset_known()


@pytest.mark.parametrize(("reported", "inherited"), [(2, 4), (7, 7), (99, 10)])
def test_a_leader_below_min_isr_takes_over_the_high_watermark_of_the_others(
    reported: int, inherited: int
) -> None:
    """Never less than it knows itself, nor more than it had when it took over."""
    leader = Cluster().leader(isr=(1,), end_offset=10, high_watermark=4)
    assert leader.needs_high_watermark_recovery(0)
    leader.local_end_advanced(20, 0)
    leader.recover_high_watermark(reported)
    assert leader.high_watermark == inherited
    assert leader.latest_offset_known() and not leader.needs_high_watermark_recovery(0)


def test_a_leader_with_enough_in_sync_replicas_learns_the_high_watermark_from_their_fetches() -> None:
    assert not Cluster().leader(isr=(1, 2), end_offset=10, high_watermark=4).needs_high_watermark_recovery(0)


def test_no_high_watermark_query_while_an_in_sync_follower_catches_up() -> None:
    """A leader that was killed has lost part of its high watermark, but none of its records."""
    leader = Cluster().leader(isr=(1,), end_offset=10, high_watermark=4)
    fetch(leader, 2, 4, 1)
    assert not leader.needs_high_watermark_recovery(1 + MAX_LAG_MS)
    assert leader.needs_high_watermark_recovery(2 + MAX_LAG_MS), "its disk may be full by now"


def test_low_watermark_is_the_least_start_of_the_replicas_that_live() -> None:
    cluster = Cluster()
    leader = cluster.leader()
    leader.follower_fetched(2, 102, 10, 5, 0)
    leader.follower_fetched(3, 103, 10, 2, 0)
    assert leader.low_watermark(7) == 2
    cluster.brokers[3].fenced = True
    assert leader.low_watermark(7) == 5
    assert leader.low_watermark(3) == 3


def test_the_lag_of_a_follower_in_records_and_time() -> None:
    progress = FollowerProgress(in_sync=True, now_ms=1000)
    assert progress.lag(100, 0, 5000) == (0, 0)  # it may have everything
    progress.fetched(1, 100, 0, 100, 2000)
    assert progress.lag(100, 0, 9000) == (0, 0)
    assert progress.lag(130, 0, 9000) == (30, 7000)
    progress.left_isr(12_000)
    assert progress.lag(130, 0, 13_000) == (30, 11_000)
    # Deleted records need not be fetched.
    assert progress.lag(130, 120, 13_000) == (10, 11_000)


def test_a_follower_that_has_never_fetched_lags_since_the_election() -> None:
    progress = FollowerProgress(in_sync=False, now_ms=1000)
    assert progress.lag(100, 20, 4000) == (80, 3000)
    assert progress.lag(20, 20, 4000) == (0, 0)
