"""Fetches the objects of a partition in order, one ahead of the one that is processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from penstock.archive.documents import Manifest, SegmentEntry
from penstock.archive.objects import get_unverified
from penstock.archive.reading import PartitionReader
from penstock.ports import ObjectStore

__all__ = ["objects_of"]


async def objects_of(
    store: ObjectStore, manifest: Manifest
) -> AsyncGenerator[tuple[SegmentEntry, bytes], None]:
    """All segments of a manifest with their bytes, which the caller verifies. Close it with `aclosing`.

    ArchiveDamaged if an object is missing.
    """
    ahead: tuple[SegmentEntry, asyncio.Task[bytes]] | None = None
    try:
        async for entry in PartitionReader(store, manifest).segments():
            name = manifest.owner.object(entry.name)
            task = asyncio.get_running_loop().create_task(get_unverified(store, name))
            ready, ahead = ahead, (entry, task)
            if ready is not None:
                yield ready[0], await ready[1]
        if ahead is not None:
            ready, ahead = ahead, None
            yield ready[0], await ready[1]
    finally:
        if ahead is not None:
            ahead[1].cancel()
            await asyncio.gather(ahead[1], return_exceptions=True)
