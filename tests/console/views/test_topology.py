"""The map of replicas, and the progress of moves."""

from __future__ import annotations

from penstock.console.views.topology import moves, replica_sizes, topology
from penstock.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.console.samples import a_sample, log_dirs


def test_the_map_has_the_wanted_topics() -> None:
    shown = topology(a_sample(topics=("orders", "users")), "ORD")
    assert shown["partitions"] == [["orders", 0, 1, [1, 2], [1, 2]]]
    assert shown["total"] == 1


def test_internal_topics_are_folded_unless_they_have_a_problem() -> None:
    sample = a_sample(topics=("__consumer_offsets", "orders"))
    shown = topology(sample, "")
    assert [row[0] for row in shown["partitions"]] == ["orders"]
    assert (shown["total"], shown["problems"], shown["folded"]) == (1, 0, 1)
    unfolded = topology(sample, "", internal=True)
    assert [row[0] for row in unfolded["partitions"]] == ["__consumer_offsets", "orders"]
    sick = topology(a_sample(topics=("__consumer_offsets", "orders"), isr=(1,)), "")
    assert ([row[0] for row in sick["partitions"]], sick["problems"]) == (["__consumer_offsets", "orders"], 2)


def test_problems_come_first() -> None:
    sample = a_sample(topics=("a", "b", "z"))
    key = ("z", 0)
    sample.partitions[key] = sample.partitions[key]._replace(isr=(1,))
    assert [row[0] for row in topology(sample, "")["partitions"]] == ["z", "a", "b"]


def test_progress_is_the_share_of_bytes_that_new_replicas_have() -> None:
    sizes = {1: log_dirs({"t": [200]}), 3: log_dirs({"t": [50]})}
    move = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2]
    )
    response = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="t", partitions=[move])]
    )
    sample = a_sample(log_dirs=sizes)
    (shown,) = moves(response, sample, replica_sizes(sample))
    assert (shown["progress"], shown["adding"], shown["size"]) == (0.25, [3], 200)
    done = a_sample(log_dirs=sizes, isr=(1, 3))
    assert moves(response, done, replica_sizes(done))[0]["progress"] == 1.0


def test_progress_of_an_unknown_size_is_unknown() -> None:
    """It was shown as complete."""
    move = OngoingPartitionReassignment(partition_index=0, replicas=[1, 2, 3], adding_replicas=[3])
    response = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="t", partitions=[move])]
    )
    sample = a_sample(log_dirs={})
    (shown,) = moves(response, sample, replica_sizes(sample))
    assert (shown["progress"], shown["to_copy"], shown["in_sync"]) == (None, None, 0)
    empty = a_sample(log_dirs={1: log_dirs({"t": [0]})})
    (begun,) = moves(response, empty, replica_sizes(empty))
    assert (begun["progress"], begun["copied"], begun["to_copy"]) == (0.0, 0, 0)
