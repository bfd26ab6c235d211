"""One log stream of several brokers."""

from __future__ import annotations

import json

from penstock.cli.machine.log_lines import LineSplitter, tagged


def test_a_line_has_its_broker() -> None:
    assert tagged(b"level=info event=started", 3) == b"broker=3 level=info event=started"
    assert json.loads(tagged(b'{"event": "started"}', 3)) == {"broker": 3, "event": "started"}
    assert json.loads(tagged(b"{}", 3)) == {"broker": 3}


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
