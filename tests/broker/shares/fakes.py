"""A share coordinator whose answers a test gives, and a log whose pages a test makes cold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, Protocol

from penstock.broker.replica.waiting_readers import WaitingReaders
from penstock.model.errors import ApiError
from penstock.net.deferred import Deferred
from penstock.records.record import Record, build_batch
from penstock.shares.partition import StateUpdate
from penstock.shares.shard import ShareStateKey
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.wire.apis.read_share_group_state import PartitionResult

__all__ = ["BATCH_RECORDS", "FakeLog", "Persister", "Workers", "leading"]

BATCH_RECORDS = 10
_VALUE = bytes(4000)


class Persister:
    """Keeps writes until the test answers them."""

    def __init__(self) -> None:
        self.writes: list[tuple[StateUpdate, Deferred[ApiError | None]]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def idle(self) -> None:
        """Wait until all work is done."""
        while self.tasks:
            await self.tasks.pop()

    async def read(self, key: ShareStateKey, leader_epoch: int) -> PartitionResult:
        return PartitionResult(partition=key.partition, start_offset=0)

    def write(
        self, key: ShareStateKey, leader_epoch: int, state_epoch: int, update: StateUpdate
    ) -> Deferred[ApiError | None]:
        answer: Deferred[ApiError | None] = Deferred()
        self.writes.append((update, answer))
        return answer

    def answer(self, error: ApiError | None = None) -> None:
        self.writes.pop(0)[1].resolve(error)

    @property
    def starts(self) -> list[int]:
        return [update.start_offset for update, _ in self.writes]


class Workers:
    """Worker threads: the work is done at once."""

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        return work()


class _Warmable(Protocol):
    cold: dict[int, int]


class _Cold(ColdPages):
    """The pages of a batch, which may have to be warmed more than once."""

    def __init__(self, log: _Warmable, batch: int) -> None:
        self._log, self._batch = log, batch
        super().__init__(SimpleNamespace(path="a segment"), 0, 0)

    def warm(self) -> None:
        self._log.cold[self._batch] -= 1
        if not self._log.cold[self._batch]:
            del self._log.cold[self._batch]


class FakeLog:
    """Batches of ten records and 40 KB: the first read for a share group contains one of them."""

    def __init__(self, batches: int, cold: Iterable[int] = (), damaged: Iterable[int] = ()) -> None:
        self.log_start_offset = 0
        self.end_offset = self.high_watermark = batches * BATCH_RECORDS
        #: by batch, how often its pages have to be warmed
        self.cold = dict.fromkeys(cold, 1)
        self.damaged = set(damaged)
        #: nothing was appended since the start
        self.appender = SimpleNamespace(newest=(-1, -1, b""))
        self._batches = [_batch(index * BATCH_RECORDS) for index in range(batches)]

    def read(self, offset: int, limit: int, **_: object) -> Any:
        first = offset // BATCH_RECORDS
        found = b""
        for index in range(first, len(self._batches)):
            batch = self._batches[index]
            if found and len(found) + len(batch) > limit:
                break
            if index in self.cold:
                raise _Cold(self, index)
            if index in self.damaged:
                raise CorruptLog(f"batch {index} is damaged")
            found += batch
        return SimpleNamespace(read=lambda: found)


def _batch(base_offset: int) -> bytes:
    batch = build_batch(Record(i, 0, None, _VALUE) for i in range(BATCH_RECORDS))
    return base_offset.to_bytes(8, "big") + batch[8:]


def leading(log: Any, index: int = 0) -> Any:
    """A partition that this broker leads."""
    partition = SimpleNamespace(
        topic="jobs", index=index, name=f"jobs-{index}", leading=True, leader_epoch=3, log=log
    )
    partition.readers = WaitingReaders(log)
    partition.readable_end = lambda is_committed: log.end_offset
    partition.health = SimpleNamespace(offline=None)
    partition.stats = SimpleNamespace(bytes_out=0)
    return partition
