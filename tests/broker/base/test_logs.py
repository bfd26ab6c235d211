"""The log: one line per event, filtered by level, silent until configured."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.broker.base import logs


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logs, "_take", None)
    monkeypatch.setattr(logs, "_lines", None)
    monkeypatch.setattr(logs, "_loggers", {})
    monkeypatch.setattr(logs, "_levels", {logs.ROOT: "info"})
    yield


def test_nothing_is_written_before_configure(capfd: pytest.CaptureFixture[str]) -> None:
    logs.get_logger("flusher").error("directory_offline")
    assert capfd.readouterr() == ("", "")


def test_text_is_key_value_pairs_on_one_line() -> None:
    stream = io.StringIO()
    log = logs.get_logger("flusher")
    logs.configure("info", "text", stream)
    log.info("flushed", bytes=5, path="a b", note="two\nlines")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("timestamp=")
    assert line.endswith(r'level=info component=flusher event=flushed bytes=5 path="a b" note=two\nlines')


def test_a_line_for_people_starts_with_time_and_level_and_quotes_control_characters() -> None:
    stream = io.StringIO()
    logs.configure("info", "human", stream)
    logs.get_logger("flusher").warning("flushed", bytes=5, clean=True, client="a\x1b[2Jb", path="a b")
    (line,) = stream.getvalue().splitlines()
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} warning flusher      flushed ", line)
    assert line.endswith(r"bytes=5 clean=true client='a\x1b[2Jb' path='a b'")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_levels_have_colours_on_a_terminal_unless_no_color_is_set(
    no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    logs.configure("info", "human", stream)
    logs.get_logger("any").error("failed")
    assert ("\x1b[1;31merror" in stream.getvalue()) is coloured


def test_a_traceback_for_people_follows_its_line() -> None:
    stream = io.StringIO()
    logs.configure("info", "human", stream)
    try:
        raise ValueError("boom")
    except ValueError:
        logs.get_logger("requests").error("handler_failed", exc_info=True)
    first, *traceback = stream.getvalue().splitlines()
    assert first.endswith("handler_failed")
    assert traceback[-1] == "ValueError: boom"


def test_json_is_one_object_per_line_and_takes_a_traceback_as_a_field() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    try:
        raise ValueError("boom")
    except ValueError:
        logs.get_logger("requests").error("handler_failed", api="Fetch", exc_info=True)
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["component"], event["api"]) == (
        "handler_failed",
        "error",
        "requests",
        "Fetch",
    )
    assert "ValueError: boom" in event["exception"]


@pytest.mark.parametrize(("level", "written"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_events_below_the_level_are_dropped(level: str, written: int) -> None:
    stream = io.StringIO()
    logs.configure(level, "text", stream)
    log = logs.get_logger("any")
    log.debug("one")
    log.info("two")
    log.warning("three")
    log.error("four")
    assert len(stream.getvalue().splitlines()) == written


def test_a_component_has_one_logger() -> None:
    assert logs.get_logger("net") is logs.get_logger("net")


@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "code"), [("pass", 0), ("raise SystemExit(3)", 3), ("raise ValueError('boom')", 1)]
)
def test_queued_lines_are_written_when_the_process_ends(end: str, code: int) -> None:
    """The thread is a daemon: without a flush its queue would be lost."""
    program = f"""
from functools import partial
from penstock.broker.base import logs
from penstock.broker.base.descriptor_writes import write_all
logs.configure_queued("info", "text", partial(write_all, 1))
for n in range(2000):
    logs.get_logger("any").info("counted", n=n)
{end}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert [line.rpartition("=")[2] for line in done.stdout.splitlines()] == [str(n) for n in range(2000)]


def test_dropped_lines_are_a_line_and_a_metric() -> None:
    may_write = threading.Event()
    written: list[bytes] = []

    def write(data: bytes) -> None:
        may_write.wait()
        written.append(data)

    lines = logs.configure_queued("info", "text", write)
    log, note = logs.get_logger("any"), "x" * 100_000
    while not lines.dropped["info"]:
        log.info("counted", note=note)
    while not lines.dropped["warning"]:
        log.warning("counted", note=note)
    log.error("kept")
    assert logs.dropped_lines() == {"debug": 0, "info": 1, "warning": 1, "error": 0}
    may_write.set()
    assert logs.flush(30.0)
    text = b"".join(written).decode()
    assert "level=warning component=logs event=log_lines_dropped dropped=1 info=1 reason=" in text
    assert "event=log_lines_dropped dropped=1 warning=1" in text and "event=kept" in text
    assert len(written) < text.count("\n") < 200
