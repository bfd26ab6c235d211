"""The help of commands: groups of commands, whole summaries, examples, colours on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

from penstock.cli.command_table import GROUPS, KNOWN_AS, SUMMARIES

__all__ = ["Root", "coloured", "described", "examples", "examples_of"]

_Command = TypeVar("_Command", bound=Callable[..., None])


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Show these lines as examples at the end of the help of a command."""

    def mark(command: _Command) -> _Command:
        command.__dict__["examples"] = lines
        return command

    return mark


def examples_of(command: Any) -> tuple[str, ...]:
    """The examples of a command, as the parser has it."""
    return getattr(command.callback, "examples", ())


class Root(typer.core.TyperGroup):
    """The root command: its help has groups, and an unknown command a suggestion."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = KNOWN_AS.get(args[0]) if args else None
        if meant is not None and args[0] not in self.commands:
            usage_error: Any = typer.BadParameter.__base__
            raise usage_error(f"No such command '{args[0]}'. Did you mean '{meant}'?", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Groups of commands with whole summaries, which the formatter wraps."""
        width = max(map(len, SUMMARIES))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, and options; no command is loaded for them."""
        from typer._click.shell_completion import CompletionItem
        from typer._click.utils import make_default_short_help

        found = [
            CompletionItem(name, help=make_default_short_help(summary))
            for name, summary in SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        # Not the parent class's: it loads each command.
        return found + super(typer.core.TyperGroup, self).shell_complete(ctx, incomplete)


def described(command: Any) -> Any:
    """Give a command, and those below it, colours and their examples."""
    command.context_class = _context_class(type(command).context_class)
    below = getattr(command, "commands", None)
    if below is not None:
        for each in below.values():
            described(each)
        command.format_commands = _whole_commands(command)
        return command
    if lines := examples_of(command):
        # The mark keeps the lines as they are.
        command.epilog = "\b\n" + _styled("Examples:") + "\n" + "\n".join(f"  {line}" for line in lines)
    return command


def coloured(command: Any) -> Any:
    """Give one command colours in its help."""
    command.context_class = _context_class(type(command).context_class)
    return command


def _whole_commands(group: Any) -> Any:
    def format_commands(ctx: Any, formatter: Any) -> None:
        rows = [(name, _summary(each)) for name, each in group.commands.items() if not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    return format_commands


def _summary(command: Any) -> str:
    """The first sentence of a command's help, whole."""
    return str(command.get_short_help_str(limit=1000))


def _context_class(base: Any) -> Any:
    class Coloured(base.formatter_class):  # type: ignore[misc]
        def write_heading(self, heading: str) -> None:
            super().write_heading(_styled(heading))

        def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
            super().write_usage(prog, args, _styled("Usage:") + " " if prefix is None else prefix)

    return type("Context", (base,), {"formatter_class": Coloured})


def _styled(text: str) -> str:
    """Bold, which the output leaves out where it is not a terminal."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, bold=True, fg="cyan")
