"""Rates over windows, and the time after which a rate is back within its limit.

`Rate` is Kafka's Rate over a SampledStat: a number of samples, each of one window, of which the current one
is incomplete. With 11 samples of 1 s the rate is that of the last 10 to 11 seconds. `TokenBucket` is Kafka's
bucket for controller mutations (KIP-599).

Times are in milliseconds of one clock. Invariant: they never decrease.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DEFAULT_WINDOWS", "Meter", "MutationMeter", "Rate", "TokenBucket", "Windows"]

_MS: Final = 1000.0


class Windows(NamedTuple):
    """The samples of a rate: `quota.window.num` and `quota.window.size.seconds`."""

    number: int = 11
    size_ms: int = 1000


DEFAULT_WINDOWS: Final = Windows()


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """The sum of the recorded values per second."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            # One sample more than the windows: the oldest one may overlap the start of the measured time.
            self._current = (self._current + 1) % (self._windows.number + 1)
            if self._current == len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the length of the time that it was measured over."""
        samples, (count, size_ms) = self._samples, self._windows
        if not samples:
            samples.append(_Sample(now_ms))
        total, oldest_ms = 0.0, now_ms
        for sample in samples:
            if now_ms - sample.last_ms >= count * size_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        # A rate over a short time would be high. So all windows but the current one count as complete.
        elapsed_ms += max(0, count - 1 - elapsed_ms // size_ms) * size_ms
        elapsed_ms = max(1, elapsed_ms)
        return total * _MS / elapsed_ms, elapsed_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing was recorded within the windows: such a rate equals a new one."""
        expiry_ms = self._windows.number * self._windows.size_ms
        return all(not s.value or now_ms - s.last_ms >= expiry_ms for s in self._samples)


class Meter:
    """A rate with a limit."""

    __slots__ = ("_most_ms", "_rate", "_windows", "limit")

    def __init__(self, windows: Windows, limit: float, most_ms: int | None = None) -> None:
        """`most_ms` is the longest throttle time, None for no limit."""
        self.limit = limit
        self._rate = Rate(windows)
        self._windows = windows
        self._most_ms = most_ms

    def charge(self, value: float, now_ms: int) -> int:
        """Record a value; the throttle time in milliseconds, 0 if the rate is within its limit."""
        self._rate.record(value, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """The time after which the rate is back at its limit if nothing more is recorded."""
        rate, window_ms = self._rate.measure(now_ms)
        if rate <= self.limit:
            return 0
        throttle_ms = int((rate - self.limit) / self.limit * window_ms + 0.5)
        return throttle_ms if self._most_ms is None else min(throttle_ms, self._most_ms)

    def refund(self, value: float, now_ms: int) -> None:
        """Take a recorded value back."""
        self._rate.record(-value, now_ms)

    @property
    def most_at_once(self) -> float:
        """The largest value that is not throttled if nothing else was recorded."""
        return self.limit * (self._windows.number - 1) * self._windows.size_ms / _MS

    def is_idle(self, now_ms: int) -> bool:
        return self._rate.is_idle(now_ms)


class TokenBucket:
    """Tokens that are refilled at a rate, up to what all windows together bring."""

    __slots__ = ("_burst_s", "_tokens", "_updated_ms", "limit")

    def __init__(self, windows: Windows, limit: float) -> None:
        self.limit = limit
        self._burst_s = windows.number * windows.size_ms / _MS
        self._tokens: float | None = None
        self._updated_ms = 0

    @property
    def burst(self) -> float:
        """The tokens of a full bucket."""
        return self.limit * self._burst_s

    def tokens(self, now_ms: int) -> float:
        """The tokens that are left; negative if more were taken than there were."""
        burst = self.burst
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + (now_ms - self._updated_ms) / _MS * self.limit)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = self.tokens(now_ms) - count


class MutationMeter:
    """The quota of controller mutations. `limit` is the number of partitions per second."""

    __slots__ = ("_bucket",)

    def __init__(self, windows: Windows, limit: float) -> None:
        self._bucket = TokenBucket(windows, limit)

    @property
    def limit(self) -> float:
        return self._bucket.limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._bucket.limit = limit

    def charge_strictly(self, count: float, now_ms: int) -> int:
        """Take tokens unless they are used up; then the throttle time, and nothing is taken."""
        throttle_ms = self.throttle_ms(now_ms)
        if not throttle_ms:
            self._bucket.take(count, now_ms)
        return throttle_ms

    def charge(self, count: float, now_ms: int) -> int:
        """Take tokens in any case; the throttle time, 0 if there were enough."""
        self._bucket.take(count, now_ms)
        return self.throttle_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """The time after which the bucket is no longer in debt. At least 1 while it is."""
        tokens = self._bucket.tokens(now_ms)
        return 0 if tokens >= 0 else max(1, int(-tokens / self._bucket.limit * _MS + 0.5))

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket is full: such a bucket equals a new one."""
        return self._bucket.tokens(now_ms) >= self._bucket.burst
