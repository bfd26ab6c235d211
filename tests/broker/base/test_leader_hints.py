"""Responses name the new leader of a partition and its endpoint (KIP-951)."""

from __future__ import annotations

from penstock.broker.base.leader_hints import LeaderHints
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis.fetch import LeaderIdAndEpoch, NodeEndpoint, PartitionData
from tests.broker.images import TOPIC_ID, image_of, partition_record, registration

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def hints(
    image: ClusterImage, topic: str | TopicId, answer: PartitionData, listener: str = "CLIENTS"
) -> list[tuple[int, str, int]]:
    answers = [(topic, answer.partition_index, answer)]
    found = LeaderHints(image).add(answers, listener, LeaderIdAndEpoch, NodeEndpoint)
    return [(each.node_id, each.host, each.port) for each in found]


def led_by_2() -> ClusterImage:
    return image_of(partition_record(leader=2, leader_epoch=5), registration(1), registration(2))


def test_a_partition_that_has_moved_gets_its_leader_by_topic_name_and_by_id() -> None:
    for topic in ("t", TOPIC_ID):
        answer = PartitionData(partition_index=0, error_code=MOVED)
        assert hints(led_by_2(), topic, answer) == [(2, "h2", 9092)]
        assert answer.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=5)


def test_other_errors_and_successes_get_no_hint() -> None:
    for code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
        answer = PartitionData(partition_index=0, error_code=code)
        assert hints(led_by_2(), "t", answer) == []
        assert answer.current_leader == PartitionData().current_leader


def test_an_unknown_partition_has_no_leader() -> None:
    answer = PartitionData(partition_index=7, error_code=MOVED)
    assert hints(led_by_2(), "t", answer) == []
    assert answer.current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


def test_a_fenced_leader_and_one_without_the_clients_listener_have_no_endpoint() -> None:
    fenced = image_of(partition_record(leader=2), registration(2, fenced=True))
    for image, listener in ((fenced, "CLIENTS"), (led_by_2(), "OTHER")):
        assert hints(image, "t", PartitionData(partition_index=0, error_code=MOVED), listener) == []
