"""When written bytes go to the disk: one flusher per data directory.

- `os`: when the operating system likes; only rolls and shutdown sync.
- `interval`: every `penstock.flush.interval.ms`, in a worker thread.
- `group`: an acknowledgement waits for the next sync; while one runs, the next group gathers.

A failed sync is never retried: storage takes the directory offline (`health`) and whoever waits is told. What
fails for lack of space alone is tried again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory

if TYPE_CHECKING:
    from penstock.broker.replica.partition import Partition

__all__ = ["FlushPolicy", "Flusher"]

FlushPolicy: TypeAlias = Literal["os", "interval", "group"]
log = get_logger("flusher")


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
        self._dirty: dict[Partition, None] = {}
        self._callbacks: list[Callable[[StorageError | None], None]] = []
        self._cycle: asyncio.Task[None] | None = None
        #: what a worker thread syncs now
        self._syncing: asyncio.Future[None] | None = None
        self._timer: asyncio.Handle | None = None
        #: when that is; not asked of the timer: one of uvloop's that is due at once does not know
        self._due_at = 0.0

    def wrote(self, partition: Partition) -> None:
        """Note that `partition` has bytes that the disk may not have; once is enough until the next sync."""
        self._dirty[partition] = None
        partition.unsynced = True
        if self.acks_wait:
            # Even if nobody waits for an acknowledgement: readers do.
            self._start()
        elif partition.flush_s is not None:
            self._flush_later(partition.flush_s)
        elif self.policy == "interval":
            self._flush_later(self._interval_s)

    def forget(self, partition: Partition) -> None:
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
        """Sync in rounds until nobody waits."""
        error: StorageError | None = None
        try:
            while self._callbacks or (self.acks_wait and self._dirty and error is None):
                callbacks, self._callbacks = self._callbacks, []
                error = await self._sync()
                for callback in callbacks:
                    _tell(callback, error)
        finally:
            self._cycle = None
            # Where a round fails before it is planned, these are still its own: the next write starts one.
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
        self._syncing = asyncio.ensure_future(self._workers.in_thread(self._sync_plans, plans))
        try:
            await self._syncing
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
            # Not what was planned: that may have been cut meanwhile.
            partition.flushed(partition.log.recovery_point, size)
        return None


def _tell(callback: Callable[[StorageError | None], None], error: StorageError | None) -> None:
    """One who cannot take the news must not keep it from the others, nor end the syncs."""
    try:
        callback(error)
    except Exception as e:
        log.error("flush_callback_failed", error=repr(e), exc_info=e)
