"""Ctrl-C, SIGTERM and a closed terminal as an event to wait for, for commands with work at their end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

__all__ = ["stoppable"]


@contextmanager
def stoppable(*, patient: bool = True) -> Iterator[Event]:
    """An event that is set by the first such signal; a second one interrupts, unless `patient`."""
    stop = Event()

    def hear(*_: object) -> None:
        if stop.is_set() and not patient:
            raise KeyboardInterrupt
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else it shall outlive its terminal
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
