"""Last stable offsets: what a reader of committed records has passed stays decided."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.transaction_invariants import StableOffsets, StableView

VIEW = StableView(TopicPartition("ledger", 0), 1, 0, 5, 8, None, True, 1)


def _violation(*views: StableView) -> str:
    offsets = StableOffsets()
    with pytest.raises(Violation) as error:
        for view in views:
            offsets.check(view)
    return error.value.name


def test_the_last_stable_offset_does_not_fall_while_a_broker_runs() -> None:
    assert _violation(VIEW, VIEW._replace(last_stable_offset=4)) == "last stable offset fell"
    StableOffsets().check(VIEW)
    offsets = StableOffsets()
    offsets.check(VIEW)
    offsets.check(VIEW._replace(last_stable_offset=4, life=1))


def test_the_last_stable_offset_is_at_most_the_high_watermark() -> None:
    view = VIEW._replace(last_stable_offset=9)
    assert _violation(view) == "last stable offset above the high watermark"


def test_a_later_leader_has_no_open_transaction_below_it() -> None:
    later = VIEW._replace(node_id=2, last_stable_offset=3, first_open=3, leader_epoch=2)
    assert _violation(VIEW, later) == "last stable offset went back"
    offsets = StableOffsets()
    offsets.check(VIEW)
    offsets.check(later._replace(leads=False))
    offsets.check(later._replace(leader_epoch=0))
