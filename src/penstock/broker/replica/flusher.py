"""Syncs written bytes to the disk: one flusher per data directory. The policy is `penstock.flush`.

- `os`: the operating system decides; only segment rolls and a shutdown sync.
- `interval`: a worker thread syncs every `penstock.flush.interval.ms`.
- `group`: an acknowledgement waits for the next sync. Appends during a sync form the group of the next one.

A failed sync is never retried: storage takes the directory offline (`health`), and every waiting callback is
called with the error. A sync that fails for lack of space is tried again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import Final, Literal, Protocol, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Histogram
from penstock.broker.replica.snapshot_writer import SnapshotWriter
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory
from penstock.storage.flush import FlushPlan
from penstock.storage.log import Log

__all__ = ["FlushPolicy", "FlushedPartition", "Flusher"]

FlushPolicy: TypeAlias = Literal["os", "interval", "group"]
log = get_logger("flusher")
#: how many partitions are planned, or notified, in one step of the event loop: 3 µs each
_AT_ONCE: Final = 1_000


class FlushedPartition(Protocol):
    """A partition as its flusher uses it."""

    #: true if the flusher knows that bytes were written since it last planned a sync
    unsynced: bool

    @property
    def log(self) -> Log: ...
    @property
    def hosted(self) -> bool: ...
    @property
    def hidden_bytes(self) -> int: ...
    @property
    def flush_s(self) -> float | None: ...

    def flushed(self, end_offset: int, size: int) -> None:
        """The disk has everything below `end_offset`; `size` bytes of it were hidden so far."""


_Callbacks: TypeAlias = list[Callable[[StorageError | None], None]]
#: partitions with their plans, and the bytes of each that were hidden when it was planned
_Planned: TypeAlias = list[tuple[FlushedPartition, FlushPlan, int]]


class Flusher:
    """Syncs the logs of one data directory. It runs in callbacks: a task for each sync would cost more."""

    def __init__(
        self, directory: DataDirectory, policy: FlushPolicy, interval_s: float, workers: Workers
    ) -> None:
        self.directory = directory.path
        self.health = directory.health
        self._sync_plans = directory.sync
        self.policy = policy
        self.acks_wait = policy == "group"
        self._interval_s = interval_s
        self._workers = workers
        self.snapshots = SnapshotWriter(workers)
        #: of successful syncs, each of all logs of the directory that had new bytes
        self.durations = Histogram()
        self._dirty: dict[FlushedPartition, None] = {}
        #: of a round with many partitions, those that it has yet to plan
        self._unplanned: dict[FlushedPartition, None] = {}
        self._callbacks: _Callbacks = []
        #: true from the first callback or write until a round ends with nothing left to do
        self._is_running = False
        self._is_abandoned = False
        #: `stop` waits for it
        self._ended: asyncio.Future[None] | None = None
        #: the sync that a worker thread runs
        self._syncing: asyncio.Future[None] | None = None
        self._timer: asyncio.Handle | None = None
        #: when the timer fires; uvloop's timer does not know that if it is due at once
        self._due_at = 0.0

    def wrote(self, partition: FlushedPartition) -> None:
        """Plan a sync of `partition`, which has new bytes. One call is enough until the next sync."""
        self._dirty[partition] = None
        partition.unsynced = True
        if self.acks_wait:
            # Even without a pending acknowledgement: readers wait for the sync.
            self._start()
        elif partition.flush_s is not None:
            self._flush_later(partition.flush_s)
        elif self.policy == "interval":
            self._flush_later(self._interval_s)

    def forget(self, partition: FlushedPartition) -> None:
        self._dirty.pop(partition, None)
        self._unplanned.pop(partition, None)

    def when_flushed(self, callback: Callable[[StorageError | None], None]) -> None:
        """Call back once everything written until now is on the disk, or with the error that prevents it."""
        self._callbacks.append(callback)
        self._start()

    async def flush(self) -> None:
        """Return when everything written until now is on the disk; StorageError if that cannot be."""
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self.when_flushed(lambda error: None if done.done() else done.set_result(error))
        error = await done
        if error is not None:
            raise error

    async def let_go(self) -> None:
        """Return when the sync that is under way is over: until then it keeps files open."""
        if self._syncing is not None:
            await asyncio.wait([self._syncing])

    async def stop(self) -> None:
        """Start no more syncs, and return when none is running; nothing may be written from now on."""
        await self.snapshots.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._is_running:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended

    def abandon(self) -> None:
        """Sync no more, as if the process had ended."""
        self.snapshots.abandon()
        if self._timer is not None:
            self._timer.cancel()
        if self._syncing is not None:
            self._syncing.cancel()
        self._is_abandoned = True
        self._end()

    def _flush_later(self, delay_s: float) -> None:
        """Flush after `delay_s`, or when it was planned anyway if that is earlier."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._due_at <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._due_at = loop.time() + delay_s
        self._timer = loop.call_later(delay_s, self._interval_over)

    def _interval_over(self) -> None:
        self._timer = None
        self.when_flushed(lambda error: None)

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            # Not at once: the other appends of this iteration of the loop belong to the same round.
            asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        """Start a round: a worker thread syncs everything that was written until now."""
        if self._is_abandoned:
            return
        callbacks, self._callbacks = self._callbacks, []
        try:
            self.health.check()
        except StorageError as e:
            self._round_over(callbacks, e)
            return
        if len(self._dirty) > _AT_ONCE:
            planned: _Planned = []
            self._unplanned, self._dirty = self._dirty, {}
            self._started(self._sync_many(planned, callbacks), planned, callbacks)
            return
        try:
            planned = [(p, p.log.flush_plan(), p.hidden_bytes) for p in self._dirty]
        except BaseException:
            self._callbacks = callbacks
            self._end()
            raise
        for partition in self._dirty:
            partition.unsynced = False
        self._dirty = {}
        self._started(self._carry_out(planned), planned, callbacks)

    def _started(self, syncing: Awaitable[None], planned: _Planned, callbacks: _Callbacks) -> None:
        self._syncing = asyncio.ensure_future(syncing)
        self._syncing.add_done_callback(partial(self._synced, planned, callbacks, perf_counter_ns()))

    def _carry_out(self, planned: _Planned) -> Awaitable[None]:
        return self._workers.in_thread(self._sync_plans, [plan for _, plan, _ in planned])

    async def _sync_many(self, planned: _Planned, callbacks: _Callbacks) -> None:
        """A round in slices. A partition that is written to after its plan belongs to the next round."""
        unplanned = self._unplanned
        try:
            while unplanned:
                for partition in list(islice(unplanned, _AT_ONCE)):
                    planned.append((partition, partition.log.flush_plan(), partition.hidden_bytes))
                    partition.unsynced = False
                    del unplanned[partition]
                await asyncio.sleep(0)
        except Exception:
            self._callbacks[:0] = callbacks
            self._failed(planned)
            self._dirty |= unplanned
            planned.clear()
            unplanned.clear()
            raise
        await self._carry_out(planned)
        while planned:
            _advance(planned[-_AT_ONCE:])
            del planned[-_AT_ONCE:]
            await asyncio.sleep(0)

    def _synced(
        self, planned: _Planned, callbacks: _Callbacks, began_ns: int, syncing: asyncio.Future[None]
    ) -> None:
        self._syncing = None
        if self._is_abandoned or syncing.cancelled():
            return
        error = syncing.exception()
        try:
            if error is None:
                self.durations.observe(perf_counter_ns() - began_ns)
                _advance(planned)
            elif isinstance(error, StorageError):
                log.error("flush_failed", directory=self.directory, error=str(error))
                self._failed(planned)
            else:
                raise error
        except BaseException:
            self._end()
            raise
        self._round_over(callbacks, error)

    def _failed(self, planned: _Planned) -> None:
        """These plans were not carried out, or only in part: the next round repeats them."""
        for partition, plan, _ in planned:
            if partition.hosted:
                partition.log.flush_failed(plan)
                self._dirty[partition] = None

    def _round_over(self, callbacks: _Callbacks, error: StorageError | None) -> None:
        for callback in callbacks:
            _call(callback, error)
        if self._callbacks or (self.acks_wait and self._dirty and error is None):
            self._sync()
            return
        self._end()
        if error is not None and self.health.offline is None:
            self._flush_later(self._interval_s)

    def _end(self) -> None:
        """No round is running. What is still dirty is synced after the next write of a partition."""
        self._is_running = False
        for partition in self._dirty:
            partition.unsynced = False
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _advance(planned: _Planned) -> None:
    """These plans were carried out."""
    for partition, plan, size in planned:
        partition.log.flushed(plan)
        # Not the planned end: the log may have been truncated meanwhile.
        partition.flushed(partition.log.recovery_point, size)


def _call(callback: Callable[[StorageError | None], None], error: StorageError | None) -> None:
    """Call one callback. Its exception must not skip the other callbacks, nor end the syncs."""
    try:
        callback(error)
    except Exception as e:
        log.error("flush_callback_failed", error=repr(e), exc_info=e)
