"""Waits for conditions in tests that run beside a broker's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually"]

_PATIENCE_S = 60.0
_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


def eventually(condition: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    """Return when `condition` holds, or raise TimeoutError; a KeyError is one that does not hold yet.

    A pause is as long as the check before it: what it waits for gets at least half of a core.
    """
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        try:
            if condition():
                return
        except KeyError:
            pass
        ended = time.monotonic()
        if ended >= deadline:
            raise TimeoutError(f"the condition did not hold in {patience_s:g} s")
        time.sleep(min(max(_PAUSE_S, ended - began), _LONGEST_PAUSE_S))
