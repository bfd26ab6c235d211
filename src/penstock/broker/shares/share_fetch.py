"""One ShareFetch request: acquires records from the partitions of its session, or waits for them.

A fetch that waits is a plain object with one timer. Share partitions wake their waiting fetches in order. A
fetch that finds nothing, because another one was faster, goes on waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.broker.shares.reading import AcquiredData, read_and_acquire
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange, ProtocolError
from penstock.model.ids import TopicId
from penstock.model.steps import at_once
from penstock.net.deferred import Deferred
from penstock.ports import Workers
from penstock.shares.acquisition import AcquireRequest
from penstock.shares.sessions import TopicIdPartition
from penstock.shares.shard import ShareStateKey
from penstock.storage.scan import ColdPages

__all__ = ["FetchResult", "FetchWishes", "ShareFetch"]

#: errors that do not end the wait for other partitions
_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_WARM_TRIES: Final = 3
#: the most partitions that are looked at in one turn of the event loop
_AT_ONCE: Final = 200
#: how often a fetch that waits looks whether its connection is still open
_LOOK_S: Final = 1.0
#: what was found for each partition: acquired records, or an error
FetchResult: TypeAlias = dict[TopicIdPartition, AcquiredData | ErrorCode]
_Find: TypeAlias = Callable[[TopicId, int], Partition | ErrorCode]


class FetchWishes(NamedTuple):
    """The limits of a request."""

    group_id: str
    acquire: AcquireRequest
    min_bytes: int
    max_bytes: int
    max_wait_s: float


class ShareFetch:
    """One request on its way."""

    def __init__(
        self,
        context: Context,
        shares: SharePartitions,
        find: _Find,
        workers: Workers,
        wanted: Iterable[TopicIdPartition],
        wishes: FetchWishes,
    ) -> None:
        self._context = context
        self._shares = shares
        self._find = find
        self._workers = workers
        self._wanted = list(wanted)
        self._wishes = wishes
        self._result: FetchResult = {}
        #: whether the response must not wait
        self._is_done = False
        self._cold: list[tuple[Any, ColdPages]] = []
        self._hosts: list[SharePartitionHost] = []
        self._deferred: Deferred[FetchResult] | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: true while pages are loaded
        self._warming = False
        #: set when the wait of a fetch of many partitions is over
        self._woken: asyncio.Event | None = None

    def run(self) -> FetchResult | Deferred[FetchResult]:
        """The result, or a Deferred of it."""
        if len(self._wanted) > _AT_ONCE:
            return self._context.spawn(self._run_in_turns())
        may_wait = self._wishes.max_wait_s > 0
        self._try(may_wait)
        if self._is_done or (not self._cold and (not may_wait or not self._hosts or self._wants_no_bytes)):
            self._warm_for_the_next()
            return self._result
        self._deferred = Deferred()
        self._deferred.on_cancel = self._close
        self._wait()
        if self._cold:
            self._warm()
        return self._deferred

    def _put(self, partition: TopicIdPartition, found: AcquiredData | ErrorCode) -> None:
        self._result[partition] = found
        if found not in _UNKNOWN if isinstance(found, ErrorCode) else found.ranges:
            self._is_done = True

    @property
    def _wants_no_bytes(self) -> bool:
        """Returns true if the request does not wait for records, but for the load of share partitions."""
        return self._wishes.min_bytes <= 0 and any(
            host.share is not None and host.share.next_fetch_offset(host.limits) is not None
            for host in self._hosts
        )

    # -- many partitions

    async def _run_in_turns(self) -> FetchResult:
        """As `run`, for a session of so many partitions that each look at all of them takes turns."""
        loop, context = asyncio.get_running_loop(), self._context
        end_s = loop.time() + self._wishes.max_wait_s
        self._woken = asyncio.Event()
        tries = 0
        try:
            while True:
                may_wait = loop.time() < end_s
                self._woken.clear()
                await context.until_done(self._steps(may_wait))
                if self._is_done:
                    break
                if self._cold and tries < _WARM_TRIES:
                    tries += 1
                    await warm_pages(self._workers, self._cold)
                elif not may_wait or not self._hosts or self._wants_no_bytes:
                    break
                else:
                    await context.until_done(self._wait_in_steps())
                    await self._sleep(self._woken, end_s)
        finally:
            self._woken = None
            self._close()
        self._warm_for_the_next()
        return self._result

    def _wait_in_steps(self) -> Generator[None, None, None]:
        for host in self._hosts:
            host.wait(self)
            yield

    async def _sleep(self, woken: asyncio.Event, end_s: float) -> None:
        """Wait until a partition has news, or until the time is over.

        Raises ProtocolError if the connection is closed.
        """
        loop = asyncio.get_running_loop()
        while not woken.is_set() and (left_s := end_s - loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), min(left_s, _LOOK_S))
            if self._context.connection.closed:
                raise ProtocolError("the connection was closed before its fetch was answered")

    # -- the wait

    def _wait(self) -> None:
        for host in self._hosts:
            host.wait(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wishes.max_wait_s, self._time_passed)

    def attempt(self) -> None:
        """Try again, because a partition has grown, records were released, or a partition was loaded."""
        if self._woken is not None:
            self._woken.set()
        elif self._deferred is not None and not self._deferred.done and not self._warming:
            self._attempt(may_wait=True)

    def _time_passed(self) -> None:
        self._timer = None
        if not self._warming and self._deferred is not None and not self._deferred.done:
            self._attempt(may_wait=False)

    def _attempt(self, may_wait: bool) -> None:
        if not self._has_tried(may_wait):
            return
        if self._is_done:
            self._finish()
        elif self._cold:
            self._warm()
        elif not may_wait or self._wants_no_bytes:
            self._finish()
        else:
            for host in self._hosts:
                host.wait(self)

    def _has_tried(self, may_wait: bool) -> bool:
        """Try. Returns false after an unexpected error: the connection is closed, and the fetch ends."""
        try:
            self._try(may_wait)
        except Exception as e:  # noqa: BLE001 - no caller could report it to the client that waits
            self._close()
            self._context.failed(e)
            return False
        return True

    def _finish(self) -> None:
        deferred = self._deferred
        assert deferred is not None
        self._close()
        self._warm_for_the_next()
        deferred.resolve(self._result)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for host in self._hosts:
            host.stop_waiting(self)

    # -- reading

    def _try(self, may_wait: bool) -> None:
        """Acquire records of all partitions in order, within the limits."""
        at_once(self._steps(may_wait))

    def _steps(self, may_wait: bool) -> Generator[None, None, None]:
        self._result, self._cold, self._is_done = {}, [], False
        hosts: list[SharePartitionHost] = []
        for found in self._found_hosts():
            if found is not None:
                hosts.append(found)
            yield
        known = set(hosts)
        for host in self._hosts:
            if host not in known:
                host.stop_waiting(self)
        self._hosts = hosts
        if may_wait and (yield from self._lacks_bytes()):
            return
        wishes = self._wishes
        left, missing = wishes.max_bytes, wishes.acquire.records_max
        for host in hosts:
            # As in Kafka, a request for no bytes gets no records, not even the first batch.
            if missing <= 0 or wishes.max_bytes <= 0 or host.share is None:
                continue
            request = wishes.acquire._replace(records_max=missing)
            read = self._read(host, request, left, at_least_one=left == wishes.max_bytes)
            if read is not None:
                self._put(TopicIdPartition(host.key.topic_id, host.key.partition), read)
                if not isinstance(read, ErrorCode):
                    left = max(0, left - read.size)
                    missing -= read.record_count
            yield

    def _found_hosts(self) -> Iterator[SharePartitionHost | None]:
        """The share partitions to read; None for one that has an error in the result.

        A share partition that could not be loaded while the request waited is not loaded again and again.
        """
        failed = {h.key: h.error for h in self._hosts if h.error is not None and h.share is None}
        for wanted in self._wanted:
            partition = self._find(TopicId(wanted.topic_id), wanted.partition)
            if isinstance(partition, ErrorCode):
                self._put(wanted, partition)
                yield None
            elif not partition.leading:
                self._put(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                yield None
            else:
                key = ShareStateKey(self._wishes.group_id, *wanted)
                if key in failed:
                    self._put(wanted, failed[key])
                    yield None
                else:
                    yield self._shares.find(key, partition)

    def _lacks_bytes(self) -> Generator[None, None, bool]:
        """Returns true if all partitions together have fewer bytes than the request waits for."""
        if self._wishes.min_bytes <= 1:
            return False
        size = 0
        for host in self._hosts:
            yield
            offset = None if host.share is None else host.share.next_fetch_offset(host.limits)
            if offset is None:
                continue
            end = host.partition.readable_end(host.settings.is_committed)
            available = host.partition.log.bytes_between(offset, end)
            if available is None:
                return False
            size += available
        return size < self._wishes.min_bytes

    def _read(
        self, host: SharePartitionHost, request: AcquireRequest, left: int, at_least_one: bool
    ) -> AcquiredData | ErrorCode | None:
        """Acquired records, an error, or None if the partition has no records now."""
        try:
            found = read_and_acquire(host, request, left, at_least_one, self._shares.env.now_ms())
        except OffsetOutOfRange:
            # The log start offset has moved. The next attempt begins there.
            return None
        except ApiError as e:
            return e.code
        except ColdPages as e:
            self._cold.append((host.partition, e))
            return None
        if found.cold is not None:
            self._cold.append((host.partition, found.cold))
        host.partition.stats.bytes_out += found.size
        return found if found.ranges else None

    def _warm(self) -> None:
        self._warming = True
        self._shares.env.persister.spawn(self._load_pages())

    async def _load_pages(self) -> None:
        """Load cold pages and try again. After a few attempts the response has the records found so far.

        Acquired records end it: another attempt would replace the result that has them.
        """
        for _ in range(_WARM_TRIES):
            await warm_pages(self._workers, self._cold)
            if self._deferred is None or self._deferred.done or not self._has_tried(may_wait=False):
                return
            if self._is_done or not self._cold:
                break
        self._warming = False
        if self._is_done or self._timer is None:
            self._finish()
        else:
            for host in self._hosts:
                host.wait(self)

    def _warm_for_the_next(self) -> None:
        """Load the cold pages that this response does not wait for, while the member handles its records.

        Otherwise a cold partition would never be read while another one has records for each request.
        """
        if self._cold:
            self._shares.env.persister.spawn(warm_pages(self._workers, self._cold))
