"""Tables and JSON."""

from __future__ import annotations

import json

import pytest

from penstock.cli.output import print_rows

ROWS = [{"name": "a" * 150, "count": 5, "ok": True, "of": [1, 2], "none": None}, {"name": "b", "count": -10}]
COLUMNS = ("name", "count", "ok", "of", "none")


def test_a_table_on_a_pipe_cuts_nothing_and_aligns_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=False, columns=COLUMNS, empty="nothing")
    _, header, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == list(COLUMNS)
    assert first.split() == ["a" * 150, "5", "yes", "1,2", "-"]
    assert first.index("5") == second.index("10") + 1


def test_markup_in_a_value_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "[bold]x[/bold]"}], as_json=False, columns=("name",), empty="nothing")
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_json_has_everything_and_nothing_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, as_json=True, columns=("name",), empty="nothing")
    assert json.loads(capsys.readouterr().out) == ROWS
    print_rows([], as_json=True, columns=("name",), empty="nothing")
    assert capsys.readouterr() == ("[]\n", "")
    print_rows([], as_json=False, columns=("name",), empty="nothing")
    assert capsys.readouterr() == ("", "nothing\n")
