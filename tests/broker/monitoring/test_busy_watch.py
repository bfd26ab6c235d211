"""The hint of a broker whose core is busy."""

from __future__ import annotations

import pytest

from penstock.broker.monitoring import busy_watch
from penstock.broker.monitoring.busy_watch import BusyWatch


class Clocks:
    """The time, and the time in which the thread ran."""

    wall_s = 1000.0
    busy_s = 5.0

    def watch(self, hint: str = "more") -> BusyWatch:
        return BusyWatch(lambda: self.wall_s, lambda: self.busy_s, hint=hint)

    def advance(self, watch: BusyWatch, seconds: int, share: float) -> None:
        for _ in range(seconds):
            self.wall_s += 1
            self.busy_s += share
            watch.sample()


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    monkeypatch.setattr(
        busy_watch.log, "warning", lambda event, **fields: found.append({"event": event, **fields})
    )
    return found


def test_a_loop_that_is_busy_for_a_minute_has_one_hint_an_hour(hints: list[dict[str, object]]) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.advance(watch, 59, 0.9)
    assert hints == []
    clocks.advance(watch, 1, 0.9)
    assert hints == [{"event": "loop_busy", "share": 0.9, "seconds": 60, "hint": "more"}]
    clocks.advance(watch, 3599, 0.9)
    assert len(hints) == 1
    clocks.advance(watch, 61, 0.9)
    assert len(hints) == 2


def test_a_loop_with_time_to_spare_has_none(hints: list[dict[str, object]]) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.advance(watch, 600, 0.79)
    assert hints == [] and watch.share == pytest.approx(0.79)


def test_a_peak_is_not_a_busy_minute(hints: list[dict[str, object]]) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for _ in range(10):
        clocks.advance(watch, 40, 1.0)
        clocks.advance(watch, 20, 0.1)
    assert hints == []


def test_a_broker_of_a_machine_with_more_brokers_has_none(hints: list[dict[str, object]]) -> None:
    clocks = Clocks()
    clocks.advance(clocks.watch(hint=""), 600, 1.0)
    assert hints == []
