"""Limits, equal events and dropped ones on the way to the sinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.broker.base.audit_output import ACCESSES, ATTEMPTS, CHANGES, DATA_CHANGES, SESSIONS, AuditOutput


class Sink:
    name = "file"
    dropped = 0

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def put(self, event: dict[str, Any]) -> bool:
        self.events.append(event)
        return True


def test_each_kind_has_a_limit_of_its_own() -> None:
    sink = Sink()
    output = AuditOutput(2, lambda: 0.0, to_log=False, sinks=[sink])
    for kind in (ATTEMPTS, CHANGES, DATA_CHANGES, SESSIONS, ACCESSES):
        for _ in range(5):
            output.emit({"event": kind}, kind)
    assert [event["event"] for event in sink.events] == [
        kind for kind in (ATTEMPTS, CHANGES, DATA_CHANGES, SESSIONS, ACCESSES) for _ in range(2)
    ]
    # The next event of any kind has the number of those that were dropped.
    assert output.dropped == {"limit": 15, "file": 0}
    assert [event.get("dropped") for event in sink.events] == [None, None, 3, None, 3, None, 3, None, 3, None]


def test_all_sinks_get_events_with_their_time() -> None:
    sinks = [Sink(), Sink()]
    output = AuditOutput(9, lambda: 0.0, to_log=False, sinks=sinks, wall_ms=lambda: 1234)
    output.emit({"event": "x"}, ATTEMPTS)
    assert [sink.events for sink in sinks] == [[{"event": "x", "time": 1234}]] * 2


def test_counts_of_open_windows_are_written_at_the_end() -> None:
    """A stopping broker lost how often the last events had happened again."""
    sink, timers = Sink(), list[Callable[[], None]]()
    output = AuditOutput(
        9,
        lambda: 0.0,
        to_log=False,
        sinks=[sink],
        aggregation_s=1.0,
        call_later=lambda _, call: timers.append(call),
    )
    for _ in range(3):
        output.repeat({"event": "x"})
    output.repeat({"event": "y"})
    output.close()
    assert [(event["event"], event.get("count")) for event in sink.events] == [
        ("x", None),
        ("y", None),
        ("x", 2),
    ]
    output.close()
    assert len(sink.events) == 3


def test_events_that_were_dropped_last_are_reported_at_the_end() -> None:
    sink = Sink()
    output = AuditOutput(1, lambda: 0.0, to_log=False, sinks=[sink])
    for _ in range(4):
        output.emit({"event": "x"}, ATTEMPTS)
    output.close()
    output.close()
    assert [(event["event"], event.get("dropped")) for event in sink.events] == [
        ("x", None),
        ("audit_events_dropped", 3),
    ]
