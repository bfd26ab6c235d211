"""Remote partitions over a simulated store, and readers that load what they miss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.archive.documents import Manifest
from penstock.ports import FileRange, Files, Workers
from penstock.remote.cache import ChunkFiles
from penstock.remote.loading import Loader
from penstock.remote.partition import RemoteCache, RemotePartition
from penstock.remote.source import ArchiveSource
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import ColdRemote
from penstock.testing.simulation.object_store import SimulatedStore
from tests.archive.logs import FixedClock
from tests.storage.compacted import InlineWorkers

__all__ = ["FOLDER", "Reader", "loaded"]

T = TypeVar("T")
FOLDER = "/cache"


class Reader:
    """One remote partition with a cache of its own."""

    def __init__(
        self,
        store: SimulatedStore,
        manifest: Manifest,
        *,
        chunk_bytes: int = 1000,
        cache_bytes: int = 1 << 20,
        wait_s: float = 10.0,
        files: Files | None = None,
        document_bytes: int = 1 << 20,
        folder: str = FOLDER,
        source: Callable[
            [SimulatedStore, Callable[[], Awaitable[Manifest]], Workers, int], Any
        ] = ArchiveSource,
    ) -> None:
        self.failures: list[Exception] = []
        self.clock = FixedClock()
        if files is None:
            files = MemoryFiles()
            files.makedirs(folder)
        chunks = ChunkFiles(files, folder, "chunk")
        loader = Loader(2, 8, wait_s, self.failures.append)
        self.workers = InlineWorkers()
        self.cache = RemoteCache(chunks, loader, self.workers, self.clock, cache_bytes, document_bytes)

        async def read_manifest() -> Manifest:
            return manifest

        self.partition = RemotePartition(
            "orders-3", source(store, read_manifest, self.workers, chunk_bytes), self.cache
        )

    async def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> bytes:
        found = await self.call(lambda: self.partition.read(offset, max_bytes, at_least_one))
        return b"" if found is None else found.read()

    async def range(self, offset: int, max_bytes: int) -> FileRange:
        found = await self.call(lambda: self.partition.read(offset, max_bytes, True))
        assert found is not None
        return found

    async def call(self, ask: Callable[[], T]) -> T:
        return await loaded(ask, self.workers)


async def loaded(ask: Callable[[], T], workers: Any) -> T:
    """The answer, once everything that it needs is loaded; each load has to bring it forward."""
    for _ in range(50):
        try:
            return ask()
        except ColdRemote as cold:
            await cold.load(workers)
    raise AssertionError("the answer needs more than 50 loads")
