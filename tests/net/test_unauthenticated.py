"""Limits of connections that have not authenticated."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.unauthenticated import Unauthenticated


class Loop:
    """Time by hand, with the timers that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Any) -> Any:
        self.timers.append(callback)
        return asyncio.TimerHandle(0, callback, (), cast(Any, self))

    def get_debug(self) -> bool:
        return False

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due, self.timers = self.timers, []
        for callback in due:
            callback()


class Pending:
    def __init__(self, loop: Loop, address: str = "10.0.0.1", listener: str = "A") -> None:
        self.address = address
        self.listener = Listener(listener, "", 0)
        self.pending_since: float | None = loop.time()
        self.is_held = False
        self.reasons: list[str] = []

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


def table(loop: Loop, **limits: Any) -> Unauthenticated:
    return Unauthenticated(cast(Any, loop), lambda: Limits(**limits), memoryview(bytearray(16)))


def test_the_oldest_of_an_address_makes_way() -> None:
    loop = Loop()
    pending = table(loop, max_unauthenticated_per_ip=2)
    first, second, third = (Pending(loop) for _ in range(3))
    elsewhere = [Pending(loop, address="10.0.0.2"), Pending(loop, listener="B")]
    for each in (first, *elsewhere, second, third):
        pending.add(each)
    assert first.reasons == ["too many connections of its address have not authenticated"]
    assert not any(each.reasons for each in (second, third, *elsewhere))
    assert len(pending) == 4


def test_the_oldest_of_a_listener_makes_way() -> None:
    loop = Loop()
    pending = table(loop, max_unauthenticated=3)
    made = [Pending(loop, address=f"10.0.0.{i}") for i in range(5)]
    for each in made:
        pending.add(each)
    assert [bool(each.reasons) for each in made] == [True, True, False, False, False]


def test_an_authenticated_connection_is_not_counted() -> None:
    loop = Loop()
    pending = table(loop, max_unauthenticated_per_ip=1)
    for _ in range(3):
        each = Pending(loop)
        pending.add(each)
        pending.discard(each)
        pending.discard(each)
        assert not each.reasons
    assert len(pending) == 0


def test_a_handshake_and_an_authentication_have_one_deadline() -> None:
    """However little at a time the peer sends; a connection that waits for a slot is not timed."""
    loop = Loop()
    pending = table(loop, authentication_timeout_s=3.0)
    slow, held = Pending(loop), Pending(loop)
    held.is_held = True
    pending.add(slow)
    pending.add(held)
    for _ in range(3):
        loop.pass_time(1.0)
        assert not slow.reasons
    loop.pass_time(1.0)
    assert slow.reasons == ["not authenticated in time"]
    assert not held.reasons
    pending.discard(slow)
    pending.discard(held)
    loop.pass_time(1.0)
    assert not loop.timers, "nothing is timed without such connections"
