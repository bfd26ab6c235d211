"""The log: one line per event, filtered by level, silent until configured."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from penstock.broker import logs


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logs, "_writer", None)
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
