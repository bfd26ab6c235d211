"""The `penstock` command. `app` registers the sub-commands of `commands`, one file each.

`cluster` and `telemetry` hold the parts that several commands share; the modules beside them are helpers for
every command (output, options, failures, connections).

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C. A failure prints one line on standard error with
the cause and the remedy. A traceback is printed only if PENSTOCK_DEBUG is set.

Imports: every package; the broker, Spark and telemetry only when a command needs them.
Used by: `python -m penstock` and the entry point `penstock`.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any, Final

__all__ = ["main"]

_INTERRUPTED: Final = 130


def main() -> None:
    """The entry point of the `penstock` script.

    While the modules are loaded, and after the command has ended, Ctrl-C ends the process without output.
    Why: Python would print a traceback of the import.
    """
    outside = signal.getsignal(signal.SIGINT)
    # SIGINT may be ignored: `nohup` and `&` start processes that way.
    around = _leave if outside is signal.default_int_handler else outside
    signal.signal(signal.SIGINT, around)
    from penstock.cli.app import app
    from penstock.cli.completion import prepare_completion
    from penstock.cli.failure import guarded

    def command() -> Any:
        prepare_completion(os.environ)
        signal.signal(signal.SIGINT, outside)
        return app(prog_name="penstock", standalone_mode=False)

    exit_code = guarded(command)
    signal.signal(signal.SIGINT, around)
    raise SystemExit(exit_code)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
