"""How a broker watches its clock: readings, heartbeats, log events, and the file that outlives a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from penstock.broker.node import clock_watch
from penstock.broker.node.clock_watch import ClockWatch
from penstock.metadata.clocks import CLOCK_UNKNOWN, CLOCKS_DISAGREE
from penstock.model.config import BrokerConfig
from penstock.storage.clock_file import ClockFile
from penstock.storage.memory import MemoryFiles
from penstock.timekeeping.rounds import Survey
from penstock.timekeeping.trust import Standing

T = TypeVar("T")
LIMIT_MS = 300_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GRACE_MS = 6 * HOUR_MS
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


class AtOnce:
    """Workers that are done when they are called."""

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function(*args))
        except OSError as e:
            done.set_exception(e)
        return done

    in_process = in_thread

    def close(self) -> None: ...


class Watched:
    def __init__(self, *, alone: bool) -> None:
        self.clock = SetClock()
        self.alone = alone
        self.reported: list[bool] = []
        self.files = MemoryFiles()
        self.files.makedirs("/data")
        self.config = BrokerConfig({"node.id": "1"})
        self.watch = self.started(is_new=True)

    def started(self, *, is_new: bool = False) -> ClockWatch:
        file = ClockFile(self.files, "/data", 1, "id")
        self.watch = ClockWatch(
            self.config, self.clock, AtOnce(), file, lambda: self.alone, self.reported.append, is_new=is_new
        )
        return self.watch

    def compare(self, reference_ms: int | None = None, *, takes_ms: int = 0, vouched: int = 1) -> None:
        """A heartbeat, answered with what other brokers' clocks say half way."""
        sent = self.watch.check()
        half_way = self.clock.true_ms + takes_ms // 2
        self.clock.passed_ms += takes_ms
        self.watch.compared(sent, half_way if reference_ms is None else reference_ms, vouched)

    def is_trusted(self) -> bool:
        now_ms = self.watch.now_ms()
        assert now_ms in (None, self.clock.now_ms())
        return now_ms is not None

    def save(self) -> None:
        asyncio.run(self.watch.save())


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
    watched.started(is_new=True)
    watched.compare()

    assert not watched.is_trusted()
    assert watched.watch.skew_ms == ahead_ms
    assert watched.watch.suspended is not None
    assert str(abs(ahead_ms)) in watched.watch.suspended


@pytest.mark.parametrize("ahead_ms", [LIMIT_MS, -LIMIT_MS, 0])
def test_a_clock_within_the_limit_is(watched: Watched, ahead_ms: int) -> None:
    watched.clock.ahead_ms = ahead_ms
    watched.started(is_new=True)
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
    for ahead_ms in (0, 0, DAY_MS, 2 * DAY_MS, 0):
        watched.clock.ahead_ms = ahead_ms
        watched.compare()

    assert watched.reported == [True, False, True]


def test_a_clock_has_to_be_clearly_back(watched: Watched) -> None:
    watched.compare()
    watched.compare(watched.clock.true_ms - LIMIT_MS - 1)
    watched.compare(watched.clock.true_ms - LIMIT_MS + 1)
    assert not watched.is_trusted()

    watched.compare(watched.clock.true_ms - LIMIT_MS * 3 // 4)
    assert watched.is_trusted()


def test_a_slow_answer_proves_little(watched: Watched) -> None:
    """The reference was read at any time between request and answer."""
    watched.clock.ahead_ms = LIMIT_MS + 10_000
    watched.started(is_new=True)
    watched.compare(takes_ms=60_000)
    assert watched.watch.suspended is not None
    assert not watched.is_trusted()

    watched.clock.ahead_ms = 0
    watched.started(is_new=True)
    watched.compare()
    watched.compare(watched.clock.true_ms - LIMIT_MS, takes_ms=120_000)
    assert watched.is_trusted()


def test_a_jump_counts_before_the_next_heartbeat(watched: Watched) -> None:
    watched.compare()
    watched.clock.ahead_ms = 2 * DAY_MS
    assert not watched.is_trusted()
    assert watched.watch.report() == (watched.clock.now_ms(), Standing.HELD)

    # All clocks were set together: that proves nothing.
    watched.compare(watched.clock.now_ms(), vouched=0)
    assert not watched.is_trusted()
    # The others have watched the time while this machine slept.
    watched.compare(watched.clock.now_ms())
    assert watched.is_trusted()


def test_a_jump_between_request_and_answer_is_not_overlooked(watched: Watched) -> None:
    watched.compare()
    sent = watched.watch.read()
    watched.clock.ahead_ms = 2 * DAY_MS
    watched.watch.compared(sent, watched.clock.true_ms, 1)

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


def test_a_confirmed_time_is_a_config(alone: Watched) -> None:
    alone.watch.check()
    alone.clock.ahead_ms = 2 * DAY_MS
    assert not alone.is_trusted()

    confirmed = {"penstock.clock.confirmed.ms": str(alone.clock.now_ms() - 1000)}
    alone.config.set_dynamic(dynamic={}, dynamic_default=confirmed)

    assert alone.is_trusted()


def test_a_second_broker_is_compared_with(alone: Watched) -> None:
    alone.clock.ahead_ms = 2 * DAY_MS
    alone.started(is_new=True)
    assert alone.is_trusted()
    alone.alone = False
    alone.compare()

    assert not alone.is_trusted()


# -- the file


def test_the_time_before_a_stop_is_compared(alone: Watched, events: list[str]) -> None:
    alone.watch.check()
    alone.save()
    alone.clock.passed_ms += 10_000
    alone.started()
    assert alone.is_trusted()

    alone.save()
    alone.clock.ahead_ms = 2 * DAY_MS
    alone.started()
    assert not alone.is_trusted()
    assert events == ["deletion_by_time_suspended"]


def test_a_damaged_file_counts_as_none(alone: Watched, events: list[str]) -> None:
    alone.save()
    alone.files.write_atomic("/data/clock-checkpoint", b"1\n")
    alone.started()
    assert not alone.is_trusted()
    assert events == ["clock_file_refused", "deletion_by_time_suspended"]


def test_a_disk_that_refuses_the_file_is_logged_once(
    alone: Watched, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(alone.files, "write_atomic", refuse)
    for _ in range(2):
        alone.save()
    assert events == ["clock_not_saved"]


# -- rounds of retention


@pytest.fixture
def overdue(alone: Watched) -> Iterator[Watched]:
    """All records were too old already at the start."""
    assert alone.is_trusted()
    assert not alone.watch.may_delete_overdue(Survey(10, 10))
    yield alone


def test_a_round_that_would_delete_everything_waits(alone: Watched, events: list[str]) -> None:
    assert not alone.watch.may_delete_overdue(Survey(10, 10))
    alone.clock.passed_ms += GRACE_MS
    assert alone.watch.doubt is not None
    assert alone.watch.may_delete_overdue(Survey(10, 10))
    assert events == ["retention_round_waits"]


def test_a_restart_continues_the_wait_of_a_round(overdue: Watched) -> None:
    overdue.clock.passed_ms += GRACE_MS - 1000
    overdue.watch.may_delete_overdue(Survey(10, 10))
    overdue.save()
    overdue.started()
    assert not overdue.watch.may_delete_overdue(Survey(10, 10))
    overdue.clock.passed_ms += 1000
    assert overdue.watch.may_delete_overdue(Survey(10, 10))


def test_an_older_file_does_not_shorten_the_wait_of_a_round(overdue: Watched) -> None:
    overdue.clock.passed_ms += GRACE_MS - 1000
    overdue.watch.may_delete_overdue(Survey(10, 10))
    overdue.save()
    overdue.clock.passed_ms += DAY_MS
    overdue.started()
    assert not overdue.watch.may_delete_overdue(Survey(10, 10))
    overdue.clock.passed_ms += 1000
    assert not overdue.watch.may_delete_overdue(Survey(10, 10))
