"""Syncs written bytes to the disk: one flusher per data directory. The policy is `penstock.flush`.

- `os`: the operating system decides; only segment rolls and a shutdown sync.
- `interval`: a worker thread syncs every `penstock.flush.interval.ms`.
- `group`: an acknowledgement waits for the next sync. Appends during a sync form the group of the next one.

A failed sync is never retried: storage takes the directory offline (`health`), and every waiting callback is
called with the error. A sync that fails for lack of space is tried again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Literal, Protocol, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Histogram
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory
from penstock.storage.log import Log

__all__ = ["FlushPolicy", "FlushedPartition", "Flusher"]

FlushPolicy: TypeAlias = Literal["os", "interval", "group"]
log = get_logger("flusher")


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


class Flusher:
    """Syncs the logs of one data directory."""

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
        #: of successful syncs, each of all logs of the directory that had new bytes
        self.durations = Histogram()
        self._dirty: dict[FlushedPartition, None] = {}
        self._callbacks: list[Callable[[StorageError | None], None]] = []
        self._cycle: asyncio.Task[None] | None = None
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
        if self._timer is not None:
            self._timer.cancel()
        while self._cycle is not None:
            await asyncio.wait([self._cycle])

    def abandon(self) -> None:
        """Sync no more, as if the process had ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._cycle is not None:
            self._cycle.cancel()

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
        if self._cycle is None:
            self._cycle = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Sync in rounds until no callback is left."""
        error: StorageError | None = None
        try:
            while self._callbacks or (self.acks_wait and self._dirty and error is None):
                callbacks, self._callbacks = self._callbacks, []
                error = await self._sync()
                for callback in callbacks:
                    _call(callback, error)
        finally:
            self._cycle = None
            # If a round fails before it is planned, the next write of these partitions starts another.
            for partition in self._dirty:
                partition.unsynced = False
        if error is not None and self.health.offline is None:
            self._flush_later(self._interval_s)

    async def _sync(self) -> StorageError | None:
        try:
            self.health.check()
        except StorageError as e:
            return e
        rounds = [(p, p.log.flush_plan(), p.hidden_bytes) for p in self._dirty]
        for partition in self._dirty:
            partition.unsynced = False
        self._dirty = {}
        plans = [plan for _, plan, _ in rounds]
        began = perf_counter_ns()
        self._syncing = asyncio.ensure_future(self._workers.in_thread(self._sync_plans, plans))
        try:
            await self._syncing
            self.durations.observe(perf_counter_ns() - began)
        except StorageError as e:
            log.error("flush_failed", directory=self.directory, error=str(e))
            for partition, plan, _ in rounds:
                if partition.hosted:
                    partition.log.flush_failed(plan)
                    self._dirty[partition] = None
            return e
        finally:
            self._syncing = None
        for partition, plan, size in rounds:
            partition.log.flushed(plan)
            # Not the planned end: the log may have been truncated meanwhile.
            partition.flushed(partition.log.recovery_point, size)
        return None


def _call(callback: Callable[[StorageError | None], None], error: StorageError | None) -> None:
    """Call one callback. Its exception must not skip the other callbacks, nor end the syncs."""
    try:
        callback(error)
    except Exception as e:
        log.error("flush_callback_failed", error=repr(e), exc_info=e)
