"""How records travel and commit, one rule per test (KIP-595; the Raft paper's section 5.3 and 5.4.2)."""

from __future__ import annotations

from math import inf

import pytest

from penstock.model.errors import ErrorCode, NotLeaderOrFollower
from penstock.raft.messages import FetchRequest, FetchResponse, LogPoint, ReplicaKey
from penstock.raft.ready import QuorumViolation
from penstock.raft.state import QuorumState
from tests.raft.memory_log import MemoryLog
from tests.raft.scripted import Scripted, key, log_of
from tests.raft.simulation import batch


def leader(voters: int = 3) -> Scripted:
    """A leader of epoch 1 whose first record, the leader change, is committed."""
    node = Scripted(voters=voters)
    node.elect()
    node.flush()
    node.fetch(2, 1, 1)
    if voters == 5:
        node.fetch(3, 1, 1)
    assert node.core.quorum.high_watermark == 1
    return node


def records(response: object) -> bytes:
    assert isinstance(response, FetchResponse) and response.error == ErrorCode.NONE
    assert isinstance(response.records, bytes)
    return response.records


# -- committing


def test_a_record_is_committed_when_a_majority_has_it_on_disk() -> None:
    node = leader(voters=5)
    offset = node.append()
    node.flush()
    node.fetch(2, offset + 1, 1)
    assert node.ready.high_watermark == offset
    node.fetch(3, offset + 1, 1)
    assert node.ready.high_watermark == offset + 1


def test_the_leaders_own_record_counts_once_it_is_flushed() -> None:
    node = leader()
    offset = node.append()
    assert node.ready.flush
    node.fetch(2, offset + 1, 1)
    assert node.ready.high_watermark == offset
    assert node.flush().high_watermark == offset + 1


def test_a_majority_commits_without_the_leaders_disk() -> None:
    node = leader()
    offset = node.append()
    node.fetch(2, offset + 1, 1)
    node.fetch(3, offset + 1, 1)
    assert node.ready.high_watermark == offset + 1


def test_the_high_watermark_moves_only_past_a_record_of_the_leaders_epoch() -> None:
    """Figure 8 of the Raft paper: old records on a majority may still be overwritten."""
    node = Scripted(log=log_of(1, 1), state=QuorumState(3))
    node.elect()
    node.flush()
    assert node.core.quorum.epoch == 4 and node.log.end_offset == 3
    node.fetch(2, 2, 1)
    assert node.ready.high_watermark == 0
    node.fetch(2, 3, 4)
    assert node.ready.high_watermark == 3


def test_a_client_reads_the_log_and_is_no_observer() -> None:
    """As in Kafka, a negative replica id marks a fetch of a client that keeps no replica."""
    node = leader()
    node.append(b"news")
    response = node.handle(FetchRequest(ReplicaKey(-1), 1, 0, 0, 0, 1 << 20, -1))
    assert b"news" in records(response)
    described = node.core.describe(node.now_ms)
    assert described is not None and described.observers == []


def test_a_client_with_a_later_epoch_does_not_end_the_leaders_epoch() -> None:
    node = leader()
    response = node.handle(FetchRequest(ReplicaKey(-1), 9, 0, 0, 0, 1 << 20, -1))
    assert isinstance(response, FetchResponse) and response.error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.core.quorum.is_leader and node.core.quorum.epoch == 1


def test_records_of_observers_commit_nothing() -> None:
    node = leader()
    offset = node.append()
    node.flush()
    node.fetch(9, offset + 1, 1)
    assert node.ready.high_watermark == offset


def test_the_high_watermark_never_falls() -> None:
    node = leader()
    node.fetch(2, 0, 0)
    assert node.ready.high_watermark == 1


def test_only_a_leader_appends() -> None:
    with pytest.raises(NotLeaderOrFollower):
        Scripted().append()


# -- fetches as the leader answers them


def test_a_fetch_at_the_end_waits_for_records() -> None:
    node = leader()
    assert node.fetch(2, 1, 1, wait_ms=500) is None
    node.append(b"news")
    ((_, response),) = node.ready.replies
    assert b"news" in records(response)


def test_a_fetch_at_the_end_waits_for_the_high_watermark() -> None:
    node = leader()
    offset = node.append()
    node.flush()
    assert node.fetch(3, offset + 1, 1, wait_ms=500, hw=offset) == node.fetch(3, offset + 1, 1)
    assert node.fetch(3, offset + 1, 1, wait_ms=500, hw=offset + 1) is None


def test_a_fetch_waits_no_longer_than_it_wants() -> None:
    node = leader()
    assert node.fetch(2, 1, 1, wait_ms=500) is None
    assert node.ready.deadline_ms <= node.now_ms + 500
    assert node.wait(499).replies == []
    ((_, response),) = node.wait(1).replies
    assert records(response) == b""


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetches_of_another_epoch_are_refused(epoch: int, error: ErrorCode) -> None:
    node = leader()
    response = node.handle(FetchRequest(key(2), epoch, 0, 0, 0, 1000))
    assert response == FetchResponse(error, 1, 1)


def test_a_node_that_does_not_lead_names_the_leader() -> None:
    node = Scripted(state=QuorumState(4, 3))
    assert node.fetch(2, 0, 0) == FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 4, 3)


@pytest.mark.parametrize(("offset", "last_epoch", "wait_ms"), [(-1, 0, 0), (0, -1, 0), (0, 2, 0), (0, 0, -1)])
def test_fetches_that_cannot_be_are_refused(offset: int, last_epoch: int, wait_ms: int) -> None:
    response = leader().fetch(2, offset, last_epoch, wait_ms=wait_ms)
    assert response == FetchResponse(ErrorCode.INVALID_REQUEST, 1, 1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (4, 2, None),
        (2, 1, None),
        (3, 1, LogPoint(1, 2)),
        (5, 2, LogPoint(2, 4)),
        (6, 3, LogPoint(2, 4)),
    ],
)
def test_divergence_names_the_largest_epoch_at_or_below_and_its_end(
    offset: int, last_epoch: int, diverging: LogPoint | None
) -> None:
    node = Scripted(log=log_of(1, 1, 2, 2), state=QuorumState(4))
    node.elect()
    response = node.fetch(2, offset, last_epoch)
    assert isinstance(response, FetchResponse)
    assert response.diverging == diverging
    assert bool(records(response)) is (diverging is None)


def test_a_fetch_of_a_diverging_log_acknowledges_nothing() -> None:
    node = Scripted(log=log_of(1, 1), state=QuorumState(3))
    node.elect()
    node.flush()
    node.fetch(2, 3, 2)
    assert node.ready.high_watermark == 0


# -- fetches as a follower sends them


def test_a_follower_fetches_only_from_its_flushed_end() -> None:
    node = Scripted()
    node.follow(3, 1)
    ready = node.receive(3, bytes(log_of(1).entries[0].data))
    assert ready.flush and ready.messages == []
    node.flush()
    ((to, request),) = node.sent(FetchRequest)
    assert (to, request.offset, request.last_epoch) == (3, 1, 1)


def test_a_deposed_leader_flushes_before_it_fetches() -> None:
    node = Scripted()
    node.elect()
    node.core.quorum.observe(2, 3)
    assert node.settle().messages == []
    node.flush()
    assert [to for to, _ in node.sent(FetchRequest)] == [3]


def test_a_follower_learns_the_high_watermark_up_to_its_end() -> None:
    node = Scripted()
    node.follow(3, 1)
    assert node.receive(3, log_of(1).entries[0].data, high_watermark=7).high_watermark == 1


def test_a_follower_truncates_records_that_its_leader_lacks() -> None:
    node = Scripted(log=log_of(1, 1, 2, 2))
    _, request = node.follow(3, 4)
    ready = node.answered(3, request, FetchResponse(ErrorCode.NONE, 4, 3, 4, 0, diverging=LogPoint(2, 3)))
    assert ready.truncated_to == 3 and node.log.end_offset == 3
    assert ready.high_watermark == 0, "a high watermark means nothing before the logs agree"
    assert node.sent(FetchRequest)[0][1].offset == 3


def test_a_follower_cuts_an_epoch_that_its_leader_never_saw() -> None:
    node = Scripted(log=log_of(1, 1, 3, 3))
    _, request = node.follow(3, 4)
    node.answered(3, request, FetchResponse(ErrorCode.NONE, 4, 3, 4, 0, diverging=LogPoint(2, 4)))
    assert node.log.end_offset == 2


def test_nothing_is_cut_below_the_high_watermark() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.receive(3, b"".join(entry.data for entry in log_of(1, 1).entries), high_watermark=2)
    node.flush()
    request = node.core.quorum.pending_fetch
    assert isinstance(request, FetchRequest)
    with pytest.raises(QuorumViolation, match="offsets below 2 are committed"):
        node.answered(3, request, FetchResponse(ErrorCode.NONE, 1, 3, 2, 0, diverging=LogPoint(1, 1)))
    assert node.log.end_offset == 2


def test_answers_of_an_earlier_epoch_are_ignored() -> None:
    node = Scripted()
    _, late = node.follow(3, 1)
    node.follow(2, 2)
    node.answered(3, late, FetchResponse(ErrorCode.NONE, 1, 3, 9, 0, log_of(1).entries[0].data))
    assert node.log.end_offset == 0 and node.core.quorum.leader_id == 2


def test_batches_of_a_later_epoch_than_the_leaders_are_refused() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.receive(3, log_of(2).entries[0].data)
    assert node.log.end_offset == 0
    assert node.core.quorum.role.name == "follower"


def test_a_batch_that_is_cut_is_fetched_again() -> None:
    node = Scripted()
    node.follow(3, 1)
    first, second = log_of(1, 1).entries
    node.receive(3, first.data + second.data[:40])
    assert node.log.end_offset == 1


def test_a_follower_with_a_silent_leader_becomes_a_candidate_after_the_fetch_timeout() -> None:
    node = Scripted()
    node.follow(3, 1)
    node.wait(1999)
    assert node.core.quorum.role.name == "follower"
    node.wait(1)
    assert node.core.quorum.role.name == "prospective"


def test_a_failed_fetch_is_tried_again_soon() -> None:
    node = Scripted()
    _, request = node.follow(3, 1)
    node.core.failure(3, request, node.now_ms)
    assert node.settle().messages == []
    assert node.ready.deadline_ms == node.now_ms + 50
    node.wait(50)
    assert len(node.sent(FetchRequest)) == 1


def test_a_node_without_known_voters_waits_without_spinning() -> None:
    node = Scripted(node=9, voters=0)
    node.wait(60)
    assert node.ready.messages == []
    assert node.ready.deadline_ms >= node.now_ms + 20


# -- descriptions


def test_describe_lists_the_offsets_of_all_replicas() -> None:
    node = leader()
    node.append()
    node.now_ms += 100
    node.fetch(9, 0, 0)
    described = node.core.describe(node.now_ms)
    assert described is not None
    assert (described.leader_id, described.epoch, described.high_watermark) == (1, 1, 1)
    assert [(v.key.id, v.log_end_offset) for v in described.voters] == [(1, 2), (2, 1), (3, -1)]
    assert described.voters[1].last_caught_up_ms == described.voters[1].last_fetch_ms == node.now_ms - 100
    assert described.voters[2].last_fetch_ms == -1
    assert [(o.key.id, o.log_end_offset, o.last_caught_up_ms) for o in described.observers] == [(9, 0, -1)]
    assert Scripted().core.describe(0) is None


def test_a_follower_that_reaches_the_end_of_then_was_caught_up_then() -> None:
    node = leader()
    node.append()
    node.fetch(2, 1, 1)
    fetched_ms = node.now_ms
    node.append()
    node.now_ms += 70
    node.fetch(2, 2, 1)
    described = node.core.describe(node.now_ms)
    assert described is not None and described.voters[1].last_caught_up_ms == fetched_ms


def test_observers_that_went_away_are_forgotten() -> None:
    node = leader(voters=3)
    node.fetch(9, 0, 0)
    for _ in range(301):
        node.now_ms += 999
        node.fetch(2, 1, 1)
        node.wait(1)
    described = node.core.describe(node.now_ms)
    assert described is not None and described.observers == []


def test_a_leader_alone_in_its_cluster_waits_for_nothing() -> None:
    node = Scripted(voters=1)
    node.wait(0)
    node.flush()
    node.wait(10_000)
    assert node.core.next_deadline_ms() == inf
    node.fetch(9, 0, 0)
    assert node.core.next_deadline_ms() < inf, "the observer has to be forgotten if it goes away"
    for _ in range(302):
        node.wait(1000)
    described = node.core.describe(node.now_ms)
    assert described is not None and described.observers == []
    assert node.core.next_deadline_ms() == inf


def test_a_log_in_memory_forgets_unsynced_records() -> None:
    log = log_of(1)
    log.append(batch(b"lost"), 1)
    log.crash()
    assert log.end_offset == 1
    assert MemoryLog().end_offset_for_epoch(0) == LogPoint(0, 0)
