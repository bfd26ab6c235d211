"""Where logs may start: moves that have a reason, and moves that have none."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Deleting, DeletionRefused
from penstock.testing.simulation.log_starts import LogStarts, StartView

NAME, PARTITION = TopicPartition("t", 0), TopicPartition("t#1", 0)
REQUESTED, REFUSED = Deleting(NAME, 5), DeletionRefused(NAME, 5)


def replica(node_id: int, start: int, **changes: Any) -> StartView:
    view = StartView(
        partition=PARTITION,
        name=NAME,
        node_id=node_id,
        start=start,
        high_watermark=9,
        leads=False,
        leader_epoch=1,
        is_new=False,
        first_end=start,
        expired=False,
    )
    return view._replace(**changes)


def leader(start: int, **changes: Any) -> StartView:
    return replica(1, start, leads=True, **changes)


#: which has not heard of the deletion
NEXT_LEADER = replica(3, 0, leads=True, leader_epoch=2)


def verdict(*seen: StartView | Deleting | DeletionRefused) -> str:
    starts = LogStarts()
    try:
        for each in seen:
            if isinstance(each, StartView):
                starts.check(each)
            else:
                starts.observe(each)
    except Violation as e:
        return e.name
    return "kept"


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        # Leaders carry out deletions up to the high watermark.
        ([leader(0), REQUESTED, leader(5)], "kept"),
        ([leader(0), leader(5)], "log start moved"),
        # One carries it out and loses its role before it is seen again.
        ([leader(0), REQUESTED, replica(1, 5, leader_epoch=2)], "kept"),
        ([leader(0), replica(1, 5, leader_epoch=2)], "log start moved"),
        (
            [leader(0), replica(1, 0, leader_epoch=2), REQUESTED, replica(1, 5, leader_epoch=2)],
            "log start moved",
        ),
        ([leader(0), REQUESTED, leader(4)], "log start moved"),
        ([leader(0), REQUESTED, leader(6)], "log start moved"),
        ([leader(0), REQUESTED, REFUSED, leader(5)], "log start moved"),
        ([leader(0), REQUESTED, leader(5), REFUSED], "refused deletion done"),
        ([leader(0), REQUESTED, leader(5), REQUESTED, REFUSED], "kept"),
        ([leader(0), REQUESTED, leader(5, high_watermark=4)], "log start above the high watermark"),
        # Followers go as far as their leader, at most.
        ([leader(0), REQUESTED, leader(5), replica(2, 5)], "kept"),
        ([leader(0), REQUESTED, leader(5), replica(2, 3)], "kept"),
        ([leader(0), REQUESTED, leader(5), replica(2, 6)], "log start moved"),
        ([leader(0), REQUESTED, replica(2, 5)], "log start moved"),
        ([REQUESTED, leader(5), NEXT_LEADER, replica(2, 5)], "kept"),
        ([REQUESTED, leader(5), NEXT_LEADER, replica(2, 5, leader_epoch=2)], "log start moved"),
        # The next leader has the same start.
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 5, leads=True, leader_epoch=2)], "kept"),
        # A disk has no more than was written, and may have less.
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 0, is_new=True)], "kept"),
        ([leader(0), replica(2, 0), replica(2, 3, is_new=True)], "log start moved"),
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 3)], "kept"),
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 3, first_end=4)], "log start fell"),
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 3, first_end=6)], "kept"),
        ([REQUESTED, leader(5), replica(2, 5), replica(2, 3, first_end=5)], "log start fell"),
        # Retention moves each by itself, as far as it is committed.
        ([leader(7, expired=True), replica(2, 8, expired=True)], "kept"),
        ([leader(7, expired=True), replica(2, 7)], "kept"),
        ([leader(7, expired=True), replica(2, 8)], "log start moved"),
        ([leader(7, expired=True, high_watermark=6)], "log start above the high watermark"),
    ],
)
def test_starts(seen: list[StartView | Deleting | DeletionRefused], name: str) -> None:
    assert verdict(*seen) == name


def test_a_topic_made_again_starts_anew() -> None:
    again = TopicPartition("t#2", 0)
    assert verdict(REQUESTED, leader(5), leader(0, partition=again)) == "kept"
    assert verdict(REQUESTED, leader(5), replica(2, 5, partition=again)) == "log start moved"
