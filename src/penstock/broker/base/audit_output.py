"""The way of audit events to their sinks: limits per second, equal events, and counts of dropped ones.

Each kind of events has a limit of its own, so that no client can hide one kind behind another.
Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from penstock.audit.internal_events import DROPPED, internal_event
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.logs import get_logger

__all__ = [
    "ACCESSES",
    "ATTEMPTS",
    "CHANGES",
    "DATA_CHANGES",
    "SESSIONS",
    "AuditOutput",
    "AuditSink",
    "CallLater",
]

log = get_logger("audit")
#: the kinds of events: denials and failures; executed changes of metadata and of data; logins; data access
ATTEMPTS: Final = "attempts"
CHANGES: Final = "changes"
DATA_CHANGES: Final = "data_changes"
SESSIONS: Final = "sessions"
ACCESSES: Final = "accesses"
#: different events that are counted at a time; others are written one by one
_REPEATED_MAX: Final = 1000

#: calls a function after a time, as `loop.call_later`
CallLater: TypeAlias = Callable[[float, Callable[[], None]], object]


class AuditSink(Protocol):
    """A destination with a bounded queue of its own. It counts and reports what it drops."""

    name: str
    #: the number of dropped events
    dropped: int

    def put(self, event: dict[str, Any]) -> bool:
        """Take an event; false if the queue is full."""
        ...


class _Repeated:
    """An event that was written, and how often it has happened again since."""

    __slots__ = ("again", "event", "kind")

    def __init__(self, event: dict[str, Any], kind: str) -> None:
        self.event = event
        self.kind = kind
        self.again = 0


class _Allowance:
    """A number of events per second, with a second's worth at once."""

    __slots__ = ("_counted_at", "_left", "_now", "_per_s")

    def __init__(self, per_s: int, now: Callable[[], float]) -> None:
        self._per_s = float(per_s)
        self._now = now
        self._left = self._per_s
        self._counted_at = now()

    def take(self) -> bool:
        now = self._now()
        self._left = min(self._per_s, self._left + (now - self._counted_at) * self._per_s)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class AuditOutput:
    """Passes events to the log, the queue of the audit topic, and other sinks."""

    def __init__(
        self,
        events_per_s: int,
        now: Callable[[], float],
        *,
        to_log: bool = True,
        queue: AuditQueue | None = None,
        sinks: Sequence[AuditSink] = (),
        blocks: bool = False,
        aggregation_s: float = 0.0,
        call_later: CallLater | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        kinds = (ATTEMPTS, CHANGES, DATA_CHANGES, SESSIONS, ACCESSES)
        self._allowances = {kind: _Allowance(events_per_s, now) for kind in kinds}
        self._is_off = events_per_s == 0
        self._to_log = to_log
        self.queue = queue
        self._sinks = sinks
        self.blocks = blocks
        self._aggregation_s = aggregation_s
        self.call_later = call_later
        self._wall_ms = wall_ms
        self._repeated: dict[tuple[object, ...], _Repeated] = {}
        #: events that the limit has dropped, and those that no later event has reported yet
        self._limited = 0
        self._dropped = 0

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped events, by reason: the limit per second, or the full queue of a sink."""
        counts = {"limit": self._limited} | {sink.name: sink.dropped for sink in self._sinks}
        return counts if self.queue is None else counts | {"topic": self.queue.dropped}

    def count_dropped(self, count: int) -> None:
        """Events were left out before they came here."""
        self._limited += count
        self._dropped += count

    def repeat(self, event: dict[str, Any], kind: str = ATTEMPTS) -> None:
        """Write an event that may happen often: once, and then how often it has happened again."""
        key = tuple(repr(value) if isinstance(value, list) else value for value in event.values())
        known = self._repeated.get(key)
        if known is not None:
            known.again += 1
            return
        if self._aggregation_s and self.call_later is not None and len(self._repeated) < _REPEATED_MAX:
            self._repeated[key] = _Repeated(event, kind)
            self.call_later(self._aggregation_s, lambda: self._end_window(key))
        self.emit(dict(event), kind)

    def _end_window(self, key: tuple[object, ...]) -> None:
        """Write how often an event has happened again, and count on if it has."""
        assert self.call_later is not None
        known = self._repeated[key]
        if not known.again:
            del self._repeated[key]
            return
        self.call_later(self._aggregation_s, lambda: self._end_window(key))
        self._emit_count(known)

    def _emit_count(self, known: _Repeated) -> None:
        again, known.again = known.again, 0
        self.emit({**known.event, "count": again}, known.kind)

    def close(self) -> None:
        """Write how often events have happened again, and how many were dropped: the broker stops."""
        for known in self._repeated.values():
            if known.again:
                self._emit_count(known)
        if self._dropped:
            self._pass_on(internal_event(DROPPED, self._wall_ms()))

    def emit(self, event: dict[str, Any], kind: str) -> None:
        """Write an event, unless its kind has had too many in this second."""
        if self._is_off:
            return
        # A change that has waited for room in the queue is not dropped after that.
        has_room = self.blocks and self.queue is not None and kind == CHANGES
        if not self._allowances[kind].take() and not has_room:
            self.count_dropped(event.get("count", 1))
            return
        self._pass_on(event)

    def _pass_on(self, event: dict[str, Any]) -> None:
        if self.queue is not None:
            self._dropped += self.queue.take_lost()
        if self._dropped:
            event["dropped"], self._dropped = self._dropped, 0
        timed = {**event, "time": self._wall_ms()} if self.queue is not None or self._sinks else event
        for sink in self._sinks:
            sink.put(timed)
        if self.queue is not None and not self.queue.put(timed):
            self._dropped = event.get("count", 1) + event.get("dropped", 0)
        if self._to_log:
            log.info(event["event"], **{name: value for name, value in event.items() if name != "event"})
