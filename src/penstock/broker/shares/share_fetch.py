"""One ShareFetch request: acquires records from the partitions of its session, or waits for them.

A fetch that waits is a plain object with one timer. Share partitions wake their waiting fetches in order. A
fetch that finds nothing, because another one was faster, goes on waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import warm_pages
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.broker.shares.reading import AcquiredData, read_and_acquire
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ApiError, ErrorCode, OffsetOutOfRange
from penstock.model.ids import TopicId
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
        self._cold: list[tuple[Any, ColdPages]] = []
        self._hosts: list[SharePartitionHost] = []
        self._deferred: Deferred[FetchResult] | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: true while pages are loaded
        self._warming = False

    def run(self) -> FetchResult | Deferred[FetchResult]:
        """The result, or a Deferred of it."""
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

    @property
    def _is_done(self) -> bool:
        """Returns true if the response must not wait."""
        return any(
            found not in _UNKNOWN if isinstance(found, ErrorCode) else bool(found.ranges)
            for found in self._result.values()
        )

    @property
    def _wants_no_bytes(self) -> bool:
        """Returns true if the request does not wait for records, but for the load of share partitions."""
        return self._wishes.min_bytes <= 0 and any(
            host.share is not None and host.share.next_fetch_offset(host.limits) is not None
            for host in self._hosts
        )

    # -- the wait

    def _wait(self) -> None:
        for host in self._hosts:
            host.wait(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wishes.max_wait_s, self._time_passed)

    def attempt(self) -> None:
        """Try again, because a partition has grown, records were released, or a partition was loaded."""
        if self._deferred is None or self._deferred.done or self._warming:
            return
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
        self._result, self._cold = {}, []
        hosts = list(self._found_hosts())
        for host in self._hosts:
            if host not in hosts:
                host.stop_waiting(self)
        self._hosts = hosts
        if may_wait and self._lacks_bytes():
            return
        wishes = self._wishes
        left, missing = wishes.max_bytes, wishes.acquire.records_max
        for host in hosts:
            # As in Kafka, a request for no bytes gets no records, not even the first batch.
            if missing <= 0 or wishes.max_bytes <= 0 or host.share is None:
                continue
            request = wishes.acquire._replace(records_max=missing)
            found = self._read(host, request, left, at_least_one=left == wishes.max_bytes)
            if found is not None:
                self._result[TopicIdPartition(host.key.topic_id, host.key.partition)] = found
                if not isinstance(found, ErrorCode):
                    left = max(0, left - found.size)
                    missing -= found.record_count

    def _found_hosts(self) -> Iterable[SharePartitionHost]:
        """The share partitions to read. Others have an error in the result.

        A share partition that could not be loaded while the request waited is not loaded again and again.
        """
        failed = {h.key: h.error for h in self._hosts if h.error is not None and h.share is None}
        for wanted in self._wanted:
            partition = self._find(TopicId(wanted.topic_id), wanted.partition)
            if isinstance(partition, ErrorCode):
                self._result[wanted] = partition
            elif not partition.leading:
                self._result[wanted] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                key = ShareStateKey(self._wishes.group_id, *wanted)
                if key in failed:
                    self._result[wanted] = failed[key]
                else:
                    yield self._shares.find(key, partition)

    def _lacks_bytes(self) -> bool:
        """Returns true if all partitions together have fewer bytes than the request waits for."""
        if self._wishes.min_bytes <= 1:
            return False
        size = 0
        for host in self._hosts:
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
        """Load cold pages and try again. After a few attempts the response has what there is.

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
