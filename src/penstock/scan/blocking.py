"""Scans for callers without an event loop, such as a task of Spark.

The store's library transfers in threads of its own. So the next chunks arrive while the caller works on one,
although the event loop runs only while it waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.manifests import check_manifest
from penstock.archive.objects import read_document
from penstock.records.committed import PlacedBatch
from penstock.records.record import iter_batches
from penstock.scan.partition import Chunk, PartitionScan, source_of
from penstock.scan.parts import Part, shown
from penstock.scan.place import ArchivePlace, open_place

__all__ = ["run", "scan"]

T = TypeVar("T")
#: chunks that are on their way, or have arrived, while the caller works on one
_AHEAD: Final = 3
_MANIFESTS_MAX: Final = 64


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, in an event loop of its own."""
    return asyncio.run(work)


def scan(part: Part, *, committed: bool, since_ms: int = 0) -> Iterator[tuple[memoryview, list[PlacedBatch]]]:
    """The batches of a part, chunk by chunk: bytes that were verified, and which batches in them are shown.

    The first and the last chunk may have batches outside of the part. ArchiveError if an object is missing or
    damaged, OSError if the store fails.
    """
    with asyncio.Runner() as runner:
        opened = PartitionScan(*_opened(runner, part), part, committed, since_ms)
        arriving: asyncio.Queue[_Arriving | None] = asyncio.Queue(_AHEAD)
        feeder = runner.get_loop().create_task(_feed(opened, arriving))
        while (found := runner.run(_next(arriving, feeder))) is not None:
            chunk, data = found
            yield data, list(shown(iter_batches(data), chunk.hidden))


_Arriving = tuple[Chunk, "asyncio.Task[memoryview]"]


async def _feed(opened: PartitionScan, arriving: asyncio.Queue[_Arriving | None]) -> None:
    chunks: AsyncIterator[Chunk] = opened.chunks()
    async for chunk in chunks:
        await arriving.put((chunk, asyncio.ensure_future(opened.load(chunk))))
    await arriving.put(None)


async def _next(
    arriving: asyncio.Queue[_Arriving | None], feeder: asyncio.Task[None]
) -> tuple[Chunk, memoryview] | None:
    """The next chunk when it has arrived; None behind the last one. An error of the feeder is raised."""
    getting = asyncio.ensure_future(arriving.get())
    await asyncio.wait((getting, feeder), return_when=asyncio.FIRST_COMPLETED)
    if not getting.done() and feeder.done() and arriving.empty():
        getting.cancel()
        with suppress(asyncio.CancelledError):
            await getting
        feeder.result()
    found = await getting
    return None if found is None else (found[0], await found[1])


def _opened(runner: asyncio.Runner, part: Part) -> tuple[Any, Manifest]:
    store = open_place(part.place)
    manifest = runner.run(_manifest(part.place, part.manifest, part.sha256))

    async def known() -> Manifest:
        return manifest

    return source_of(store, part, known), manifest


_manifests: Final[dict[tuple[str, str], Manifest]] = {}


async def _manifest(place: ArchivePlace, name: str, sha256: str) -> Manifest:
    """The manifest that was planned with; a worker that reads several parts reads it once."""
    key = (name, sha256)
    found = _manifests.get(key)
    if found is None:
        try:
            found, digest = await read_document(open_place(place), name, Manifest)
        except FileNotFoundError as e:
            raise ArchiveDamaged(f"{name} is missing") from e
        if digest != sha256:
            raise ArchiveDamaged(f"{name} is another manifest than the query was planned with")
        check_manifest(found, name)
        while len(_manifests) >= _MANIFESTS_MAX:
            del _manifests[next(iter(_manifests))]
        _manifests[key] = found
    return found
