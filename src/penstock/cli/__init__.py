"""The `penstock` command: `commands` puts it together, from one file per sub-command.

Exit codes: 0 done, 1 it failed, 2 it was asked wrongly, 130 Ctrl-C. A failure is one line on standard error
that says how to mend it; no traceback reaches a user unless PENSTOCK_DEBUG is set.
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

    Ctrl-C ends it without a word while there is no command yet, or no more, that could be interrupted: Python
    would show what it was importing.
    """
    outside = signal.getsignal(signal.SIGINT)
    # Who started it with `nohup` or `&` may have it ignored.
    around = _leave if outside is signal.default_int_handler else outside
    signal.signal(signal.SIGINT, around)
    from penstock.cli.commands import app
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
