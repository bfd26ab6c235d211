"""The help of commands: groups, whole summaries, examples that are valid, colours on a terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer.main

from penstock.cli.app import app
from penstock.cli.command_table import GROUPS, SUMMARIES
from penstock.cli.help_text import examples_of
from tests.cli.running import run_here


def _root() -> Any:
    return typer.main.get_command(app)


def _leaves(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path.strip(), command
        return
    for name, each in below.items():
        if not each.hidden:
            yield from _leaves(each, f"{path} {name}")


_EXAMPLES: Final = {path: examples_of(command) for path, command in _leaves(_root())}


@pytest.mark.parametrize("path", sorted(_EXAMPLES))
def test_every_command_has_examples_which_are_valid_command_lines(path: str) -> None:
    """They are parsed as far as the function of the command, which is not called."""
    assert any(
        f"penstock {path}" in each.replace("--encryption-keys keys.json ", "") for each in _EXAMPLES[path]
    )
    for example in _EXAMPLES[path]:
        words = shlex.split(example.rpartition("| ")[2], comments=True)
        assert words[0] == "penstock", example
        command, arguments = _root(), words[1:]
        context = command.make_context("penstock", list(arguments))
        arguments = [*context._protected_args, *context.args]
        while getattr(command, "commands", None) is not None:
            _, command, arguments = command.resolve_command(context, arguments)
            context = command.make_context(command.name, list(arguments), parent=context)
            arguments = [*getattr(context, "_protected_args", ()), *context.args]


def test_examples_are_at_the_end_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("topic", "delete", "--help") == 0
    assert capsys.readouterr().out.endswith("    penstock topic delete mistake --yes\n")


def test_commands_are_in_groups_and_no_summary_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_here("--help") == 0
    text = capsys.readouterr().out
    assert all(f"\n{title}:\n" in text for title in GROUPS)
    assert "..." not in text.partition("Start here:")[2]
    assert "acknowledged messages." in text
    assert max(map(len, text.splitlines())) <= 80
    assert run_here("log", "--help") == 0
    assert "exit with\n" in capsys.readouterr().out.replace("1 if", "\n")


@pytest.mark.parametrize(
    ("typed", "meant"), [("start", "up"), ("topics", "topic"), ("publish", "produce"), ("tpic", "topic")]
)
def test_unknown_commands_have_a_suggestion(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(typed, "x") == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in capsys.readouterr().err


def test_headings_have_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    root = _root()
    assert "\x1b[" in root.get_help(root.make_context("penstock", [], resilient_parsing=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in root.get_help(root.make_context("penstock", [], resilient_parsing=True))


def test_help_on_a_pipe_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("--help") == 0
    assert "\x1b[" not in capsys.readouterr().out


def test_the_table_has_the_first_sentence_of_each_command() -> None:
    commands = _root().commands
    assert {name: commands[name].get_short_help_str(limit=1000) for name in commands} == SUMMARIES
    assert not any(commands[name].hidden for name in commands)


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({}, ["--help"]),
        ({"_PENSTOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "penstock to"}, []),
        ({"_PENSTOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "penstock --prof"}, []),
    ],
    ids=["help", "command", "option"],
)
def test_the_help_and_completion_of_the_root_load_no_command(
    environment: dict[str, str], arguments: list[str]
) -> None:
    script = (
        "import sys\nfrom penstock.cli import main\ntry:\n    main()\nfinally:\n"
        "    loaded = [name for name in sys.modules if name.startswith('penstock.cli.commands.')]\n"
        "    print(f'loaded: {loaded}, {'asyncio' in sys.modules}', file=sys.stderr)\n"
    ).replace("'asyncio'", '"asyncio"')
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "loaded: [], False" in done.stderr
    assert "topic" in done.stdout or "--profile" in done.stdout
