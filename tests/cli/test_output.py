"""Tables and JSON."""

from __future__ import annotations

import io
import json
import sys

import pytest

from penstock.cli.output import print_line, print_rows

ROWS = [{"name": "a" * 150, "count": 5, "ok": True, "of": [1, 2], "none": None}, {"name": "b", "count": -10}]
COLUMNS = ("name", "count", "ok", "of", "none")


def test_a_table_on_a_pipe_cuts_nothing_and_aligns_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=False, columns=COLUMNS, empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    header, first, second = lines
    assert header.split() == list(COLUMNS)
    assert lines == [line.rstrip() for line in lines]
    assert first.split() == ["a" * 150, "5", "yes", "1,2", "-"]
    assert first.index("5") == second.index("10") + 1


def test_a_table_on_a_pipe_is_plain_even_where_colours_are_forced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    print_rows(
        [{"state": "down", "name": "n" * 60}], as_json=False, columns=("state", "name"), empty="nothing"
    )
    print_line("1 without a leader", "bold red")
    assert capsys.readouterr().out == f"state  name\ndown   {'n' * 60}\n1 without a leader\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, rows: list[dict[str, object]]) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    print_rows(rows, as_json=False, columns=tuple(rows[0]), empty="nothing")
    return terminal.getvalue()


def test_states_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    written = on_terminal(monkeypatch, 80, [{"broker": 1, "state": "up"}, {"broker": 2, "state": "down"}])
    assert "\x1b[32mup" in written
    assert "\x1b[1;31mdown" in written


def test_no_color_leaves_colours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in on_terminal(monkeypatch, 80, [{"broker": 1, "state": "up"}])


def test_on_a_narrow_terminal_long_values_are_folded_and_short_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    written = on_terminal(monkeypatch, 40, [{"address": "127.0.0.1:9092", "value": "v" * 60}])
    assert "127.0.0.1:9092 vvv" in written
    assert max(len(line.rstrip()) for line in written.splitlines()[1:]) <= 40
    assert written.count("v") == 61


def test_markup_in_a_value_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "[bold]x[/bold]"}], as_json=False, columns=("name",), empty="nothing")
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_names_of_clients_cannot_control_a_terminal_or_add_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"group": "a\x1b]0;title\x07\x9b31m"}, {"group": "b\nall  up"}, {"group": "gruppe-ä"}]
    print_rows(rows, as_json=False, columns=("group",), empty="nothing")
    written = capsys.readouterr().out
    assert written.splitlines() == ["group", "a␛]0;title␇⟨U+009B⟩31m", "b␊all  up", "gruppe-ä"]


def test_json_has_everything_and_nothing_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=True, columns=("name",), empty="nothing")
    assert json.loads(capsys.readouterr().out) == ROWS
    print_rows([], as_json=True, columns=("name",), empty="nothing")
    assert capsys.readouterr() == ("[]\n", "")
    print_rows([], as_json=False, columns=("name",), empty="nothing")
    assert capsys.readouterr() == ("", "nothing\n")
