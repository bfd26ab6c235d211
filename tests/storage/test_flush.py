"""Flush plans that are overtaken by what happens to their partition."""

from __future__ import annotations

import errno

import pytest

from penstock.model.errors import StorageError
from penstock.storage.flush import FlushPlan
from penstock.storage.health import Health
from penstock.storage.memory import MemoryFiles

PATH = "/data/topics/t/partition-0"


def plan(files: MemoryFiles, health: Health) -> FlushPlan:
    return FlushPlan(
        files,
        PATH,
        health,
        handles=[],
        sync_directory=True,
        checkpoint=(f"{PATH}/leader-epoch-checkpoint", b"0\n0\n"),
        end_offset=0,
        generation=0,
    )


def test_a_partition_that_is_removed_during_its_sync_causes_no_error() -> None:
    files, health = MemoryFiles(), Health()
    files.makedirs(PATH)
    flush = plan(files, health)
    files.rename(PATH, "/data/deleted")
    flush.sync()
    assert health.offline is None


def test_a_file_that_is_missing_fails_its_partition_but_not_the_directory() -> None:
    health = Health()
    error = health.failed(FileNotFoundError(errno.ENOENT, "gone"), "cannot read")
    assert isinstance(error, StorageError)
    assert health.offline is None


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_fails_takes_its_directory_offline_for_good(number: int) -> None:
    health = Health()
    health.failed(OSError(number, "first"), "cannot write")
    health.failed(OSError(number, "second"), "cannot write")
    assert health.offline is not None
    assert "first" in health.offline
