"""A read that misses the page cache is repeated after a worker thread has read the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.broker.base.page_cache import retry_when_cached, warm_pages
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import ColdPages


class SameThread:
    async def in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)


class FailedPartition:
    def __init__(self) -> None:
        self.errors: list[OSError] = []

    def read_failed(self, error: OSError) -> StorageError:
        self.errors.append(error)
        return StorageError(str(error))


WORKERS = cast(Workers, SameThread())


class Cold(ColdPages):
    """Pages whose file cannot be read, or can."""

    def __init__(self, error: OSError | None = None) -> None:
        super().__init__(MemoryFiles().open("/f", create=True), 0, 1)
        self.error = error
        self.warmed = False

    def warm(self) -> None:
        if self.error is not None:
            raise self.error
        self.warmed = True


def test_a_read_is_repeated_until_its_pages_are_cached() -> None:
    missing = [Cold(), Cold()]
    left = list(missing)

    def read() -> str:
        if left:
            raise left.pop()
        return "found"

    assert asyncio.run(retry_when_cached(FailedPartition(), WORKERS, read)) == "found"
    assert all(pages.warmed for pages in missing)


def test_a_disk_that_fails_marks_the_partition() -> None:
    partition, error = FailedPartition(), OSError(5, "I/O error")

    def read() -> str:
        raise Cold(error)

    with pytest.raises(StorageError, match="I/O error"):
        asyncio.run(retry_when_cached(partition, WORKERS, read))
    assert partition.errors == [error]


def test_pages_of_several_partitions_are_warmed_and_only_the_failed_one_is_marked() -> None:
    sound, failed, error = FailedPartition(), FailedPartition(), OSError(5, "I/O error")
    pages = Cold()
    asyncio.run(warm_pages(WORKERS, [(sound, pages), (failed, Cold(error))]))
    assert pages.warmed
    assert (sound.errors, failed.errors) == ([], [error])
