"""Waits for conditions in tests that run beside a broker's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["eventually"]

_PATIENCE_S = 60.0


def eventually(condition: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    """Return when `condition` holds; a KeyError is one that does not hold yet."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if condition():
                return
        except KeyError:
            pass
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)
