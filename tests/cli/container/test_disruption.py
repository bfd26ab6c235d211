"""When a broker may stop."""

from __future__ import annotations

from penstock.cli.container.disruption import obstacles
from penstock.metadata.image import ClusterImage
from penstock.model.ids import TopicId
from penstock.wire.metadata_records import PartitionRecord, TopicRecord

TOPIC = TopicId(b"t" * 16)
ALL_VOTE = {0: True, 1: True, 2: True}


def image(*partitions: tuple[list[int], list[int]]) -> ClusterImage:
    """A topic with partitions of (replicas, in-sync replicas)."""
    found = ClusterImage()
    found.apply(TopicRecord(name="orders", topic_id=TOPIC), 0)
    for index, (replicas, isr) in enumerate(partitions):
        record = PartitionRecord(
            partition_id=index, topic_id=TOPIC, replicas=replicas, isr=isr, leader=isr[0] if isr else -1
        )
        found.apply(record, 0)
    return found


def test_a_broker_may_stop_if_all_partitions_take_writes_without_it() -> None:
    assert obstacles(image(([0, 1, 2], [0, 1, 2])), 0, {"orders": 2}, ALL_VOTE) == []
    assert obstacles(image(([0, 1, 2], [1, 2])), 0, {"orders": 2}, ALL_VOTE) == []


def test_a_broker_waits_while_a_partition_would_have_too_few_in_sync_replicas() -> None:
    lacking = image(([0, 1, 2], [0, 1]), ([0, 1, 2], [0, 1, 2]), ([1, 2, 3], [1]))
    reason = "too few other in-sync replicas of orders-0"
    assert obstacles(lacking, 0, {"orders": 2}, ALL_VOTE) == [reason]
    assert obstacles(lacking, 0, {"orders": 1}, ALL_VOTE) == []


def test_many_partitions_are_counted() -> None:
    lacking = image(*(([0, 1], [0]) for _ in range(5)))
    (reason,) = obstacles(lacking, 0, {"orders": 1}, {})
    assert reason == "too few other in-sync replicas of orders-0, orders-1, orders-2 and 2 more"


def test_a_partition_with_one_replica_waits_for_nothing() -> None:
    assert obstacles(image(([0], [0])), 0, {"orders": 1}, {}) == []


def test_as_many_replicas_as_the_minimum_means_all_others() -> None:
    """Otherwise the broker could never stop."""
    assert obstacles(image(([0, 1], [0, 1])), 0, {"orders": 2}, ALL_VOTE) == []
    assert obstacles(image(([0, 1], [0])), 0, {"orders": 2}, ALL_VOTE) != []


def test_the_quorum_keeps_its_majority() -> None:
    none = image()
    (reason,) = obstacles(none, 0, {}, {0: True, 1: True, 2: False})
    assert reason == "only 1 of 3 voters would be left"
    assert obstacles(none, 3, {}, {0: True, 1: True, 2: False}) == []
    assert obstacles(none, 0, {}, {0: True}) == []
