"""The pipeline of every Fetch, of clients and followers alike: read, wait, read again, answer.

A subclass of `Fetch` holds the partitions of one request, reads them and builds the response. The pipeline
waits for enough bytes, and has a worker thread load pages that are not in the page cache. A fetch that waits
is a plain object with one timer, not a task.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from penstock.broker.base.context import Context
from penstock.broker.base.metrics import Metrics
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.net.deferred import Deferred
from penstock.ports import Workers
from penstock.storage.log import Log
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import FetchResponse

__all__ = ["SMALL_RANGE", "Fetch", "FetchEnvironment", "FetchRead", "WaitingFetch", "newest_within"]

#: a range up to this size is copied, which is cheaper than the system calls of `sendfile`
SMALL_RANGE: Final = 24 << 10
#: attempts to load cold pages: other readers may evict them before they are read
_WARM_TRIES: Final = 3

#: calls a function soon, as `loop.call_soon`
CallSoon = Callable[[Callable[[], None]], object]


class WaitingFetch(ABC):
    """A fetch whose response waits for bytes or for the time to be up.

    A repeated fetch waits again for each request. It keeps the timer of a wait that ended by bytes for the
    next wait; `close_wait` cancels it.
    """

    __slots__ = (
        "_call_soon",
        "_deadline",
        "_deferred",
        "_loop",
        "_missing",
        "_timer",
        "context",
        "is_waiting",
    )

    #: whether the timer stays for the next wait
    keeps_timer: ClassVar[bool] = False
    #: closes the connection if the response fails unexpectedly
    context: Context
    #: the response that waits
    _deferred: Deferred[Any]

    @abstractmethod
    def subscribe(self) -> None:
        """Have `more` called when partitions grow."""

    @abstractmethod
    def unsubscribe(self) -> None: ...

    @abstractmethod
    def answer_now(self) -> Any:
        """The response with the bytes that there are, or a Deferred of it."""

    def prepare_wait(self, call_soon: CallSoon) -> None:
        """Call before the first wait. `call_soon` ends it once all frames that came together are served."""
        self._loop = asyncio.get_running_loop()
        self._call_soon = call_soon
        self._missing = 0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_waiting = False

    def start_wait(self, missing: int, max_wait_s: float) -> Deferred[Any]:
        """The response, once there are `missing` bytes more."""
        deferred = self._deferred = Deferred()
        deferred.on_cancel = self.close_wait
        self._missing = missing
        self.is_waiting = True
        self.subscribe()
        self._deadline = self._loop.time() + max_wait_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._time_passed)
        return deferred

    def more(self, size: int) -> None:
        """A partition has grown by `size` bytes."""
        if self._missing > 0:
            self._missing -= size
            if self._missing <= 0:
                self._call_soon(self._finish)

    def supersede(self, response: FetchResponse) -> None:
        """Answer with `response`: another request takes the place of this one."""
        if self.is_waiting:
            self.is_waiting = False
            self.unsubscribe()
            self._deferred.resolve(response)

    def close_wait(self) -> None:
        """End the wait without a response."""
        if self.is_waiting:
            self.is_waiting = False
            self.unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_passed(self) -> None:
        self._timer = None
        if not self.is_waiting:
            return
        if self._loop.time() < self._deadline:
            # It was set for an earlier wait.
            self._timer = self._loop.call_at(self._deadline, self._time_passed)
        else:
            self._finish()

    def _finish(self) -> None:
        if not self.is_waiting:
            return
        self.is_waiting = False
        try:
            response = self.answer_now()
        except Exception as e:  # noqa: BLE001 - no caller could report it to the client that waits
            self.context.failed(e)
        else:
            if isinstance(response, Deferred):
                response.then(self._deferred.resolve)
            else:
                self._deferred.resolve(response)
        # The response is on its way already.
        self.unsubscribe()
        if self._timer is not None and not self.keeps_timer:
            self._timer.cancel()


@dataclass(frozen=True, slots=True)
class FetchEnvironment:
    """The parts of a broker that all fetches of one listener use."""

    partitions: Partitions
    metrics: Metrics
    #: load cold pages
    workers: Workers
    #: see `WaitingFetch.prepare_wait`
    call_soon: CallSoon


class FetchRead:
    """The result of one pass over the partitions of a fetch."""

    __slots__ = ("cold", "is_urgent", "size")

    def __init__(self) -> None:
        self.size = 0
        #: true if the response must not wait, because it has an error or a divergence
        self.is_urgent = False
        #: pages to load before their partitions can be read
        self.cold: list[tuple[Partition, ColdPages]] = []


ReadT = TypeVar("ReadT", bound=FetchRead)


class Fetch(WaitingFetch, Generic[ReadT]):
    """One Fetch request on its way through the pipeline."""

    __slots__ = ("environment",)

    environment: FetchEnvironment

    @abstractmethod
    def read(self, may_wait: bool) -> ReadT:
        """Read all partitions. With `may_wait` the response is probably not sent."""

    @abstractmethod
    def respond(self, read: ReadT) -> Any:
        """The response, or (writer, content)."""

    @abstractmethod
    def still_missing(self, read: ReadT, missing: int) -> int:
        """How many bytes to wait for, after a read that lacks `missing`; 0 if waiting is of no use."""

    def run(self, min_bytes: int, max_wait_ms: int) -> Any:
        """The response, (writer, content), or a Deferred of either."""
        may_wait = max_wait_ms > 0
        read = self.read(may_wait)
        missing = min_bytes - read.size
        if missing > 0 and may_wait and not read.is_urgent and not read.cold:
            missing = self.still_missing(read, missing)
            if missing > 0:
                self.prepare_wait(self.environment.call_soon)
                return self.start_wait(missing, max_wait_ms / 1000)
        return self._answer(read)

    def answer_now(self) -> Any:
        return self._answer(self.read(False))

    def _answer(self, read: ReadT) -> Any:
        if read.cold:
            return self.context.spawn(self._warm(read))
        return self.respond(read)

    async def _warm(self, read: ReadT) -> Any:
        """Load cold pages and read again. After a few attempts the response has the bytes that there are."""
        for _ in range(_WARM_TRIES):
            is_loaded = await warm_pages(self.environment.workers, read.cold)
            self.context.mark("disk")
            read = self.read(False)
            if not (read.cold and is_loaded):
                break
        return self.respond(read)


def newest_within(log: Log, offset: int, upper: int, limit: int | None) -> bytes | None:
    """`Log.newest` for a client that may read up to `upper`, and `limit` bytes; None for any other read.

    Every read of a client asks here first, by the general and the repeated path, and for share groups.
    `Log.newest` is not called, because each fetch runs this.
    """
    first, end, batches = log.appender.newest
    if first != offset or end != upper or upper != log.end_offset or offset < log.log_start_offset:
        return None
    if limit is not None and len(batches) > limit:
        return None
    if log.health.offline is not None:
        log.health.check()
    return batches
