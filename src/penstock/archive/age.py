"""How long ago a writer began to put objects: the collector deletes those that have no name after a day."""

from __future__ import annotations

from typing import Final

from penstock.ports import Clock

__all__ = ["NAMED_WITHIN_S", "Age"]

#: objects that were put longer ago get no name
NAMED_WITHIN_S: Final = 12 * 3600.0


class Age:
    """The time since the construction, for the objects that are put from then on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic()
        self._began_ms = clock.now_ms()

    def elapsed_s(self) -> float:
        """The larger of both clocks: one may stand still while the machine sleeps, the other may be set."""
        clock = self._clock
        return max(clock.monotonic() - self._began_s, (clock.now_ms() - self._began_ms) / 1000)

    def check(self, owner: object) -> None:
        """TimeoutError if the objects may have been collected."""
        if self.elapsed_s() > NAMED_WITHIN_S:
            raise TimeoutError(f"the copy of {owner} took too long: its objects may be collected")
