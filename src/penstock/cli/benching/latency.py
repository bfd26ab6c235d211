"""Latencies of a load test: a histogram with bounded error, percentiles, and a plot as text.

Pure: no clock and no I/O. A bucket is 1/16 of a power of two wide, so a percentile is at most 6 % too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["Latencies", "duration", "percentiles", "plot"]

_STEPS: Final = 16
_BAR: Final = "▏▎▍▌▋▊▉█"


class Latencies:
    """Counts of latencies in microseconds."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self._sum = 0
        self.max_us = 0

    def add(self, latency_us: int, times: int = 1) -> None:
        """Count a latency; a negative one, of clocks that differ, counts as 0."""
        latency_us = max(0, latency_us)
        bucket = _bucket(latency_us)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.count += times
        self._sum += latency_us * times
        self.max_us = max(self.max_us, latency_us)

    def merge(self, other: Latencies) -> None:
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self._sum += other._sum
        self.max_us = max(self.max_us, other.max_us)

    @property
    def mean_us(self) -> float:
        return self._sum / self.count if self.count else 0.0

    def percentile_us(self, percent: float) -> int:
        """The smallest latency that `percent` of all do not exceed; 0 if there are none."""
        wanted, seen = self.count * percent / 100, 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_upper(bucket), self.max_us)
        return self.max_us

    def rows(self) -> list[tuple[int, int, int]]:
        """The histogram in powers of two: lower and upper end in microseconds, and the count between them."""
        powers: dict[int, int] = {}
        for bucket, count in self._counts.items():
            power = _upper(bucket).bit_length()
            powers[power] = powers.get(power, 0) + count
        if not powers:
            return []
        return [
            ((1 << power - 1) if power else 0, 1 << power, powers.get(power, 0))
            for power in range(min(powers), max(powers) + 1)
        ]


def _bucket(latency_us: int) -> int:
    """Small numbers have a bucket each; above, 16 buckets for each power of two."""
    if latency_us < _STEPS:
        return latency_us
    power = latency_us.bit_length() - 5
    return _STEPS * (power + 1) + (latency_us >> power) - _STEPS


def _upper(bucket: int) -> int:
    """The largest latency of a bucket."""
    if bucket < _STEPS:
        return bucket
    power, step = divmod(bucket, _STEPS)
    return ((step + _STEPS + 1) << power - 1) - 1


def plot(latencies: Latencies, width: int) -> list[str]:
    """The histogram as lines of text with bars up to `width` characters."""
    rows = latencies.rows()
    largest = max((count for _, _, count in rows), default=0)
    lines = []
    for low, high, count in rows:
        share = count / latencies.count
        bar = _bar(count / largest if largest else 0.0, width)
        lines.append(f"{duration(low):>8} - {duration(high):>8} {share:7.2%} {bar}".rstrip())
    return lines


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_BAR[rest - 1] if rest else "")


def duration(us: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1_000_000), ("ms", 1000)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} us"


def percentiles(latencies: Latencies, percents: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds by name: p50, p99, p99.9."""
    return {f"p{percent:g}": round(latencies.percentile_us(percent) / 1000, 3) for percent in percents}
