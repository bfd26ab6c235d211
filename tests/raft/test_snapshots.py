"""Snapshots in place of records, one rule per test (KIP-630)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.control import voters_batch
from penstock.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogPoint,
)
from penstock.raft.ready import QuorumViolation
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterSet
from tests.raft.scripted import Scripted, key, log_of
from tests.raft.simulation import Simulation, voter

SNAPSHOT = LogPoint(2, 3)


def leader_with_snapshot() -> Scripted:
    """Epochs 1, 1, 2 are in a snapshot; 2, 5 are in the log."""
    log = log_of(1, 1, 2, 2)
    log.keep_snapshot(SNAPSHOT, b"0123456789")
    log.delete_before(3)
    node = Scripted(log=log, state=QuorumState(4))
    node.elect()
    node.flush()
    return node


def snapshot_of(response: object) -> LogPoint | None:
    assert isinstance(response, FetchResponse) and response.error == ErrorCode.NONE
    return response.snapshot


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [(0, 0, SNAPSHOT), (2, 1, SNAPSHOT), (3, 1, SNAPSHOT), (3, 2, None), (4, 2, None), (5, 5, None)],
)
def test_a_follower_below_the_log_start_gets_the_snapshot_id(
    offset: int, last_epoch: int, expected: LogPoint | None
) -> None:
    assert snapshot_of(leader_with_snapshot().fetch(2, offset, last_epoch)) == expected


def test_a_log_that_parted_before_the_start_is_cut() -> None:
    response = leader_with_snapshot().fetch(2, 5, 1)
    assert isinstance(response, FetchResponse)
    assert response.diverging == LogPoint(1, 3)


def test_a_snapshot_is_served_in_chunks() -> None:
    node = leader_with_snapshot()
    response = node.handle(FetchSnapshotRequest(key(2), 5, SNAPSHOT, 4, 3))
    assert response == FetchSnapshotResponse(ErrorCode.NONE, 5, 1, SNAPSHOT, 10, 4, b"456")


@pytest.mark.parametrize(
    ("epoch", "snapshot", "position", "error"),
    [
        (4, SNAPSHOT, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (6, SNAPSHOT, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, LogPoint(1, 1), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (5, SNAPSHOT, 10, ErrorCode.POSITION_OUT_OF_RANGE),
        (5, SNAPSHOT, -1, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_invalid_snapshot_requests_are_refused(
    epoch: int, snapshot: LogPoint, position: int, error: ErrorCode
) -> None:
    response = leader_with_snapshot().handle(FetchSnapshotRequest(key(2), epoch, snapshot, position, 3))
    assert isinstance(response, FetchSnapshotResponse)
    assert (response.error, response.chunk) == (error, b"")


def test_fetching_a_snapshot_keeps_a_leader_in_office() -> None:
    node = leader_with_snapshot()
    node.wait(2000)
    node.handle(FetchSnapshotRequest(key(2), 5, SNAPSHOT, 0, 3))
    node.wait(2000)
    assert node.core.quorum.is_leader


def follower_at_snapshot(content: bytes) -> tuple[Scripted, FetchSnapshotRequest]:
    node = Scripted(log=log_of(1))
    _, request = node.follow(3, 4)
    node.answered(3, request, FetchResponse(ErrorCode.NONE, 4, 3, 9, 3, snapshot=SNAPSHOT))
    ((_, first),) = node.sent(FetchSnapshotRequest)
    half = len(content) // 2
    node.answered(
        3, first, FetchSnapshotResponse(ErrorCode.NONE, 4, 3, SNAPSHOT, len(content), 0, content[:half])
    )
    ((_, second),) = node.sent(FetchSnapshotRequest)
    assert (first.position, second.position) == (0, half)
    return node, second


def test_a_follower_fetches_a_snapshot_and_goes_on_behind_it() -> None:
    voters = VoterSet([voter(1), voter(3)])
    content = bytes(voters_batch(voters, 0, first=True))
    node, request = follower_at_snapshot(content)
    rest = content[request.position :]
    answer = FetchSnapshotResponse(ErrorCode.NONE, 4, 3, SNAPSHOT, len(content), request.position, rest)
    ready = node.answered(3, request, answer)
    assert ready.installed == SNAPSHOT
    assert ready.high_watermark == 3
    assert ready.voters == voters
    ((_, fetch),) = node.sent(FetchRequest)
    assert (fetch.offset, fetch.last_epoch) == (3, 2)


def test_a_snapshot_that_the_leader_no_longer_has_is_fetched_anew() -> None:
    node, request = follower_at_snapshot(b"0123456789")
    node.answered(3, request, FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, 4, 3, SNAPSHOT))
    ((_, fetch),) = node.sent(FetchRequest)
    assert fetch.offset == 1


def test_a_chunk_in_the_wrong_place_starts_over() -> None:
    node, request = follower_at_snapshot(b"0123456789")
    node.answered(3, request, FetchSnapshotResponse(ErrorCode.NONE, 4, 3, SNAPSHOT, 10, 9, b"9"))
    assert node.log.snapshot is None
    assert len(node.sent(FetchRequest)) == 1


def test_a_snapshot_never_ends_behind_the_high_watermark() -> None:
    node = leader_with_snapshot()
    with pytest.raises(QuorumViolation, match="not committed"):
        node.core.snapshot_taken(LogPoint(5, 5))


def test_records_in_a_snapshot_are_known_to_be_committed_after_a_restart() -> None:
    log = log_of(1, 1, 2, 2)
    log.keep_snapshot(SNAPSHOT, b"")
    assert Scripted(log=log).ready.high_watermark == 3


def test_a_snapshot_below_the_high_watermark_is_not_installed() -> None:
    node = Scripted()
    node.follow(3, 4)
    node.receive(3, b"".join(entry.data for entry in log_of(1, 1, 2, 2).entries), high_watermark=4)
    node.flush()
    request = node.core.quorum.pending_fetch
    assert isinstance(request, FetchRequest)
    node.answered(3, request, FetchResponse(ErrorCode.NONE, 4, 3, 9, 3, snapshot=SNAPSHOT))
    ((_, chunk),) = node.sent(FetchSnapshotRequest)
    with pytest.raises(QuorumViolation, match="the high watermark is 4"):
        node.answered(3, chunk, FetchSnapshotResponse(ErrorCode.NONE, 4, 3, SNAPSHOT, 1, 0, b"x"))


def test_an_empty_node_catches_up_from_a_snapshot() -> None:
    simulation = Simulation(5, nodes=4, voters=3)
    late = simulation.nodes[4]
    simulation.crash(late)
    assert simulation.run(2_000, simulation._agrees)
    leader = simulation.leader()
    assert leader is not None
    for _ in range(5):
        simulation.append(leader, b"old")
    simulation.run(300)
    simulation.take_snapshot(leader)
    assert leader.log.start_offset == 6
    simulation.heal()
    assert late.log.snapshot == leader.log.snapshot
    assert late.log.end_offset == leader.log.end_offset
