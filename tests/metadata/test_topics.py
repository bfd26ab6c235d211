"""Decisions about topics in a cluster of several brokers."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from penstock.metadata.configs import config_records
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.metadata.topics import Defaults, NewTopic, create_topic, delete_topic, grow_topic
from penstock.model.errors import (
    ErrorCode,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    PolicyViolation,
)
from penstock.model.ids import OFFSETS_TOPIC, TopicId
from penstock.model.steps import at_once
from penstock.wire.metadata_records import PartitionRecord, RegisterBrokerRecord
from penstock.wire.schema import Struct

_ids = count(100)


class Cluster:
    """An image, and the log of what was decided on it."""

    def __init__(self, brokers: int, fenced: tuple[int, ...] = ()) -> None:
        self.image = ClusterImage()
        self._offsets = count()
        for node in range(1, brokers + 1):
            self.commit([RegisterBrokerRecord(broker_id=node, fenced=node in fenced)])

    def commit(self, records: list[Struct]) -> None:
        for record in records:
            self.image.apply(record, next(self._offsets))

    def decide(self, topic: NewTopic) -> list[Struct]:
        return at_once(
            create_topic(self.image, topic, Defaults(1, 1), lambda: TopicId(next(_ids).to_bytes(16, "big")))
        )

    def create(self, topic: NewTopic) -> list[list[int]]:
        """The replicas of each partition of the new topic."""
        self.commit(self.decide(topic))
        return self.replicas(topic.name)

    def replicas(self, name: str) -> list[list[int]]:
        return [partition.replicas for partition in self.image.topics[name].partitions.values()]


def times(image: ClusterImage, name: str) -> tuple[int, int]:
    return image.topics[name].created_ms, image.topics[name].changed_ms


def test_a_topic_has_the_times_of_its_creation_and_of_its_last_change() -> None:
    cluster = Cluster(3)
    new = NewTopic("t", partitions=1, replication_factor=1, configs={"retention.ms": "1"})
    cluster.commit(
        at_once(create_topic(cluster.image, new, Defaults(1, 1), lambda: TopicId(b"t" * 16), now_ms=1000))
    )
    assert times(cluster.image, "t") == (1000, 1000)
    cluster.commit(config_records(cluster.image, (TOPIC, "t"), {"retention.ms": "2"}, now_ms=2000))
    assert times(cluster.image, "t") == (1000, 2000)
    cluster.commit(config_records(cluster.image, (TOPIC, "t"), {}, now_ms=3000))
    assert times(cluster.image, "t") == (1000, 3000)
    cluster.commit(at_once(grow_topic(cluster.image, "t", 3, None, now_ms=4000)))
    assert times(cluster.image, "t") == (1000, 4000)
    # Nothing changed, so there is no record.
    assert config_records(cluster.image, (TOPIC, "t"), {}, now_ms=5000) == []
    copy = image_of_snapshot(snapshot(cluster.image), 9)
    assert times(copy, "t") == (1000, 4000)


def test_a_log_without_times_is_read() -> None:
    cluster = Cluster(1)
    cluster.create(NewTopic("old", 1, 1))
    assert times(cluster.image, "old") == (-1, -1)
    cluster.commit(at_once(grow_topic(cluster.image, "old", 2, None, now_ms=4000)))
    assert times(cluster.image, "old") == (-1, 4000)


def test_replicas_lie_on_different_brokers_and_leaders_are_spread() -> None:
    placed = Cluster(3).create(NewTopic("t", partitions=6, replication_factor=2))

    assert all(len(set(nodes)) == 2 for nodes in placed)
    assert Counter(nodes[0] for nodes in placed) == {1: 2, 2: 2, 3: 2}


def test_a_topic_made_while_a_broker_is_down_has_all_its_replicas() -> None:
    cluster = Cluster(3, fenced=(2,))

    placed = cluster.create(NewTopic("t", partitions=4, replication_factor=2))

    assert {node for nodes in placed for node in nodes} == {1, 3}, "brokers that are down come last"
    cluster.create(NewTopic("u", partitions=1, replication_factor=3))
    cluster.commit(at_once(grow_topic(cluster.image, "u", 4, None)))
    for partition in cluster.image.topics["u"].partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert sorted(partition.isr) == [1, 3]
        assert partition.leader in (1, 3)


def test_a_topic_that_needs_more_brokers_than_are_registered_is_refused() -> None:
    cluster = Cluster(2)
    with pytest.raises(InvalidReplicationFactor, match=r"only 2 broker\(s\)"):
        cluster.decide(NewTopic("t", partitions=1, replication_factor=3))
    cluster.commit([RegisterBrokerRecord(broker_id=3, fenced=True)])
    assert cluster.create(NewTopic("t", partitions=1, replication_factor=3))[0][2] == 3


def test_a_decision_changes_nothing_until_it_is_applied() -> None:
    cluster = Cluster(1)

    records = cluster.decide(NewTopic("t"))

    assert cluster.image.topics == {}
    cluster.commit(records)
    assert list(cluster.image.topics) == ["t"]


def test_new_partitions_have_as_many_replicas_as_the_old_and_go_on_round_the_brokers() -> None:
    cluster = Cluster(3)
    cluster.create(NewTopic("t", partitions=2, replication_factor=2))

    cluster.commit(at_once(grow_topic(cluster.image, "t", 5, None)))

    placed = cluster.replicas("t")
    assert len(placed) == 5
    assert all(len(set(nodes)) == 2 for nodes in placed)
    assert sorted(Counter(nodes[0] for nodes in placed).values()) == [1, 2, 2]


def test_topics_of_coordinators_keep_their_number_of_partitions() -> None:
    """By that a group's partition is found: with another its committed offsets would seem to be gone."""
    cluster = Cluster(1)
    cluster.create(NewTopic(OFFSETS_TOPIC, partitions=2))
    with pytest.raises(InvalidPartitions, match=OFFSETS_TOPIC):
        at_once(grow_topic(cluster.image, OFFSETS_TOPIC, 3, None))


def test_assignments_by_hand_are_kept_as_they_are() -> None:
    cluster = Cluster(3)

    placed = cluster.create(NewTopic("t", assignments={1: [3, 1], 0: [2, 3]}))

    assert placed == [[2, 3], [3, 1]]
    records = at_once(grow_topic(cluster.image, "t", 3, [[1, 2]]))
    assert isinstance(records[0], PartitionRecord)
    assert (records[0].partition_id, records[0].replicas, records[0].leader) == (2, [1, 2], 1)


@pytest.mark.parametrize("assignments", [{0: [1, 2], 1: [3]}, {0: [1, 9]}, {0: [1, 1]}], ids=str)
def test_assignments_that_do_not_fit_are_refused(assignments: dict[int, list[int]]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        Cluster(3).decide(NewTopic("t", assignments=assignments))


def test_one_request_cannot_fill_a_disk_with_partitions() -> None:
    with pytest.raises(Exception, match="10001 partitions") as refused:
        Cluster(1).decide(NewTopic("t", partitions=10_001))

    assert getattr(refused.value, "code", None) == ErrorCode.POLICY_VIOLATION


def test_one_request_cannot_grow_a_topic_without_bounds() -> None:
    cluster = Cluster(1)
    cluster.create(NewTopic("t", partitions=2))

    with pytest.raises(PolicyViolation, match="10001 partitions"):
        at_once(grow_topic(cluster.image, "t", 10_003, None))

    assert len(at_once(grow_topic(cluster.image, "t", 10_002, None))) == 10_000


def test_a_deleted_topic_leaves_its_name_and_no_configs() -> None:
    cluster = Cluster(1)
    cluster.create(NewTopic("a.b", configs={"retention.ms": "5"}))
    with pytest.raises(InvalidTopic):
        cluster.decide(NewTopic("a_b"))

    cluster.commit(delete_topic(cluster.image.topics["a.b"]))

    assert cluster.image.topic_configs("a.b") == {}
    assert cluster.create(NewTopic("a_b")) == [[1]]
