"""Partition reassignment (KIP-455, 860): start, change, cancel, list, end."""

from __future__ import annotations

import pytest

from penstock.metadata.reassignment import list_reassignments
from penstock.model.errors import ErrorCode
from penstock.model.steps import at_once
from penstock.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from tests.metadata.stage import Stage

DONE = [(0, None)]


def codes(answers: list[tuple[int, str | None]]) -> list[int]:
    return [code for code, _ in answers]


def test_the_old_replicas_stay_until_the_new_are_in_sync() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2])

    assert stage.reassign({0: [3, 4]}) == DONE
    assert (partition.replicas, partition.adding, partition.removing) == ([3, 4, 1, 2], [3, 4], [1, 2])
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, [1, 2])
    assert len(partition.directories) == 4

    stage.alter(partition, [1, 2, 3])
    assert partition.adding == [3, 4]
    stage.alter(partition, [1, 2, 3, 4])
    assert (partition.replicas, partition.adding, partition.removing) == ([3, 4], [], [])
    assert (partition.leader, partition.isr, partition.leader_epoch) == (3, [3, 4], 1)
    assert len(partition.directories) == 2


def test_another_order_needs_no_wait() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    stage.reassign({0: [2, 1]})
    assert (partition.replicas, partition.reassigning, partition.leader_epoch) == ([2, 1], False, 0)


def test_fewer_replicas_must_all_be_in_sync_first() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2, 3], min_isr=1)
    stage.alter(partition, [1, 2])

    stage.reassign({0: [2, 3]})
    assert partition.removing == [1]
    stage.alter(partition, [1, 2, 3])

    assert (partition.replicas, partition.isr, partition.removing) == ([2, 3], [2, 3], [])
    # A former replica must not act on the epoch it knows, whether it led or not.
    assert (partition.leader, partition.leader_epoch) == (2, 1)


def test_a_lost_follower_starts_a_new_leader_epoch_too() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2, 3])
    stage.reassign({0: [1, 2]})
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ([1, 2], 1, 1)


def test_a_reassignment_can_overtake_another_and_go_back() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2])
    stage.reassign({0: [1, 3]})
    stage.reassign({0: [1, 4]})
    assert (partition.replicas, partition.adding, partition.removing) == ([1, 4, 2, 3], [4], [2, 3])

    stage.reassign({0: [1, 2]})
    assert (partition.replicas, partition.adding, partition.removing) == ([1, 2], [], [])


def test_a_cancelled_one_leaves_the_old_replicas() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2])
    assert codes(stage.reassign({0: None})) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    stage.reassign({0: [3, 1]})
    assert stage.reassign({0: None}) == DONE
    assert (partition.replicas, partition.adding, partition.removing) == ([1, 2], [], [])
    assert (partition.isr, partition.leader_epoch) == ([1, 2], 1)


@pytest.mark.parametrize("unclean", [False, True])
def test_cancelling_does_not_lose_records_unless_the_topic_may(unclean: bool) -> None:
    """When only replicas that are being added are in sync, going back would be an unclean election."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2], min_isr=1, unclean=unclean)
    stage.reassign({0: [3, 4]})
    stage.alter(partition, [1, 3])
    stage.fence(1)
    assert (partition.leader, partition.isr) == (3, [3])

    answers = stage.reassign({0: None})
    stage.recover()

    if unclean:
        assert (answers, partition.leader, partition.isr) == (DONE, 2, [2])
    else:
        assert codes(answers) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        assert partition.reassigning


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_replicas_that_cannot_be(replicas: list[int], code: ErrorCode) -> None:
    stage = Stage(2)
    stage.topic("t", [1, 2])
    assert codes(stage.reassign({0: replicas})) == [code]


def test_each_partition_is_answered_for_itself() -> None:
    stage = Stage(3)
    stage.topic("t", [1, 2])
    assert codes(stage.reassign({0: [1, 3], 5: [1]})) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(stage.reassign({0: [1]}, name="u")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_the_number_of_replicas_changes_only_where_that_is_allowed() -> None:
    """KIP-860; a reassignment under way counts with what it will have."""
    stage = Stage(4)
    stage.topic("t", [1, 2])
    refused = stage.reassign({0: [1, 2, 3]}, allow_factor_change=False)
    assert codes(refused) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert stage.reassign({0: [1, 3]}, allow_factor_change=False) == DONE
    assert stage.reassign({0: [1, 4]}, allow_factor_change=False) == DONE
    assert stage.reassign({0: [1, 2, 3]}) == DONE


def test_ongoing_reassignments_are_listed() -> None:
    stage = Stage(3)
    stage.topic("t", [1], [1])
    stage.topic("u", [1])
    stage.reassign({1: [2]})

    def listed(topics: list[ListPartitionReassignmentsTopic] | None) -> list[tuple[str, int, list[int]]]:
        response = at_once(list_reassignments(stage.image, ListPartitionReassignmentsRequest(topics=topics)))
        return [(t.name, p.partition_index, p.adding_replicas) for t in response.topics for p in t.partitions]

    assert listed(None) == [("t", 1, [2])]
    requested = [
        ListPartitionReassignmentsTopic(name="t", partition_indexes=[0, 1, 9]),
        ListPartitionReassignmentsTopic(name="nowhere", partition_indexes=[0]),
    ]
    assert listed(requested) == [("t", 1, [2])]
    assert listed(requested[1:]) == []
