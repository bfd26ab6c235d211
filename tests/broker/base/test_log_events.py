"""Log events keep what they were given, whatever changes before they are rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.log_events import LogEvent, renderer


def event(**fields: Any) -> LogEvent:
    return LogEvent(1_700_000_000.25, "info", "net", "seen", fields)


class Changing:
    def __init__(self) -> None:
        self.state = "before"

    def __repr__(self) -> str:
        return f"<{self.state}>"


def test_a_value_that_changes_later_is_shown_as_it_was() -> None:
    names, nested, thing = ["a"], {"k": ["v"]}, Changing()
    made = event(names=names, nested=nested, thing=thing, pair=(1, thing))
    names.append("b")
    nested["k"].clear()
    thing.state = "after"
    line = renderer("text", False)(made)
    assert line.endswith("names=['a'] nested=\"{'k': ['v']}\" thing=<before> pair=\"(1, <before>)\"")
    shown = json.loads(renderer("json", False)(made))
    assert (shown["names"], shown["nested"], shown["thing"]) == (["a"], {"k": ["v"]}, "<before>")


def test_the_time_is_that_of_the_event() -> None:
    shown = json.loads(renderer("json", False)(event()))
    assert shown == {
        "timestamp": "2023-11-14T22:13:20.250000Z",
        "level": "info",
        "component": "net",
        "event": "seen",
    }


@pytest.mark.parametrize("form", ["exception", "true", "parts"])
def test_a_traceback_is_formatted_where_the_error_is_known(form: str) -> None:
    try:
        raise ValueError("boom")
    except ValueError as error:
        forms: dict[str, Any] = {
            "exception": error,
            "true": True,
            "parts": (ValueError, error, error.__traceback__),
        }
        made = event(exc_info=forms[form])
    assert made.fields["exception"].endswith("ValueError: boom")
    assert "exc_info" not in made.fields


@pytest.mark.parametrize("nothing", [None, False, True])
def test_no_error_has_no_traceback(nothing: Any) -> None:
    assert event(exc_info=nothing).fields == {}


def test_control_characters_of_clients_do_not_reach_a_terminal() -> None:
    line = renderer("text", False)(event(client="a\x1b[2J\rb", path=Path("/x")))
    assert line.endswith(r"client=a\x1b[2J\rb path=/x")


def test_the_size_counts_texts() -> None:
    assert event(text="x" * 10_000).size > 10_000
    assert event(names=["x"] * 1000).size > 1000
