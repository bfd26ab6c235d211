"""Checkpoints of data directories: one at a time, and not in failed directories."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.replica.checkpoints import Checkpoints
from penstock.model.errors import StorageError
from penstock.model.ids import TopicId
from penstock.storage.checkpoint import format_checked
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.memory import MemoryFiles
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import CLOCK, Tokens, batch, flush

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def directory_with_records(files: MemoryFiles, path: str, records: int) -> DataDirectory:
    directory = DataDirectory.open(files, path, cluster_id="c", node_id=1, rng=Tokens())
    directory.create_partitions([StoredPartition("a", 0, TopicId(bytes(16)))])
    log = directory.open_log("a", 0, LogConfig(), CLOCK)
    for _ in range(records):
        log.append(batch(), 0)
    flush(log)
    return directory


def test_recovery_points_of_all_directories_are_written() -> None:
    files = MemoryFiles()
    checkpoints = Checkpoints(InlineWorkers())
    for path, records in (("/one", 2), ("/two", 3)):
        checkpoints.add(directory_with_records(files, path, records))
    asyncio.run(checkpoints.write_all())
    assert files.read(f"/one/{RECOVERY_POINTS}") == format_checked(["a 0 - 2 0"], version=3)
    assert files.read(f"/two/{RECOVERY_POINTS}") == format_checked(["a 0 - 3 0"], version=3)


def test_a_directory_that_cannot_be_written_does_not_keep_others_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()
    checkpoints = Checkpoints(InlineWorkers())
    bad, good = (directory_with_records(files, path, 1) for path in ("/bad", "/good"))
    checkpoints.add(bad)
    checkpoints.add(good)

    def refuse() -> None:
        raise StorageError("no space")

    monkeypatch.setattr(bad, "checkpoint_in_steps", refuse)
    asyncio.run(checkpoints.write_all())
    assert files.read(f"/good/{RECOVERY_POINTS}") == format_checked(["a 0 - 1 0"], version=3)
    with pytest.raises(StorageError):
        asyncio.run(checkpoints.write(bad))


def test_a_failed_directory_is_left_alone() -> None:
    files = MemoryFiles()
    checkpoints = Checkpoints(InlineWorkers())
    failed = directory_with_records(files, "/failed", 1)
    checkpoints.add(failed)
    failed.health.sync_failed(OSError("gone"), "syncing")
    asyncio.run(checkpoints.write_all())
    asyncio.run(checkpoints.write_high_watermarks())
    assert not files.exists(f"/failed/{RECOVERY_POINTS}")
