"""Reads that must not block the event loop on a disk.

A read of bytes that are not in the page cache raises `ColdPages`. A worker thread then reads those pages, and
the read is tried again. Bytes of an archive (`ColdRemote`) are loaded into a cache in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.model.errors import BrokerError
from penstock.ports import Workers
from penstock.storage.scan import ColdPages

__all__ = ["StoredPartition", "retry_when_cached", "warm_pages"]

T = TypeVar("T")


class StoredPartition(Protocol):
    """A partition whose log is read."""

    def read_failed(self, error: OSError) -> BrokerError:
        """Mark the partition's directory as failed; returns the error to raise."""
        ...


async def retry_when_cached(partition: StoredPartition, workers: Workers, read: Callable[[], T]) -> T:
    """The result of `read`, which is repeated until all pages that it needs are in the page cache."""
    while True:
        try:
            return read()
        except ColdPages as cold:
            try:
                await cold.load(workers)
            except OSError as e:
                raise partition.read_failed(e) from e


async def warm_pages(workers: Workers, cold: Sequence[tuple[StoredPartition, ColdPages]]) -> bool:
    """Read pages of several partitions into the page cache; a failure marks its partition's directory.

    Returns false if some bytes are still missing, for which a request should not wait longer.
    """
    warmed = await asyncio.gather(*(pages.load(workers) for _, pages in cold), return_exceptions=True)
    for (partition, _), error in zip(cold, warmed, strict=True):
        if isinstance(error, OSError):
            partition.read_failed(error)
    return False not in warmed
