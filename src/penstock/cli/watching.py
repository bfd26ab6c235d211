"""Refreshes the output of a command: in place on a terminal, elsewhere one after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from penstock.cli.failure import Failure

__all__ = ["repeat"]

State = TypeVar("State")

_CLEAR = "\x1b[H\x1b[2J"


def repeat(
    look: Callable[[], State],
    show: Callable[[State], None],
    interval_s: float,
    *,
    as_json: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Fetch and print at intervals until Ctrl-C.

    A failure of the first fetch ends the command: the address is wrong, or no broker runs. Later failures are
    printed, because the cluster may restart.
    """
    has_seen = False
    try:
        while True:
            try:
                state = look()
            except Failure as failure:
                if not has_seen:
                    raise
                _head(as_json, interval_s)
                print(f"penstock: {failure}", file=sys.stderr if as_json else sys.stdout)
            else:
                has_seen = True
                _head(as_json, interval_s)
                show(state)
            sys.stdout.flush()
            sleep(interval_s)
    except KeyboardInterrupt:
        return


def _head(as_json: bool, interval_s: float) -> None:
    if as_json:
        return
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    if sys.stdout.isatty():
        print(f"{_CLEAR}{now}  every {interval_s:g} s, Ctrl-C ends it\n")
    else:
        print(now)
