"""The fetches of a follower, its steps after the responses, and where logs diverge (KIP-101, 279, 320)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode, OffsetOutOfRange
from penstock.replication.epochs import EpochEnd, diverging_epoch
from penstock.replication.follower import (
    Append,
    FetchAnswer,
    FetchPosition,
    FollowerState,
    Hold,
    Reset,
    SetAside,
    Truncate,
)
from penstock.storage.log import Log
from tests.replication.logs import ModelLog
from tests.storage.logs import batch, open_log

BACKOFF_MS = 1000


def following(log: ModelLog, leader_epoch: int = 5) -> FollowerState:
    return FollowerState(1, leader_epoch, log, BACKOFF_MS)


def next_fetch(follower: FollowerState, now_ms: int = 0) -> FetchPosition:
    position = follower.next_fetch(now_ms)
    assert position is not None
    return position


def converge(log: ModelLog, leader: ModelLog, leader_epoch: int) -> int:
    """Fetch until the logs agree; the rounds of truncation it took."""
    follower = following(log, leader_epoch)
    for rounds in range(20):
        sent = next_fetch(follower)
        diverging = diverging_epoch(leader, leader_epoch, sent.fetch_offset, sent.last_fetched_epoch)
        step = follower.answered(sent, FetchAnswer(diverging=diverging), 0)
        if not isinstance(step, Truncate):
            return rounds
        log.truncate_to(step.offset)
    raise AssertionError("no end")


# -- truncation by epoch


def test_a_log_that_the_leader_continues_is_left_alone() -> None:
    assert diverging_epoch(ModelLog("0011"), 1, 3, 1) is None
    assert diverging_epoch(ModelLog("0011"), 2, 4, 1) is None


def test_kip_101_only_records_that_the_new_leader_lacks_are_truncated() -> None:
    log, leader = ModelLog("00111"), ModelLog("00112")
    log.high_watermark = 2  # far behind what both have: not where to cut
    converge(log, leader, 2)
    assert log.epochs() == "0011"


def test_kip_279_fast_leader_changes_take_several_rounds() -> None:
    log, leader = ModelLog("0022244"), ModelLog("0011133")
    assert converge(log, leader, 5) == 2
    assert log.epochs() == "00"


def test_a_leader_that_has_not_written_yet_knows_epochs_that_it_never_saw() -> None:
    log, leader = ModelLog("00333"), ModelLog("000")
    converge(log, leader, 4)
    assert log.epochs() == "00"


def test_an_empty_leader_has_everything_cut() -> None:
    log = ModelLog("3")
    converge(log, ModelLog(), 4)
    assert log.epochs() == ""


@pytest.mark.parametrize(
    ("high_watermark", "recovering", "may_lose", "step"),
    [
        (1, False, False, Truncate(1, committed_lost=False)),
        (1, False, True, Truncate(1, committed_lost=False)),
        (3, False, False, SetAside(1)),
        (3, False, True, Truncate(1, committed_lost=True)),
        # The missing records of an unclean leader are unknown.
        (1, True, False, SetAside(1)),
        (1, True, True, Truncate(1, committed_lost=None)),
        (3, True, True, Truncate(1, committed_lost=True)),
    ],
)
def test_committed_records_are_cut_only_by_an_unclean_election(
    high_watermark: int, recovering: bool, may_lose: bool, step: Truncate | SetAside
) -> None:
    log = ModelLog("0111")
    log.high_watermark = high_watermark
    follower = FollowerState(1, 5, log, BACKOFF_MS, recovering=recovering, may_lose=may_lose)
    assert follower.answered(next_fetch(follower), FetchAnswer(diverging=EpochEnd(0, 1)), 0) == step
    assert follower.offsets_listed(next_fetch(follower), 0, 1, 0) == step


def test_a_leader_that_contradicts_itself_gets_no_tight_loop_of_requests() -> None:
    follower = following(ModelLog("01"))
    assert follower.answered(next_fetch(follower), FetchAnswer(diverging=EpochEnd(1, 9)), 0) is Hold.BACKOFF


def test_a_leader_whose_log_starts_above_cannot_decide() -> None:
    with pytest.raises(OffsetOutOfRange):
        diverging_epoch(ModelLog("55", start=10), 5, 4, 5)
    with pytest.raises(OffsetOutOfRange):
        diverging_epoch(ModelLog("55"), 5, 4, 6)


@given(st.data())
def test_any_two_histories_converge_on_their_common_prefix(data: st.DataObject) -> None:
    """Logs of one cluster: equal epochs at an offset mean the same leader wrote it, from the same start."""
    shared = data.draw(st.lists(st.integers(0, 2), max_size=4).map(sorted))
    epochs = data.draw(st.permutations(range(3, 9)))
    theirs, ours = sorted(epochs[:3]), sorted(epochs[3:])
    tail = st.lists(st.sampled_from(theirs), max_size=6).map(sorted)
    own_tail = st.lists(st.sampled_from(ours), max_size=6).map(sorted)
    leader = ModelLog("".join(map(str, shared + data.draw(tail))))
    log = ModelLog("".join(map(str, shared + data.draw(own_tail))))
    converge(log, leader, 9)
    assert log.epochs() == "".join(map(str, shared))


# -- answers


def test_truncate_first_then_apply_the_high_watermark() -> None:
    log = ModelLog("00111")
    follower = following(log)
    both = FetchAnswer(high_watermark=5, diverging=EpochEnd(0, 2))
    assert isinstance(follower.answered(next_fetch(follower), both, 0), Truncate)
    log.truncate_to(2)
    assert follower.answered(next_fetch(follower), FetchAnswer(high_watermark=5), 0) == Append(5, -1)
    log.advance_high_watermark(5)
    assert log.high_watermark == 2


def test_an_empty_fetch_keeps_the_last_fetched_epoch() -> None:
    log = ModelLog("0011")
    follower = following(log)
    assert next_fetch(follower) == FetchPosition(4, 1, 5, 0)
    follower.answered(next_fetch(follower), FetchAnswer(high_watermark=4), 0)
    assert next_fetch(follower) == FetchPosition(4, 1, 5, 0)


def test_an_answer_to_a_question_of_before_is_ignored() -> None:
    log = ModelLog("0011")
    follower = following(log)
    sent = next_fetch(follower)
    log.truncate_to(3)
    assert follower.answered(sent, FetchAnswer(), 0) is Hold.STALE
    assert follower.offsets_listed(sent, 0, 1, 0) is Hold.STALE
    log.append(2, "x")
    assert follower.answered(sent, FetchAnswer(), 0) is Hold.STALE, "the same offset, in another epoch"
    assert following(log, 6).answered(next_fetch(follower), FetchAnswer(), 0) is Hold.STALE


def test_out_of_range_below_the_leaders_start_starts_over_there() -> None:
    log = ModelLog("0011")
    follower = following(log)
    sent = next_fetch(follower)
    assert follower.answered(sent, FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), 0) is Hold.LIST_OFFSETS
    assert follower.offsets_listed(sent, 100, 200, 0) == Reset(100)
    log.reset_to(100)
    assert next_fetch(follower) == FetchPosition(100, -1, 5, 100)


def test_out_of_range_above_the_leaders_end_cuts_and_compares_by_epoch() -> None:
    log = ModelLog("0011")
    follower = following(log)
    assert follower.offsets_listed(next_fetch(follower), 0, 3, 0) == Truncate(3, committed_lost=False)
    log.truncate_to(3)
    assert next_fetch(follower) == FetchPosition(3, 1, 5, 0)


@pytest.mark.parametrize("leader_end", [2, 9])
def test_records_of_epochs_to_come_are_set_aside(leader_end: int) -> None:
    """A bit of a batch's epoch has changed, or the metadata went back: no leader knows such an epoch."""
    log, leader = ModelLog("0077"), ModelLog("000055555")
    with pytest.raises(OffsetOutOfRange):
        diverging_epoch(leader, 5, 4, 7)
    follower = following(log)
    assert follower.offsets_listed(next_fetch(follower), 0, leader_end, 0) == SetAside(2)
    losing = FollowerState(1, 5, log, BACKOFF_MS, may_lose=True)
    assert losing.offsets_listed(next_fetch(losing), 0, leader_end, 0) == Truncate(2, committed_lost=None)


def test_out_of_range_that_is_in_range_by_now_is_fetched_again_later() -> None:
    follower = following(ModelLog("0011"))
    assert follower.offsets_listed(next_fetch(follower), 0, 9, 0) is Hold.BACKOFF


def test_a_fenced_epoch_waits_for_metadata() -> None:
    follower = following(ModelLog("0"))
    sent = next_fetch(follower)
    assert follower.answered(sent, FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH), 0) is Hold.FENCED
    assert follower.next_fetch(BACKOFF_MS * 10) is None
    assert follower.answered(sent, FetchAnswer(), 0) is Hold.STALE


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_transient_errors_are_retried_after_doubling_pauses(code: ErrorCode) -> None:
    """Most errors pass within moments: a leader gets a fetch before it knows that it leads."""
    follower = following(ModelLog("0"))
    now_ms = 0
    for pause_ms in (10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS):
        assert follower.answered(next_fetch(follower, now_ms), FetchAnswer(code), now_ms) is Hold.BACKOFF
        assert follower.next_fetch(now_ms + pause_ms - 1) is None
        now_ms += pause_ms
    assert follower.continued(next_fetch(follower, now_ms))
    follower.succeeded()
    assert follower.answered(next_fetch(follower, now_ms), FetchAnswer(code), now_ms) is Hold.BACKOFF
    assert follower.next_fetch(now_ms + 10) is not None, "the next trouble is another one"


def test_a_partition_that_keeps_failing_is_fetched_less_and_less_often() -> None:
    """The leader answers each time, and each time its answer is the trouble."""
    follower = following(ModelLog("0"))
    now_ms = 0
    for pause_ms in (10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS):
        assert follower.answered(next_fetch(follower, now_ms), FetchAnswer(), now_ms) == Append(-1, -1)
        follower.failed(now_ms)
        assert follower.next_fetch(now_ms + pause_ms - 1) is None
        now_ms += pause_ms
        assert follower.continued(next_fetch(follower, now_ms))


# -- with the real log


def _bytes_from(log: Log, offset: int) -> bytes:
    found = log.read(offset, 1 << 20, upper=log.end_offset)
    return b"" if found is None else found.read()


def test_real_logs_converge_and_are_equal_byte_for_byte() -> None:
    """Two leaders wrote what the other never saw: the follower cuts and copies until both hold the same."""
    leader, log = open_log(), open_log()
    for epoch, count in ((0, 3), (2, 2), (3, 4)):
        leader.append(batch(count, value=b"leader"), epoch)
    for epoch, count in ((0, 3), (1, 4), (4, 1)):
        log.append(batch(count, value=b"%d" % (epoch if epoch else 9)), epoch)
    follower = FollowerState(1, 5, log, BACKOFF_MS)
    for _ in range(10):
        sent = next_fetch(follower)
        diverging = diverging_epoch(leader, 5, sent.fetch_offset, sent.last_fetched_epoch)
        step = follower.answered(sent, FetchAnswer(diverging=diverging, high_watermark=9), 0)
        if isinstance(step, Truncate):
            log.truncate_to(step.offset)
        elif sent.fetch_offset < leader.end_offset:
            log.append_replicated(_bytes_from(leader, sent.fetch_offset))
    assert log.end_offset == leader.end_offset == 9
    assert log.leader_epochs.epochs == leader.leader_epochs.epochs == [0, 2, 3]
    assert log.leader_epochs.starts == [0, 3, 5]
    assert _bytes_from(log, 3) == _bytes_from(leader, 3)
