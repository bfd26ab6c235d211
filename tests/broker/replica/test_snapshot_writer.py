"""Snapshots that a roll leaves for later are written one at a time, and before a clean stop is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.base.workers import SystemWorkers
from penstock.broker.replica.snapshot_writer import SnapshotWriter
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from tests.broker.disks import Disk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import batch_of, create_topic, produce, until
from tests.storage.logs import CLOCK, idempotent, open_log

#: more than a roll encodes itself, with records that fill a segment of 1 MiB
PRODUCERS = 1_100


class _Workers:
    """Runs work where it is called; `before` is called before."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.before()
        return function(*args)


def rolled(files: MemoryFiles, writer: SnapshotWriter) -> Log:
    """A log with a snapshot that waits for `writer`."""
    log = open_log(files)
    log.defer_snapshots(writer.add, beyond=0)
    log.append(idempotent(0, 3), 0)
    log.roll()
    return log


def snapshots(files: MemoryFiles, log: Log) -> list[str]:
    return snapshots_in(files, log.path)


def snapshots_in(files: MemoryFiles, folder: str) -> list[str]:
    return [name for name in files.listdir(folder) if ".snapshot" in name]


def test_a_stop_waits_for_the_snapshots() -> None:
    files = MemoryFiles(CLOCK)

    async def run() -> None:
        workers = SystemWorkers(lambda: 1)
        writer = SnapshotWriter(workers)
        log = rolled(files, writer)
        assert snapshots(files, log) == []
        await writer.stop()
        assert snapshots(files, log) == [f"{3:020d}.snapshot"]
        log.append(idempotent(3), 0)
        log.roll()
        await writer.stop()
        assert snapshots(files, log) == [f"{offset:020d}.snapshot" for offset in (3, 4)]
        workers.close()

    asyncio.run(run())


def test_no_snapshot_is_written_after_the_process_has_ended() -> None:
    files = MemoryFiles(CLOCK)

    async def run() -> None:
        writer = SnapshotWriter(_Workers())  # type: ignore[arg-type]
        log = rolled(files, writer)
        writer.abandon()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert snapshots(files, log) == []

    asyncio.run(run())


@pytest.mark.parametrize("change", [lambda log: log.truncate_to(1), lambda log: log.close(clean=False)])
def test_a_snapshot_of_a_log_that_has_changed_is_removed(change: Callable[[Log], None]) -> None:
    files = MemoryFiles(CLOCK)

    async def run() -> None:
        workers = _Workers()
        writer = SnapshotWriter(workers)  # type: ignore[arg-type]
        log = rolled(files, writer)
        workers.before = lambda: change(log)
        await writer.stop()
        assert snapshots(files, log) == []

    asyncio.run(run())


def test_a_failed_write_does_not_stop_the_others() -> None:
    async def run() -> None:
        files, others = MemoryFiles(CLOCK), MemoryFiles(CLOCK)
        workers = _Workers()
        writer = SnapshotWriter(workers)  # type: ignore[arg-type]
        failing, log = rolled(files, writer), rolled(others, writer)
        refuse = iter([OSError(28, "No space left on device")])

        def open_once(path: str, *, create: bool = False) -> None:
            raise next(refuse)

        files.open = open_once  # type: ignore[method-assign, assignment]
        await writer.stop()
        assert failing.health.full is not None
        assert snapshots(files, failing) == []
        assert snapshots(others, log) == [f"{3:020d}.snapshot"]
        assert failing.producers.viewed_by is None

    asyncio.run(run())


def test_a_broker_writes_the_snapshot_of_many_producers_after_the_roll() -> None:
    disk = Disk()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "many", configs={"segment.bytes": "1048576"})
        for producer_id in range(PRODUCERS):
            batch = batch_of([bytes(900)], producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert produce(client, topic, batch).error_code == 0
        folder = "/disk/topics/many/partition-0"
        until(lambda: any(name != f"{0:020d}.snapshot" for name in snapshots_in(disk, folder)))
        again = produce(client, topic, batch)
        assert (again.error_code, again.base_offset) == (0, PRODUCERS - 1)
