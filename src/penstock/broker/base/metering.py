"""Quotas at one request: its meters, the time that it takes, and the throttle time of its response.

The requests of clients without a quota have no meter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter_ns
from typing import Any, Final, TypeVar

from penstock.quotas.clients import ClientLimits

__all__ = ["RequestMeter", "charged", "timed"]

T = TypeVar("T")
#: nanoseconds of handling to percents of a second
_PERCENT_PER_NS: Final = 100.0 / 1e9


class RequestMeter:
    """Charges one request to the quotas of its client.

    The time of a request is the time in which the event loop's thread works for it. Waiting costs nothing.
    """

    __slots__ = ("_is_time_charged", "_limits", "_now_ms", "_resumed_ns", "_spent_ns", "throttle_ms")

    def __init__(self, limits: ClientLimits, now_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._now_ms = now_ms
        self._spent_ns = 0
        self._resumed_ns: int | None = perf_counter_ns()
        self._is_time_charged = False
        #: the longest throttle time of all quotas so far
        self.throttle_ms = 0

    def pause(self) -> None:
        """The request waits from now on."""
        if self._resumed_ns is not None:
            self._spent_ns += perf_counter_ns() - self._resumed_ns
            self._resumed_ns = None

    def resume(self) -> None:
        """The request is worked on from now on."""
        if self._resumed_ns is None:
            self._resumed_ns = perf_counter_ns()

    def charge_produce(self, size: int) -> None:
        """Charge the bytes of a Produce request."""
        if self._limits.produce is not None:
            self._raise(self._limits.produce.charge(size, self._now_ms()))

    def charge_time(self) -> None:
        """Charge the time of the request, once, when its response is built."""
        if self._is_time_charged or self._limits.request is None:
            return
        self._is_time_charged = True
        if self._resumed_ns is not None:
            self.pause()
            self.resume()
        spent_ns, self._spent_ns = self._spent_ns, 0
        self._raise(self._limits.request.charge(spent_ns * _PERCENT_PER_NS, self._now_ms()))

    def charge_rest(self) -> None:
        """Charge the time since `charge_time`: a large response is encoded after its throttle time is set."""
        if self._limits.request is not None and self._is_time_charged:
            spent_ns, self._spent_ns = self._spent_ns, 0
            self._limits.request.charge(spent_ns * _PERCENT_PER_NS, self._now_ms())

    def charge_fetch(self, size: int) -> int:
        """Charge the bytes of a Fetch response and the time of its request; the throttle time.

        With a throttle time the response is empty, so its bytes are taken back.
        """
        self.charge_time()
        meter, now_ms = self._limits.fetch, self._now_ms()
        if meter is not None:
            self._raise(meter.charge(size, now_ms))
            if self.throttle_ms:
                meter.refund(size, now_ms)
        return self.throttle_ms

    def charge_delivery(self, size: int) -> None:
        """Charge the bytes of a ShareFetch response, which is never empty: its records are acquired."""
        if self._limits.fetch is not None:
            self._raise(self._limits.fetch.charge(size, self._now_ms()))

    @property
    def fetch_bytes_max(self) -> int | None:
        """The most bytes of a Fetch response that is not throttled for certain; None without a quota."""
        return None if self._limits.fetch is None else int(self._limits.fetch.most_at_once)

    def _raise(self, throttle_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, throttle_ms)


class _Timed(Awaitable[T]):
    """Awaits a coroutine and counts the time of each of its steps."""

    __slots__ = ("_meter", "_work")

    def __init__(self, work: Awaitable[T], meter: RequestMeter) -> None:
        self._work = work
        self._meter = meter

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        self._meter.resume()
        try:
            awaited = next(steps)
            while True:
                self._meter.pause()
                try:
                    sent = yield awaited
                except BaseException as e:  # noqa: BLE001 - a cancellation goes to the coroutine as well
                    self._meter.resume()
                    awaited = steps.throw(e)
                else:
                    self._meter.resume()
                    awaited = steps.send(sent)
        except StopIteration as e:
            result: T = e.value
            return result
        finally:
            self._meter.pause()


async def timed(work: Awaitable[T], meter: RequestMeter) -> T:
    """The result of `work`, whose time counts as that of a request."""
    return await _Timed(work, meter)


async def charged(work: Awaitable[T], meter: RequestMeter) -> T:
    """The result of `work`, with its time charged, also the part after the throttle time was set."""
    try:
        return await timed(work, meter)
    finally:
        meter.charge_rest()
