"""When a broker trusts its own wall clock: compared with others, and alone."""

from __future__ import annotations

import pytest

from penstock.broker.node import clock_watch
from penstock.broker.node.clock_watch import ClockWatch
from penstock.metadata.clocks import CLOCK_UNKNOWN, CLOCKS_DISAGREE

LIMIT_MS = 300_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


class SetClock:
    """A clock whose wall time is set by the test."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.passed_ms + self.ahead_ms

    def monotonic(self) -> float:
        return 77.0 + self.passed_ms / 1000

    @property
    def true_ms(self) -> int:
        return START_MS + self.passed_ms


class Watched:
    def __init__(self, *, alone: bool) -> None:
        self.clock = SetClock()
        self.alone = alone
        self.watch = ClockWatch(self.clock, lambda: LIMIT_MS, lambda: self.alone)

    def compare(self, reference_ms: int | None = None, *, takes_ms: int = 0) -> None:
        """A heartbeat, answered with what other brokers' clocks say half way."""
        sent = self.watch.read()
        half_way = self.clock.true_ms + takes_ms // 2
        self.clock.passed_ms += takes_ms
        self.watch.compared(sent, half_way if reference_ms is None else reference_ms)

    def is_trusted(self) -> bool:
        now_ms = self.watch.now_ms()
        assert now_ms in (None, self.clock.now_ms())
        return now_ms is not None


@pytest.fixture
def watched() -> Watched:
    return Watched(alone=False)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log events, as they come."""
    seen: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(clock_watch.log, level, lambda event, **_: seen.append(event))
    return seen


def test_nothing_is_deleted_before_the_first_comparison(watched: Watched, events: list[str]) -> None:
    assert not watched.is_trusted()
    watched.compare(CLOCK_UNKNOWN)
    assert (watched.is_trusted(), watched.watch.is_compared) == (False, False)
    watched.compare()
    assert (watched.is_trusted(), watched.watch.is_compared) == (True, True)
    assert events == []


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS, LIMIT_MS + 1, -LIMIT_MS - 1])
def test_a_clock_beyond_the_limit_is_not_trusted(watched: Watched, ahead_ms: int) -> None:
    watched.clock.ahead_ms = ahead_ms
    watched.compare()

    assert not watched.is_trusted()
    assert watched.watch.skew_ms == ahead_ms
    assert watched.watch.suspended is not None
    assert str(abs(ahead_ms)) in watched.watch.suspended


@pytest.mark.parametrize("ahead_ms", [LIMIT_MS, -LIMIT_MS, 0])
def test_a_clock_within_the_limit_is(watched: Watched, ahead_ms: int) -> None:
    watched.clock.ahead_ms = ahead_ms
    watched.compare()

    assert watched.is_trusted()


def test_a_change_is_logged_once(watched: Watched, events: list[str]) -> None:
    for _ in range(3):
        watched.compare()
    watched.clock.ahead_ms = DAY_MS
    for _ in range(3):
        watched.compare()
        assert not watched.is_trusted()
    watched.clock.ahead_ms = 0
    for _ in range(3):
        watched.compare()

    assert watched.is_trusted()
    assert events == ["deletion_by_time_suspended", "deletion_by_time_resumed"]


def test_subscribers_are_notified_of_changes_of_the_clock(watched: Watched) -> None:
    reported: list[bool] = []
    watched.watch.on_change = reported.append
    for ahead_ms in (0, 0, DAY_MS, 2 * DAY_MS, 0):
        watched.clock.ahead_ms = ahead_ms
        watched.compare()

    assert reported == [True, False, True]


def test_a_clock_has_to_be_clearly_back(watched: Watched) -> None:
    watched.clock.ahead_ms = LIMIT_MS + 1
    watched.compare()
    watched.clock.ahead_ms = LIMIT_MS - 1
    watched.compare()
    assert not watched.is_trusted()

    watched.clock.ahead_ms = LIMIT_MS * 3 // 4
    watched.compare()
    assert watched.is_trusted()


def test_a_slow_answer_proves_little(watched: Watched) -> None:
    """The reference was read at any time between request and answer."""
    watched.clock.ahead_ms = LIMIT_MS + 10_000
    watched.compare(takes_ms=60_000)
    assert watched.watch.suspended is not None
    assert not watched.is_trusted()

    watched.clock.ahead_ms = 0
    watched.compare()
    watched.compare(watched.clock.true_ms - LIMIT_MS, takes_ms=120_000)
    assert watched.is_trusted()


def test_a_jump_counts_before_the_next_heartbeat(watched: Watched) -> None:
    watched.compare()
    watched.clock.ahead_ms = 2 * DAY_MS
    assert not watched.is_trusted()

    # All clocks were set, as after a night in which all machines slept.
    watched.compare(watched.clock.now_ms())
    assert watched.is_trusted()


def test_a_jump_between_request_and_answer_is_not_overlooked(watched: Watched) -> None:
    watched.compare()
    sent = watched.watch.read()
    watched.clock.ahead_ms = 2 * DAY_MS
    watched.watch.compared(sent, watched.clock.true_ms)

    assert not watched.is_trusted()


def test_a_clock_is_trusted_on_while_no_controller_answers(watched: Watched) -> None:
    watched.compare()
    watched.clock.passed_ms += 30 * DAY_MS

    assert watched.is_trusted()
    watched.compare(CLOCK_UNKNOWN)
    assert watched.is_trusted()


def test_clocks_that_disagree_are_not_trusted(watched: Watched) -> None:
    watched.compare()
    watched.compare(CLOCKS_DISAGREE)
    assert not watched.is_trusted()

    watched.compare()
    assert watched.is_trusted()


# -- alone


@pytest.fixture
def alone() -> Watched:
    return Watched(alone=True)


def test_a_broker_that_is_alone_trusts_the_clock_it_starts_with(alone: Watched) -> None:
    assert alone.is_trusted()
    assert alone.watch.is_compared
    alone.clock.passed_ms += 30 * DAY_MS
    assert alone.is_trusted()


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS])
def test_alone_it_notices_a_jump_and_waits_for_an_hour(alone: Watched, jump_ms: int) -> None:
    alone.watch.check()
    alone.clock.ahead_ms = jump_ms
    assert not alone.is_trusted()
    alone.clock.passed_ms += HOUR_MS - 1
    assert not alone.is_trusted()

    alone.clock.passed_ms += 1
    assert alone.is_trusted()


def test_alone_it_goes_on_when_the_clock_is_back(alone: Watched) -> None:
    alone.watch.check()
    alone.clock.ahead_ms = 2 * DAY_MS
    alone.watch.check()
    alone.clock.ahead_ms = 0

    assert alone.is_trusted()


def test_another_jump_starts_the_hour_again(alone: Watched) -> None:
    alone.watch.check()
    for days in (2, 4):
        alone.clock.ahead_ms = days * DAY_MS
        alone.watch.check()
        alone.clock.passed_ms += HOUR_MS - 1
        assert not alone.is_trusted()


def test_a_clock_that_is_slewed_is_trusted(alone: Watched) -> None:
    for _ in range(100):
        alone.clock.passed_ms += 1000
        alone.clock.ahead_ms += LIMIT_MS // 10
        assert alone.is_trusted()


def test_a_broker_that_is_alone_in_its_cluster_is_alone(alone: Watched) -> None:
    """The controller it compares itself with is itself."""
    alone.compare(alone.clock.now_ms())
    assert alone.is_trusted()
    alone.clock.ahead_ms = 2 * DAY_MS
    alone.compare(alone.clock.now_ms())
    assert not alone.is_trusted()


def test_an_operator_may_accept_the_time(alone: Watched) -> None:
    alone.watch.check()
    alone.clock.ahead_ms = 2 * DAY_MS
    assert not alone.is_trusted()

    alone.watch.accept()

    assert alone.is_trusted()


def test_a_second_broker_is_compared_with(alone: Watched) -> None:
    alone.clock.ahead_ms = 2 * DAY_MS
    assert alone.is_trusted()
    alone.alone = False
    alone.compare()

    assert not alone.is_trusted()
