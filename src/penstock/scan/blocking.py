"""Scans for callers without an event loop, such as a task of Spark.

The store's library transfers in threads of its own. So the next chunks arrive while the caller works on one,
although the event loop runs only while it waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.manifests import check_manifest
from penstock.archive.objects import read_document
from penstock.ports import Buffer, ObjectStore
from penstock.records.committed import PlacedBatch
from penstock.scan.partition import Chunk, PartitionScan, source_of
from penstock.scan.parts import Part, shown
from penstock.scan.place import ArchivePlace, LocalBlocks, local_blocks, open_place, read_blocks

__all__ = ["run", "scan"]

T = TypeVar("T")
#: chunks that are on their way, or have arrived, while the caller works on one
_AHEAD: Final = 3
_MANIFESTS_MAX: Final = 64


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, in an event loop of its own."""
    return asyncio.run(work)


def scan(part: Part, *, committed: bool, since_ms: int = 0) -> Iterator[tuple[Buffer, Iterator[PlacedBatch]]]:
    """The batches of a part, chunk by chunk: bytes, and which batches in them are shown.

    A batch is verified when the iterator returns it, and the bytes are gone with the next chunk. The first
    and the last chunk may have batches outside of the part. ArchiveError if an object is missing or damaged,
    OSError if the store fails.
    """
    with asyncio.Runner() as runner:
        store = open_place(part.place)
        manifest = runner.run(_manifest(part.place, part.manifest, part.sha256))
        opened = PartitionScan(source_of(store, part, manifest), manifest, part, committed, since_ms)
        local = local_blocks(part.place)
        for chunk, data in _remote(runner, opened, store) if local is None else _local(runner, opened, local):
            yield data, shown(opened.batches(chunk, data), chunk.hidden)


def _local(runner: asyncio.Runner, opened: PartitionScan, blocks: LocalBlocks) -> Iterator[_Read]:
    """Chunks of files: the page cache reads ahead, and they are read where they are decoded."""
    chunks = opened.chunks()

    async def following() -> Chunk | None:
        return await anext(chunks, None)

    try:
        while (chunk := runner.run(following())) is not None:
            yield chunk, blocks.read(*opened.placed(chunk))
    finally:
        blocks.close()


def _remote(runner: asyncio.Runner, opened: PartitionScan, store: ObjectStore) -> Iterator[_Read]:
    arriving: asyncio.Queue[_Arriving | None] = asyncio.Queue(_AHEAD)
    feeder = runner.get_loop().create_task(_feed(opened, store, arriving))
    while (found := runner.run(_next(arriving, feeder))) is not None:
        yield found


_Read: TypeAlias = tuple[Chunk, Buffer]
_Arriving: TypeAlias = tuple[Chunk, "asyncio.Task[Buffer]"]


async def _feed(opened: PartitionScan, store: ObjectStore, arriving: asyncio.Queue[_Arriving | None]) -> None:
    chunks: AsyncIterator[Chunk] = opened.chunks()
    async for chunk in chunks:
        reading = asyncio.ensure_future(read_blocks(store, *opened.placed(chunk)))
        await arriving.put((chunk, reading))
    await arriving.put(None)


async def _next(
    arriving: asyncio.Queue[_Arriving | None], feeder: asyncio.Task[None]
) -> tuple[Chunk, Buffer] | None:
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
