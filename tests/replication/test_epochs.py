"""Truncation by leader epochs: KIP-101 and KIP-279."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import OffsetOutOfRange
from penstock.replication.epochs import NO_EPOCH, EpochEnd, diverging_epoch, epoch_end, truncation_offset
from tests.replication.logs import ModelLog


def rounds(follower: ModelLog, leader: ModelLog, epoch: int = 10) -> int:
    """Fetch until the follower's log is a prefix of the leader's; the number of truncations."""
    for number in range(20):
        last = follower.leader_epochs.latest
        diverging = diverging_epoch(leader, epoch, follower.end_offset, last)
        if diverging is None:
            return number
        before = follower.end_offset
        follower.truncate_to(truncation_offset(follower, diverging))
        assert follower.end_offset < before, "each round truncates something"
    raise AssertionError("the logs never converge")


def test_kip_101_a_follower_truncates_a_record_that_the_new_leader_lacks() -> None:
    follower = ModelLog("111")
    assert rounds(follower, ModelLog("112")) == 1
    assert follower.epochs() == "11"


def test_kip_279_fast_leader_changes_take_a_round_for_each_epoch() -> None:
    follower = ModelLog("113355")
    assert rounds(follower, ModelLog("112244")) == 2
    assert follower.epochs() == "11"


def test_a_leader_that_has_not_written_shares_all_of_its_log() -> None:
    leader = ModelLog("11")
    assert epoch_end(leader, 5, 5) == EpochEnd(5, 2)
    assert epoch_end(leader, 5, 3) == EpochEnd(1, 2)
    assert epoch_end(ModelLog(), 5, 3) == EpochEnd(3, 0)
    assert epoch_end(leader, 5, 0) == EpochEnd(0, 0)
    assert epoch_end(leader, 5, 6) == EpochEnd(-1, -1), "of a later leader nothing is known"


def test_an_empty_follower_never_diverges() -> None:
    assert diverging_epoch(ModelLog("11"), 1, 0, NO_EPOCH) is None


def test_a_log_that_starts_too_late_to_decide_is_out_of_range() -> None:
    leader = ModelLog("44", start=10)
    with pytest.raises(OffsetOutOfRange, match="below the log's start 10"):
        diverging_epoch(leader, 4, 5, 4)
    with pytest.raises(OffsetOutOfRange, match="epoch 7 is unknown"):
        diverging_epoch(leader, 4, 12, 7)


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, str, str]:
    """What two logs share, and what each has after it: no epoch has written to both of them there."""
    digits = draw(st.permutations("456789"))
    common = draw(st.lists(st.sampled_from("0123"), max_size=5))
    ours = draw(st.lists(st.sampled_from(digits[:3]), max_size=5))
    theirs = draw(st.lists(st.sampled_from(digits[3:]), min_size=1, max_size=5))
    return "".join(sorted(common)), "".join(sorted(ours)), "".join(sorted(theirs))


@given(histories())
def test_any_two_logs_converge_to_the_records_that_they_share(case: tuple[str, str, str]) -> None:
    common, ours, theirs = case
    follower = ModelLog(common + ours)
    rounds(follower, ModelLog(common + theirs))
    assert follower.epochs() == common
