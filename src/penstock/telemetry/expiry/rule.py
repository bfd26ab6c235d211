"""Decides which days of samples may go, from their dates, two clocks and the numbers of a proof. No I/O.

Invariant: a day goes only if all of it is older than the time to keep by both the watermark and the clock,
and if each kind of rollup has counted as many samples of each hour and field as the day has.

Why two clocks: the driver's clock may be set to next year. The watermark is the time that half of the fleet's
GPUs have reached, and never ahead of the driver's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Final, NamedTuple

from penstock.telemetry.queries.spans import DAY_MS, Span, instant

__all__ = ["KEEP_MIN_MS", "Counted", "Proof", "cutoff_day", "day_after", "expired", "span_of_day"]

#: queries without a start look at the last 24 hours of samples, which end up to a day after a cutoff
KEEP_MIN_MS: Final = 2 * DAY_MS
_EPOCH: Final = date(1970, 1, 1)

#: samples by (hour since 1970, field)
Counted = Mapping[tuple[int, int], int]


class Proof(NamedTuple):
    """The comparison of one day of samples with its rollups."""

    day: str
    samples: int
    #: the first difference in words, None if the rollups have all
    difference: str | None

    @classmethod
    def of(cls, day: str, samples: Counted, rollups: Mapping[str, Counted]) -> Proof:
        """Compare what the samples of a day have with what each table of rollups has counted."""
        total = sum(samples.values())
        for table, counted in rollups.items():
            for hour, field in sorted(samples.keys() | counted.keys()):
                there, known = samples.get((hour, field), 0), counted.get((hour, field), 0)
                if there != known:
                    at = instant(hour * 3_600_000).strftime("%Y-%m-%d %H:00")
                    words = (
                        f"{there:,} samples of field {field} in the hour of {at}, {table} counts {known:,}"
                    )
                    return cls(day, total, words)
        return cls(day, total, None)


def cutoff_day(watermark_ms: int, clock_ms: int, keep_ms: int) -> str:
    """The first day that is kept: days before it are wholly older than `keep_ms`."""
    assert keep_ms >= KEEP_MIN_MS, f"{keep_ms} ms is less than the samples that queries need"
    oldest_ms = min(watermark_ms, clock_ms) - keep_ms
    return str(_EPOCH + timedelta(days=max(0, oldest_ms) // DAY_MS))


def expired(days: Iterable[str], cutoff: str) -> list[str]:
    """The days that may go, in order."""
    limit = date.fromisoformat(cutoff)
    return sorted(day for day in set(days) if date.fromisoformat(day) < limit)


def span_of_day(day: str) -> Span:
    """The day in milliseconds, from its start to just before the next."""
    start = (date.fromisoformat(day) - _EPOCH).days * DAY_MS
    return Span(start, start + DAY_MS)


def day_after(day: str) -> str:
    return str(date.fromisoformat(day) + timedelta(days=1))
