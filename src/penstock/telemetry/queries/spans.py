"""Spans of time, and which rollup answers for which part of one.

Times are whole milliseconds since 1970, as samples have them. Spans are half open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

__all__ = [
    "DAY_MS",
    "HOUR_MS",
    "MINUTE_MS",
    "ROLLUPS",
    "SAMPLES",
    "Level",
    "Piece",
    "Span",
    "cover",
    "instant",
    "milliseconds",
]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Span(NamedTuple):
    """From `start` to just before `end`."""

    start: int
    end: int

    @property
    def width(self) -> int:
        return self.end - self.start

    def within(self, other: Span) -> Span:
        """The intersection of both; empty if there is none."""
        start = max(self.start, other.start)
        return Span(start, max(start, min(self.end, other.end)))


class Level(NamedTuple):
    """A table of windows, and how wide they are; a sample counts as a window of a millisecond."""

    table: str
    width_ms: int


class Piece(NamedTuple):
    """A part of a span, and the windows that answer for it."""

    level: Level
    span: Span


SAMPLES: Final = Level("samples", 1)
#: widest first
ROLLUPS: Final = (Level("rollups_1h", HOUR_MS), Level("rollups_1m", MINUTE_MS), Level("rollups_10s", 10_000))


def cover(span: Span, levels: Sequence[Level], ready: Mapping[str, int], since: int = 0) -> list[Piece]:
    """The span as pieces, in order and without gaps, each of the widest windows that lie wholly in it.

    `levels` are widest first. `ready` says up to when a table is complete: a wide window appears only when it
    has passed, so the newest part of a span is answered by narrow ones, and the rest by the narrowest.
    Samples begin at `since`: a wide window that begins before is partly empty, and narrow ones answer.
    """
    widest, *narrower = levels
    if not narrower:
        return [Piece(widest, span)] if span.width else []
    start = -(-max(span.start, since) // widest.width_ms) * widest.width_ms
    end = min(span.end, ready.get(widest.table, 0)) // widest.width_ms * widest.width_ms
    if start >= end:
        return cover(span, narrower, ready, since)
    before = cover(Span(span.start, start), narrower, ready, since)
    after = cover(Span(end, span.end), narrower, ready, since)
    return [*before, Piece(widest, Span(start, end)), *after]


def instant(at_ms: int) -> datetime:
    return _EPOCH + at_ms * _MILLISECOND


def milliseconds(moment: datetime, *, round_up: bool = False) -> int:
    since = moment - _EPOCH
    return -(-since // _MILLISECOND) if round_up else since // _MILLISECOND
