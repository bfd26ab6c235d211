"""Log events on a terminal: fields in order, control characters escaped, colours on request."""

from __future__ import annotations

from typing import Any

from penstock.broker.base.log_lines import human_line

EVENT: dict[str, Any] = {
    "timestamp": "2026-01-02T03:04:05.678+00:00",
    "level": "warning",
    "component": "replicas",
    "event": "unclean_leader",
}


def line(coloured: bool = False, **fields: Any) -> str:
    return human_line(coloured)(None, "", EVENT | fields)


def test_a_line_has_level_component_event_and_fields() -> None:
    assert line(partition="t-0", ok=True).endswith(
        "05.678 warning replicas     unclean_leader partition=t-0 ok=true"
    )


def test_a_value_of_a_client_cannot_control_the_terminal() -> None:
    assert line(client="\x1b[2Jx").endswith(r"client='\x1b[2Jx'")
    assert line(client="two words", empty="").endswith("client='two words' empty=''")


def test_a_traceback_follows_the_line() -> None:
    assert line(exception="Traceback").endswith("unclean_leader\nTraceback")


def test_colours_are_only_for_terminals() -> None:
    assert "\x1b[" not in line()
    assert "\x1b[33mwarning" in line(coloured=True)
