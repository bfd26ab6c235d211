"""A log that clients cannot flood."""

from __future__ import annotations

from typing import Any

from penstock.observability.limited_log import LimitedLog


def test_each_event_has_a_limit_of_its_own_and_the_next_one_has_the_number_left_out() -> None:
    now, written = [1000.0], list[tuple[str, dict[str, Any]]]()
    log = LimitedLog(lambda event, **fields: written.append((event, fields)), lambda: now[0], per_minute=2)
    for nth in range(5):
        log("refused", nth=nth)
    log("rejected", nth=0)
    assert written == [("refused", {"nth": 0}), ("refused", {"nth": 1}), ("rejected", {"nth": 0})]
    written.clear()
    now[0] += 60
    log("refused", nth=5)
    log("refused", nth=6)
    assert written == [("refused", {"nth": 5, "left_out": 3}), ("refused", {"nth": 6})]


def test_long_texts_are_cut() -> None:
    written = list[dict[str, Any]]()
    log = LimitedLog(lambda event, **fields: written.append(fields), lambda: 0.0)
    log("refused", name="x" * 30_000, bytes=10**300)
    assert written == [{"name": "x" * 256, "bytes": 10**300}]
