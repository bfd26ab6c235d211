"""Waiting for a second that is not ours."""

from __future__ import annotations

from threading import Event

import pytest

from penstock.telemetry.pacing import paced


def test_pacing_waits_for_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    stop = Event()
    monkeypatch.setattr(stop, "wait", waited.append)
    wait = paced(10.0, stop, clock=lambda: 100.0)
    wait(50.0)
    wait(-50.0)
    paced(0.0, stop, clock=lambda: 100.0)(50.0)
    assert waited == [5.0, 0.0, 0.0]


def test_pacing_ends_with_the_stop_event() -> None:
    stop = Event()
    wait = paced(1.0, stop)
    assert wait(0.0)
    stop.set()
    assert not wait(1e9)
