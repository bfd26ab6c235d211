"""Segments that are put in place of others: without descriptors, and while the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from errno import EIO, EMFILE
from random import Random
from typing import Any, TypeVar

import pytest

from penstock.broker.base.awaiting import uninterrupted
from penstock.model.errors import StorageError
from penstock.storage.cleaner import KEY_BYTES, clean, measure, plan
from penstock.storage.compaction import CompactionPlan
from penstock.storage.memory import MemoryFiles
from penstock.testing.disk import FaultyDisk
from tests.storage.compacted import PATH, CompactedLog, InlineWorkers

T = TypeVar("T")


def dirty(files: MemoryFiles) -> tuple[CompactedLog, CompactionPlan]:
    topic = CompactedLog(files=files)
    for _ in range(3):
        topic.put((b"a", b"x"), (b"a", b"x"))
        topic.log.roll()
    return topic, plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)


def folders(topic: CompactedLog) -> list[str]:
    return [name for name in topic.files.listdir(PATH) if topic.files.is_dir(f"{PATH}/{name}")]


class FailingSyncs(InlineWorkers):
    """Syncs fail from the finish of a swap on; with `in_worker_only`, until the worker has ended it."""

    def __init__(self, disk: FaultyDisk, code: int, *, in_worker_only: bool = False) -> None:
        self._disk, self._code, self._in_worker_only = disk, code, in_worker_only

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        async def run() -> T:
            self._disk.sync_error = self._code if function.__name__ == "finish" else None
            try:
                return function(*args)
            finally:
                if self._in_worker_only:
                    self._disk.sync_error = None

        return run()


def test_a_swap_is_finished_in_the_thread_that_can_close_files() -> None:
    disk = FaultyDisk(Random(0))
    topic, planned = dirty(disk)

    # Worker threads get no descriptors when the swap is finished.
    short = FailingSyncs(disk, EMFILE, in_worker_only=True)
    assert asyncio.run(clean(topic.log, planned, disk, short)) is not None
    assert folders(topic) == []
    assert [record.offset for record in topic.records()] == [5]


def test_a_swap_that_is_left_unfinished_does_not_prevent_the_next_one() -> None:
    """There is no descriptor in any thread when the first swap is finished."""
    disk = FaultyDisk(Random(0))
    topic, planned = dirty(disk)

    assert asyncio.run(clean(topic.log, planned, disk, FailingSyncs(disk, EMFILE))) is not None, (
        "the log has the new segments"
    )
    assert folders(topic) == ["swap"]
    disk.sync_error = None
    topic.put((b"a", b"y"), (b"a", b"y"))
    topic.log.roll()
    again = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, 100 * KEY_BYTES)
    assert asyncio.run(clean(topic.log, again, disk, InlineWorkers())) is not None
    assert folders(topic) == []
    assert [record.offset for record in topic.records()] == [7]
    topic.reopen(clean=False)
    assert [record.offset for record in topic.records()] == [7]


def test_a_failed_disk_ends_a_swap_with_an_error() -> None:
    disk = FaultyDisk(Random(0))
    topic, planned = dirty(disk)

    with pytest.raises(StorageError, match="offline"):
        asyncio.run(clean(topic.log, planned, disk, FailingSyncs(disk, EIO)))


def test_a_cancelled_compaction_ends_with_the_old_or_the_new_segments() -> None:
    """A clean shutdown writes its manifest after the cancelled task has ended."""
    topic, planned = dirty(MemoryFiles())

    async def main() -> None:
        reached, goes_on = asyncio.Event(), asyncio.Event()

        class Slow(InlineWorkers):
            def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
                async def run() -> T:
                    if function.__name__ == "commit":
                        reached.set()
                        await goes_on.wait()
                    return function(*args)

                return asyncio.shield(asyncio.ensure_future(run()))

        compaction = asyncio.ensure_future(
            clean(topic.log, planned, topic.files, Slow(), lambda: True, uninterrupted)
        )
        await reached.wait()
        compaction.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not compaction.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await compaction
        assert folders(topic) == []
        names = [name for name in topic.files.listdir(PATH) if name.endswith(".log")]
        assert names == [f"{segment.base_offset:020d}.log" for segment in topic.log.segments]

    asyncio.run(main())
