"""Answers that are still to come when the session of their connection ends (KIP-368)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.model.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Parts
from penstock.net.session_end import SessionEnd
from penstock.security.principal import Session
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.share_fetch import SHARE_FETCH
from penstock.wire.messages import decode_response


class Timed:
    """A connection whose time and timers are moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.session = Session(expires_at=10.0)
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.failures: list[str] = []

    def loop_time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_s, callback))

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def pass_to(self, now: float) -> None:
        self.now = now
        while due := [timer for timer in self.timers if timer[0] <= now]:
            self.timers.remove(due[0])
            due[0][1]()


def waiting(timed: Timed, key: int, version: int) -> tuple[SessionEnd, Deferred[Parts | None], list[str]]:
    end = SessionEnd(cast(Connection, timed))
    end.begins(timed.session)
    answer: Deferred[Parts | None] = Deferred()
    cancelled: list[str] = []
    answer.on_cancel = lambda: cancelled.append("cancelled")
    answer.convert = lambda message: [message]
    end.guard(answer, memoryview(struct.pack(">hhi", key, version, 7)))
    return end, answer, cancelled


@pytest.mark.parametrize(("api", "version"), [(FETCH, 7), (FETCH, 17), (SHARE_FETCH, 1)])
def test_fetches_are_answered_with_an_error_and_wait_no_longer(api: Any, version: int) -> None:
    """A ShareFetch that still waited would acquire records that its member never gets."""
    timed = Timed()
    _, answer, cancelled = waiting(timed, api.key, version)
    timed.pass_to(9.0)
    assert not answer.done
    timed.pass_to(10.0)
    assert cancelled == ["cancelled"]
    parts: Any = answer.value
    content = memoryview(b"".join(parts))
    assert content[4:8] == (7).to_bytes(4, "big")
    response = decode_response(api, version, content[4:])
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not timed.failures


@pytest.mark.parametrize(("api", "version"), [(FETCH, 6), (JOIN_GROUP, 9)])
def test_requests_without_such_an_error_end_the_connection(api: Any, version: int) -> None:
    timed = Timed()
    _, answer, _ = waiting(timed, api.key, version)
    timed.pass_to(10.0)
    assert answer.value is None and len(timed.failures) == 1


def test_the_outcome_of_a_change_is_answered() -> None:
    timed = Timed()
    _, answer, cancelled = waiting(timed, PRODUCE.key, 9)
    timed.pass_to(20.0)
    assert not answer.done and not cancelled
    answer.resolve(b"stored")  # type: ignore[arg-type]
    assert answer.value == [b"stored"]


def test_records_that_come_with_the_end_are_not_sent() -> None:
    """The timer is late: other callbacks of the loop may run before it."""
    timed = Timed()
    _, answer, _ = waiting(timed, FETCH.key, 16)
    timed.now = 10.5
    answer.resolve(b"records")  # type: ignore[arg-type]
    parts: Any = answer.value
    assert b"records" not in b"".join(parts)


def test_authentication_in_time_moves_the_end() -> None:
    timed = Timed()
    end, answer, _ = waiting(timed, FETCH.key, 16)
    timed.session = Session(expires_at=20.0)
    end.begins(timed.session)
    timed.pass_to(15.0)
    assert not answer.done
    timed.pass_to(20.0)
    assert answer.done


def test_a_session_of_centuries_needs_no_timer_of_centuries() -> None:
    timed = Timed()
    timed.session = Session(expires_at=1e10)
    waiting(timed, FETCH.key, 16)
    ((at, _),) = timed.timers
    assert at <= 86_400
