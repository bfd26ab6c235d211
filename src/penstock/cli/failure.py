"""Failures of commands: one line on standard error and an exit code."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from penstock.model.errors import InvalidConfig, PenstockError
from penstock.model.installation import not_installed
from penstock.model.visible import visible

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

# Typer exports only this leaf of its tree of usage errors (its own or click's, depending on its version).
_UsageError: Any = typer.BadParameter.__base__


class Failure(Exception):
    """A command failed. The message is one line with the cause and the remedy.

    `excerpt` has lines of a file that are printed below it, as they are.
    """

    def __init__(self, message: str, exit_code: int = FAILED, excerpt: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.excerpt = excerpt


def misused(message: str) -> NoReturn:
    """The command line itself is wrong."""
    raise Failure(message, MISUSED)


def too_late(what: str, timeout_s: float) -> str:
    """A request without a response in time. Usually it waits for the metadata quorum."""
    return (
        f"{what} within {timeout_s:g} s: give it a longer --timeout, or see `penstock quorum describe`: "
        f"without a majority nothing can be changed"
    )


def guarded(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code; prints any failure as one line."""
    exit_code = _outcome(command)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        print_no_more()
    return exit_code


def _outcome(command: Callable[[], Any]) -> int:
    try:
        return int(command() or 0)
    except BrokenPipeError:
        return print_no_more()
    except SystemExit as ended:  # what Typer makes of a closed pipe
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return print_no_more()
    except _UsageError as error:
        return _misuse(error)
    except Failure as failure:
        return _say(str(failure), failure.exit_code, failure.excerpt)
    except InvalidConfig as error:
        return _say(str(error), MISUSED)
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except (PenstockError, OSError) as error:
        return _say(str(error), FAILED)
    except Exception as error:  # the last resort: no traceback reaches a user
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        if isinstance(error, ModuleNotFoundError):
            return _say(not_installed(error), FAILED)
        if type(error).__name__ == "KafkaException":  # by name: most commands never load that library
            return _say(error.args[0].str(), FAILED)
        detail = f"{type(error).__name__}: {error}"
        return _say(f"{detail} (a bug in penstock: PENSTOCK_DEBUG=1 shows where)", FAILED)


def print_no_more() -> int:
    """Handle a closed pipe on standard output (`penstock … | head`), which is not a failure."""
    # Python would complain again when it flushes standard output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def reader_is_gone(output: int) -> bool:
    """Whether `output` is a pipe whose reader has closed it, so that a write would fail."""
    poll = select.poll()
    poll.register(output, 0)  # errors are always reported
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _misuse(error: Any) -> int:
    message = error.format_message()
    if "\n" in message:  # no arguments at all: the message is the help
        typer.echo(message, err=True)  # without colours where there is no terminal
        return MISUSED
    command = error.ctx.command_path if error.ctx is not None else "penstock"
    return _say(f"{message.rstrip('.')} (see `{command} --help`)", MISUSED)


def _say(message: str, exit_code: int, excerpt: str = "") -> int:
    # A message may have names that clients have chosen.
    print(f"penstock: {visible(' '.join(message.split()))}", file=sys.stderr)
    if excerpt:
        print(excerpt, file=sys.stderr)
    return exit_code
