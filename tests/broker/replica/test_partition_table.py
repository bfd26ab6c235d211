"""Looking up partitions by topic name and id; places of partitions that are elsewhere."""

from __future__ import annotations

from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import PartitionTable
from penstock.metadata.image import TopicImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

TOPIC = TopicImage("t", TopicId(b"\1" * 16))
ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_is_not_here_has_the_error_that_clients_get() -> None:
    table = PartitionTable(lambda: None)
    table.slots(TOPIC).update({0: ELSEWHERE, 1: OFFLINE})
    for topic in (TOPIC.name, TOPIC.id):
        assert [table.find(topic, index) for index in range(3)] == [ELSEWHERE, OFFLINE, UNKNOWN]
    assert list(table) == []


def test_an_unknown_topic_has_another_error_by_id_than_by_name() -> None:
    table = PartitionTable(lambda: None)
    assert table.find("t", 0) == UNKNOWN
    assert table.find(TOPIC.id, 0) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_whose_directory_is_offline_is_still_hosted() -> None:
    table = PartitionTable(lambda: None)
    table.slots(TOPIC).update({0: ELSEWHERE, 1: OFFLINE})
    assert [table.hosts(TOPIC.id, index) for index in range(3)] == [False, True, False]


def test_a_topic_that_was_created_again_keeps_its_places_when_the_old_one_is_dropped() -> None:
    table = PartitionTable(lambda: None)
    table.slots(TOPIC)[0] = OFFLINE
    assert table.drop(TOPIC.id) == ("t", {0: OFFLINE})
    again = TopicImage("t", TopicId(b"\2" * 16))
    table.slots(again)[0] = ELSEWHERE
    assert table.drop(TOPIC.id) == ("", {})
    assert table.find("t", 0) == ELSEWHERE
    assert not table.knows(TOPIC.id)


def test_the_partitions_that_are_here_follow_every_change() -> None:
    table = PartitionTable(lambda: None)
    one, other = object.__new__(Partition), object.__new__(Partition)
    table.slots(TOPIC)[0] = one
    assert list(table) == [one]
    table.slots(TOPIC)[1] = other
    iterated = iter(table)
    table.slots(TOPIC)[0] = ELSEWHERE
    assert list(iterated) == [one, other]  # as it was when the iteration began
    assert list(table) == [other]
    table.drop(TOPIC.id)
    assert list(table) == []


def test_remembered_partitions_that_were_asked_for_too_early_are_bounded() -> None:
    table = PartitionTable(lambda: None)
    table.refused("x" * 250, 0)
    for index in range(1001):
        table.refused("t", index)
    assert len(table._early) == 1000
    assert ("t", 0) not in table._early
