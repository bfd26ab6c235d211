"""Logins are limited by address and by user; the tables of both are bounded."""

from __future__ import annotations

import pytest

from penstock.console.web import login_limits
from penstock.console.web.login_limits import LoginLimits, TooManyLogins


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> LoginLimits:
    return LoginLimits(clock)


def fail(limits: LoginLimits, address: str, user: str, times: int) -> int:
    """How many of some wrong guesses reach the brokers."""
    reached = 0
    for _ in range(times):
        try:
            limits.failed(limits.begin(address, user))
            reached += 1
        except TooManyLogins:
            break
    return reached


def succeed(limits: LoginLimits, address: str, user: str) -> None:
    limits.succeeded(limits.begin(address, user))


def test_guesses_of_an_address_slow_down(limits: LoginLimits, clock: Clock) -> None:
    assert fail(limits, "203.0.113.7", "alice", 1000) == 10
    with pytest.raises(TooManyLogins, match="from this address have failed: try again in 30 s") as refused:
        limits.begin("203.0.113.7", "bob")
    assert refused.value.retry_after_s == 30
    clock.now += 29.0
    assert fail(limits, "203.0.113.7", "alice", 1) == 0
    clock.now += 1.0
    assert fail(limits, "203.0.113.7", "alice", 9) == 1
    clock.now += 3600.0
    assert fail(limits, "203.0.113.7", "alice", 1000) == 10


def test_other_addresses_are_not_affected(limits: LoginLimits) -> None:
    fail(limits, "203.0.113.7", "alice", 1000)
    succeed(limits, "203.0.113.8", "bob")
    fail(limits, "2001:db8:0:1::1", "carol", 1000)
    with pytest.raises(TooManyLogins):
        limits.begin("2001:db8:0:1:ffff::2", "dora")
    succeed(limits, "2001:db8:0:2::1", "erin")


def test_many_addresses_cannot_guess_one_password(limits: LoginLimits) -> None:
    reached = sum(fail(limits, f"203.0.113.{n}", "alice", 5) for n in range(100))
    assert reached == 20
    with pytest.raises(TooManyLogins, match="of this user have failed"):
        limits.begin("198.51.100.1", "alice")
    succeed(limits, "198.51.100.1", "bob")


def test_a_user_is_not_locked_out_of_a_known_address(limits: LoginLimits) -> None:
    succeed(limits, "198.51.100.1", "alice")
    for n in range(100):
        fail(limits, f"203.0.113.{n}", "alice", 5)
    succeed(limits, "198.51.100.1", "alice")
    assert fail(limits, "198.51.100.1", "alice", 1000) == 10


def test_logins_that_succeed_cost_nothing(limits: LoginLimits) -> None:
    for n in range(100):
        succeed(limits, "203.0.113.7", f"user-{n}")
    assert fail(limits, "203.0.113.7", "alice", 1000) == 10


def test_logins_that_no_broker_decides_cost_nothing(limits: LoginLimits) -> None:
    for _ in range(100):
        limits.undecided(limits.begin("203.0.113.7", "alice"))
    assert fail(limits, "203.0.113.7", "alice", 1000) == 10


def test_guesses_at_the_same_time_count(limits: LoginLimits) -> None:
    under_way = []
    with pytest.raises(TooManyLogins):
        while True:
            under_way.append(limits.begin("203.0.113.7", "alice"))
    assert len(under_way) == 10
    for n in range(login_limits.CONCURRENT_MAX - 10):
        under_way.append(limits.begin(f"198.51.100.{n}", f"user-{n}"))
    with pytest.raises(TooManyLogins, match="under way"):
        limits.begin("198.51.100.99", "bob")
    for attempt in under_way:
        limits.failed(attempt)
    succeed(limits, "198.51.100.99", "bob")


def test_tables_are_bounded(limits: LoginLimits, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_limits, "_ENTRIES_MAX", 50)
    for n in range(500):
        fail(limits, f"10.0.{n // 250}.{n % 250}", f"user-{n}", 1)
        succeed(limits, f"10.1.{n // 250}.{n % 250}", f"other-{n}")
    assert len(limits._addresses._left) <= 50
    assert len(limits._users._left) <= 50
    assert len(limits._known) <= 50
    # Those with all their tokens go first.
    fail(limits, "203.0.113.7", "alice", 1000)
    clock.now += 60.0
    for n in range(60):
        fail(limits, f"10.2.0.{n}", f"late-{n}", 1)
    assert fail(limits, "203.0.113.7", "alice", 1000) < 10
