"""A log of events that clients can cause as often as they like: each event is limited per minute.

Why: a client that connects and fails thousands of times a second must not fill the disk, nor hold the event
loop with writes. Counters of the same events stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.observability.requests import EventLimit

__all__ = ["EVENTS_PER_MINUTE", "LimitedLog"]

EVENTS_PER_MINUTE: Final = 60
#: a field can have a text of the client
_CHARACTERS_MAX: Final = 256


class LimitedLog:
    """Writes at most `per_minute` events of each name, with texts that are not too long.

    The first event after some were left out has their number in `left_out`.
    """

    def __init__(
        self, write: Callable[..., Any], now_s: Callable[[], float], per_minute: int = EVENTS_PER_MINUTE
    ) -> None:
        self._write = write
        self._now_s = now_s
        self._per_minute = per_minute
        #: by the name of the event: the events of the code, not of clients
        self._limits: dict[str, EventLimit] = {}

    def __call__(self, event: str, **fields: Any) -> None:
        limit = self._limits.get(event)
        if limit is None:
            limit = self._limits[event] = EventLimit(self._per_minute)
        left_out = limit.admit(self._now_s())
        if left_out is None:
            return
        if left_out:
            fields["left_out"] = left_out
        self._write(event, **{name: _cut(value) for name, value in fields.items()})


def _cut(value: Any) -> Any:
    return value[:_CHARACTERS_MAX] if isinstance(value, str) else value
