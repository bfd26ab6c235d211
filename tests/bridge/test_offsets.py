"""Offsets are committed without gaps."""

from __future__ import annotations

from penstock.bridge.offsets import OffsetTracker
from penstock.model.ids import TopicPartition

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_an_unfinished_record_holds_back_its_partition_only() -> None:
    offsets = OffsetTracker()
    for offset in (5, 6, 9):
        offsets.deliver(HERE, offset)
    offsets.deliver(THERE, 3)
    offsets.finish(HERE, 6)
    offsets.finish(HERE, 9)
    offsets.finish(THERE, 3)
    assert (offsets.committable(HERE), offsets.committable(THERE)) == (5, 4)
    offsets.finish(HERE, 5)
    assert offsets.committable(HERE) == 10


def test_a_record_that_is_delivered_again_is_unfinished_again() -> None:
    offsets = OffsetTracker()
    offsets.deliver(HERE, 5)
    offsets.finish(HERE, 5)
    offsets.deliver(HERE, 5)
    assert offsets.committable(HERE) == 5
