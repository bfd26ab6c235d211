"""Render `cli-reference.md`: every command of `penstock` with its arguments, options and examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main

from penstock.cli.app import app
from penstock.cli.command_table import GROUPS
from penstock.cli.help_text import examples_of

__all__ = ["PAGE", "render_commands"]

PAGE: Final = Path(__file__).parent / "cli-reference.md"
_HEAD: Final = """\
<!-- Rendered by `make pages` from the commands; edit their help, not this page. -->
# Commands

[The command line](cli.md) describes profiles, output, exit codes and the most common tasks. This page lists
every command with its options, as `penstock COMMAND --help` does. `--command-config` and `--profile` stand
before the command.
"""


def render_commands() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    parts = [_HEAD, f"\n## penstock\n\n{_table('option', _options(root))}"]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            for path, command in _leaves(name, root.commands[name]):
                parts.append(_section(path, command))
    return "".join(parts)


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        if not each.hidden:
            yield from _leaves(f"{path} {name}", each)


def _section(path: str, command: Any) -> str:
    usage = " ".join(piece for piece in command.collect_usage_pieces(_context(path, command)))
    text = [f"\n### penstock {path}\n\n", f"```text\npenstock {path} {usage}\n```\n\n"]
    text.append(_paragraphs(command.help or "") + "\n")
    arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    if any(row[1] for row in arguments):
        text.append("\n" + _table("argument", arguments))
    options = _options(command)
    if options:
        text.append("\n" + _table("option", options))
    if examples := examples_of(command):
        text.append("\n```text\n" + "\n".join(examples) + "\n```\n")
    return "".join(text)


def _context(path: str, command: Any) -> Any:
    return command.context_class(command, info_name=f"penstock {path}")


def _paragraphs(text: str) -> str:
    """The help without the mark of paragraphs that must not be wrapped."""
    paragraphs = (part.strip("\n") for part in text.split("\n\n"))
    return "\n\n".join(_block(part) if part.startswith("\b") else _escaped(part) for part in paragraphs)


def _block(text: str) -> str:
    return "```text\n" + text.removeprefix("\b").strip("\n") + "\n```"


def _argument(parameter: Any) -> tuple[str, str]:
    return f"`{parameter.human_readable_name}`", _described(parameter, getattr(parameter, "help", None) or "")


def _options(command: Any) -> list[tuple[str, str]]:
    found = (each for each in command.params if each.param_type_name == "option")
    return [_option(each) for each in found if not getattr(each, "hidden", False)]


def _option(parameter: Any) -> tuple[str, str]:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    metavar = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return f"`{names}{metavar}`", _described(parameter, parameter.help or "")


def _metavar(parameter: Any) -> str:
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "<" + "|".join(str(getattr(each, "value", each)) for each in choices) + ">"
    return str(parameter.metavar or f"<{parameter.type.name}>")


def _described(parameter: Any, text: str) -> str:
    variables = parameter.envvar
    notes = []
    if variables:
        notes.append(f"environment: `{variables if isinstance(variables, str) else ', '.join(variables)}`")
    if isinstance(parameter.default, int | float | str) and not getattr(parameter, "is_flag", False):
        notes.append(f"default: `{getattr(parameter.default, 'value', parameter.default)}`")
    if parameter.required:
        notes.append("required")
    plain = " ".join(text.split())
    return " ".join([plain, f"({'; '.join(notes)})"] if notes else [plain]).strip()


def _table(kind: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {kind} | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_escaped(_cell(text))} |" for name, text in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text in which `<` is no tag."""
    return "`".join(
        part.replace("<", "&lt;") if number % 2 == 0 else part for number, part in enumerate(text.split("`"))
    )
