"""What a reader does while leaders move."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from disasters import clients


class Moving:
    """Stands for a consumer whose first requests for a partition's end fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        self.failures -= 1
        if self.failures >= 0:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 0, 310


def test_the_end_of_a_partition_is_requested_again_while_its_leader_moves() -> None:
    assert clients._end_of(Moving(3), TopicPartition("t", 0)) == 310


def test_a_partition_without_a_leader_has_no_end_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_STALLED_S", 0.0)
    assert clients._end_of(Moving(1 << 30), TopicPartition("t", 0)) == 0
