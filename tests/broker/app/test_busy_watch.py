"""The hint of a broker whose core is busy."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.broker.app import busy_watch
from penstock.broker.app.broker import Broker
from penstock.broker.app.busy_watch import BusyWatch
from penstock.cli.cluster.listening import free_block
from penstock.testing import broker
from tests.waiting import eventually


class Clocks:
    """The time, and the time in which the thread ran."""

    wall_s = 1000.0
    busy_s = 5.0

    def watch(self) -> BusyWatch:
        return BusyWatch(lambda: self.wall_s, lambda: self.busy_s, hint="more")

    def advance(self, watch: BusyWatch, seconds: int, share: float) -> None:
        for _ in range(seconds):
            self.wall_s += 1
            self.busy_s += share
            watch.sample()

    def pass_minute(self, share: float) -> None:
        # The thread of a broker may read the clocks in between.
        self.busy_s += 60 * share
        self.wall_s += 60


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


def test_a_loop_with_idle_time_gives_no_hint(hints: list[dict[str, object]]) -> None:
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


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """The clocks of brokers in threads of this process, which open as a process of their own does."""
    found = Clocks()
    monkeypatch.setattr(Broker, "open", partial(Broker.open, is_process=True))
    monkeypatch.setattr(busy_watch, "monotonic", lambda: found.wall_s)
    monkeypatch.setattr(busy_watch, "thread_time", lambda: found.busy_s)
    monkeypatch.setattr(busy_watch, "_INTERVAL_S", 0.01)
    return found


@pytest.mark.parametrize("listener", ["", "127.0.0.1:0"])
def test_a_broker_process_has_hints_with_and_without_a_monitoring_port(
    clocks: Clocks, hints: list[dict[str, object]], listener: str
) -> None:
    with broker(config={"penstock.metrics.listener": listener}) as running:
        assert (running.broker.serving.monitor is None) == (not listener)
        clocks.pass_minute(0.9)
        eventually(lambda: len(hints) == 1)
    assert hints[0]["share"] == 0.9
    assert "`penstock up --cores auto`" in str(hints[0]["hint"])


def test_a_broker_of_a_machine_has_a_hint_without_cores(
    clocks: Clocks, hints: list[dict[str, object]]
) -> None:
    """`penstock up --cores` has started it already."""
    port = str(free_block("127.0.0.1", 1))
    with broker(config={"penstock.metrics.listener": "", "penstock.bootstrap.port": port}):
        clocks.pass_minute(1.0)
        eventually(lambda: len(hints) == 1)
    assert "more partitions on more brokers" in str(hints[0]["hint"])
    assert "--cores" not in str(hints[0]["hint"])


def test_a_broker_in_another_process_has_no_watch() -> None:
    """Its thread does other work, too, for example that of a test."""
    with broker() as running:
        assert running.broker.serving.busy is None
