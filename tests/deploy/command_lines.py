"""Checks command lines of files against the real commands, without running them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from penstock.cli.app import app

__all__ = ["parsed"]


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a `penstock` command line by name; raises a usage error that names what is wrong."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("penstock", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)
    return dict(context.params)
