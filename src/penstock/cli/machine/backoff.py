"""The pause before a broker that has ended is started again."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff"]

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0
#: a broker that ran for this long starts again after the first pause
_STEADY_S: Final = 60.0


class Backoff:
    """Doubles the pause with each end, until the broker has run for a minute."""

    def __init__(self) -> None:
        self._next_s = _FIRST_S

    def after(self, ran_s: float) -> float:
        """The pause after an end; `ran_s` is the time for which the broker ran."""
        if ran_s >= _STEADY_S:
            self._next_s = _FIRST_S
        pause_s, self._next_s = self._next_s, min(_LONGEST_S, self._next_s * 2)
        return pause_s
