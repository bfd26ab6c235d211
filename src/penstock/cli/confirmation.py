"""Asks a user at a terminal before a command deletes or moves something."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

import typer

from penstock.cli.failure import Failure

__all__ = ["Yes", "confirm"]

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal.")]


def confirm(question: str, bootstrap: str, yes: bool) -> None:
    """Return if the user agrees; a Failure otherwise.

    Without a terminal there is no user to ask, and the command goes on: scripts and pipes are deliberate.
    """
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print(f"{question} at {_cluster(bootstrap)}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):  # end of input
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure("nothing was changed: answer y, or pass --yes")


def _cluster(bootstrap: str) -> str:
    """The cluster as the user knows it: by the name of the profile, and by its address."""
    from penstock.cli.profiles import current

    name = current()
    return bootstrap if name is None else f"{name} ({bootstrap})"
