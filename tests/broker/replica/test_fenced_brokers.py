"""A broker is listed for a moment after it was fenced."""

from __future__ import annotations

from penstock.broker.replica.fenced_brokers import FencedBrokers


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0


def test_only_a_broker_that_was_fenced_lately_is_listed() -> None:
    clock = Clock()
    brokers = FencedBrokers(clock)
    assert not brokers.is_listed(1)
    brokers.fenced(1)
    clock.now_s += 9.9
    assert brokers.is_listed(1)
    assert not brokers.is_listed(2)
    clock.now_s += 0.2
    assert not brokers.is_listed(1)


def test_a_broker_that_is_fenced_again_is_listed_again() -> None:
    clock = Clock()
    brokers = FencedBrokers(clock)
    brokers.fenced(1)
    clock.now_s += 20.0
    assert not brokers.is_listed(1)
    brokers.fenced(1)
    assert brokers.is_listed(1)
