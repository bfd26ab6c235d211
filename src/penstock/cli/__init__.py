"""The `penstock` command. `app` registers the sub-commands of `commands`, one file each.

`cluster` and `telemetry` hold the parts that several commands share; the modules beside them are helpers for
every command (output, options, failures, connections).

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C. A failure prints one line on standard error with
the cause and the remedy. A traceback is printed only if PENSTOCK_DEBUG is set.

Imports: every package; the broker, Spark and telemetry only when a command needs them.
Used by: `python -m penstock` and the entry point `penstock`.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from types import FrameType
from typing import Any, Final

from penstock.cli.distributions import mixed_versions
from penstock.model.installation import not_installed

__all__ = ["main"]

_INTERRUPTED: Final = 130
#: of a command whose output could not be written, as in Python
_UNWRITTEN: Final = 120
#: the library of object stores
_STORES: Final = "obstore"


def main() -> None:
    """The entry point of the `penstock` script.

    While the modules are loaded, and after the command has ended, Ctrl-C ends the process without output.
    Why: Python would print a traceback of the import.
    """
    # For every Python process below this one, those of Spark included: none imports from its directory.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    end = _End()
    # What is registered first runs last.
    atexit.register(end)
    outside = signal.getsignal(signal.SIGINT)
    # SIGINT may be ignored: `nohup` and `&` start processes that way.
    around = _leave if outside is signal.default_int_handler else outside
    signal.signal(signal.SIGINT, around)
    if mixed := mixed_versions():
        sys.exit(f"penstock: {mixed}")
    # Nothing that is imported is garbage, and looking for it is a tenth of the imports.
    gc.disable()
    try:
        from penstock.cli.app import app
        from penstock.cli.completion import prepare_completion
        from penstock.cli.failure import guarded
    except ModuleNotFoundError as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        sys.exit(f"penstock: {not_installed(error)}")

    gc.enable()

    def command() -> Any:
        prepare_completion(os.environ)
        signal.signal(signal.SIGINT, outside)
        return app(prog_name="penstock", standalone_mode=False)

    exit_code = guarded(command)
    signal.signal(signal.SIGINT, around)
    end.exit_code = exit_code
    raise SystemExit(exit_code)


class _End:
    """Ends a process that has used an object store before Python frees its modules.

    Why: threads of the library then still release objects, for which they need the interpreter. Up to 3.13,
    Python ends such a thread in a way that the library answers with SIGABRT.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None

    def __call__(self) -> None:
        if self.exit_code is None or _STORES not in sys.modules:
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            os._exit(_UNWRITTEN)
        os._exit(self.exit_code)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
