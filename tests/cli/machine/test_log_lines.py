"""One log stream of several brokers."""

from __future__ import annotations

import json

import pytest

from penstock.broker.base.log_events import LogEvent, LogFormat, renderer
from penstock.broker.base.logs import LEVELS
from penstock.cli.machine.log_lines import LineSplitter, level_of, tagged


def test_a_line_has_its_broker() -> None:
    assert tagged(b"level=info event=started", 3) == b"broker=3 level=info event=started"
    assert json.loads(tagged(b'{"event": "started"}', 3)) == {"broker": 3, "event": "started"}
    assert json.loads(tagged(b"{}", 3)) == {"broker": 3}


@pytest.mark.parametrize("format", ["text", "json", "human"])
@pytest.mark.parametrize("coloured", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_the_level_of_a_line_is_found_in_every_format(format: LogFormat, coloured: bool, level: str) -> None:
    event = LogEvent(1e9, level, "net", "connection_lost", {"reason": "level=error"})
    assert level_of(renderer(format, coloured)(event).encode()) == level


def test_output_that_is_no_event_is_kept_longest() -> None:
    assert level_of(b"Traceback (most recent call last):") == "error"
    assert level_of(b"") == "error"


def test_lines_are_whole() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.feed(b"o\n\nthree") == [b"two", b""]
    assert splitter.end() == [b"three"]
    assert splitter.end() == []


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"x" * (1 << 20)) == []
    assert [len(line) for line in splitter.feed(b"x")] == [(1 << 20) + 1]
    assert splitter.end() == []
