"""Quotas at one request: its meters, the time that it takes, and the throttle time of its response.

A broker without client quotas creates none of these objects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter_ns
from typing import Any, Final, TypeVar

from penstock.broker.base.context import Context, RequestTasks
from penstock.broker.base.metrics import ApiStats
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.connection import Connection
from penstock.net.listener import Listener
from penstock.quotas.clients import ClientLimits, ClientQuotas
from penstock.quotas.entities import Quotas
from penstock.quotas.rates import MutationMeter

__all__ = ["MeteredContext", "MutationQuota", "MutationQuotas", "RequestMeter", "timed"]

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
        spent_ns = self._spent_ns
        if self._resumed_ns is not None:
            spent_ns += perf_counter_ns() - self._resumed_ns
        self._raise(self._limits.request.charge(spent_ns * _PERCENT_PER_NS, self._now_ms()))

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


class MeteredContext(Context):
    """The context of a request whose client has a quota."""

    __slots__ = ("meter",)

    def __init__(
        self,
        tasks: RequestTasks,
        connection: Connection,
        client_id: str | None,
        version: int,
        stats: ApiStats,
        meter: RequestMeter,
    ) -> None:
        super().__init__(tasks, connection, client_id, version, stats)
        self.meter = meter


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


class MutationQuota:
    """The quota of controller mutations at one request (KIP-599)."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "throttle_ms")

    def __init__(self, meter: MutationMeter | None, is_strict: bool, now_ms: Callable[[], int]) -> None:
        self._meter = meter
        self._is_strict = is_strict
        self._now_ms = now_ms
        #: the throttle time of the response
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge partitions that are created or deleted.

        A strict quota that is used up raises THROTTLING_QUOTA_EXCEEDED and charges nothing.
        """
        meter = self._meter
        if meter is None:
            return
        if not self._is_strict:
            self.throttle_ms = max(self.throttle_ms, meter.charge(partitions, self._now_ms()))
            return
        throttle_ms = meter.charge_strictly(partitions, self._now_ms())
        if throttle_ms:
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class MutationQuotas:
    """Finds the quota of controller mutations of a request, on the active controller."""

    def __init__(
        self,
        client_quotas: ClientQuotas,
        quotas: Callable[[], tuple[Quotas, object]],
        now_ms: Callable[[], int],
        internal: Listener | None,
    ) -> None:
        """`quotas` returns the quotas of the metadata and their generation."""
        self._client_quotas = client_quotas
        self._quotas = quotas
        self._now_ms = now_ms
        self._internal = internal

    def of(self, context: Context, strict_from: int) -> MutationQuota:
        """The quota of a request; strict from a version on. Requests of the nodes have none."""
        meter = None
        self._client_quotas.update(*self._quotas())
        if self._client_quotas.has_any and not self._is_exempt(context):
            limits = self._client_quotas.limits(
                context.principal.name, context.client_id or "", self._now_ms()
            )
            meter = None if limits is None else limits.mutations
        return MutationQuota(meter, context.version >= strict_from, self._now_ms)

    def _is_exempt(self, context: Context) -> bool:
        return context.listener is self._internal and not context.is_forwarded
